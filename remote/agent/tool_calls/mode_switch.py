"""Changes of the permission mode in the middle of a turn, each announced to the clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...permissions.engine import PermissionEngine
from ...permissions.modes import PLAN
from .. import messages
from ..recorder import Recorder

Json = dict[str, Any]


class ModeSwitch:
    """Changes the mode of `permissions`. See `ccb.remote.tools.contract.Modes`."""

    def __init__(self, permissions: PermissionEngine, recorder: Recorder) -> None:
        self._permissions = permissions
        self._recorder = recorder

    @property
    def mode(self) -> str:
        return self._permissions.mode

    def enter_plan(self) -> None:
        self._apply_mode(PLAN)

    def leave_plan(self) -> None:
        if self.mode == PLAN:
            self._apply_mode(self._permissions.mode_before_plan)

    def grant(self, rules: Sequence[str]) -> None:
        if not self._recorder.agent_id:  # a sub-agent is never freer than the session
            self._permissions.lend(rules, for_turn=True)

    def apply(self, updates: Sequence[Json]) -> None:
        """Apply the permission updates that came with an answer."""
        permissions, mode = self._permissions, self.mode
        permissions.apply(updates)
        if permissions.mode != mode:
            self._recorder.message(messages.status(None, permissions.mode, permissions.cage_in_force))

    def _apply_mode(self, mode: str) -> None:
        self.apply([{"type": "setMode", "mode": mode, "destination": "session"}])
