"""The permissions of a sub-agent: those of the main agent, in a mode that is never freer."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ccb.tunnel.wire.tool_traits import Effect, traits_of

from .decision import Behavior, Decision
from .engine import PermissionEngine
from .matchers import Askable
from .modes import stricter
from .paths import Places

Json = dict[str, Any]


class ChildPermissions(PermissionEngine):
    """Decides by the present rules, directories and cages of `parent`, in the mode `mode` or the parent's present one,
    whichever is stricter ("": the parent's). What the person grants a sub-agent for the session holds for the session.
    `cwd` is where it works, and the only directory that is its own besides the added ones ("": the parent's).
    `read_only`: tools that write are not offered, and calls that change anything are denied. `mode_changed` is called
    when an answer to the sub-agent has changed the session's mode."""

    def __init__(
        self,
        parent: PermissionEngine,
        mode: str = "",
        *,
        cwd: str = "",
        read_only: bool = False,
        mode_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._parent = parent
        self._mode_changed = mode_changed
        self._own_mode = mode
        self._read_only = read_only
        self._own_cwd = cwd
        self._memory = ""

    @property
    def mode(self) -> str:
        return stricter(self._own_mode or self._parent.mode, self._parent.mode)

    @property
    def cage_in_force(self) -> str:
        return self._limited().cage_in_force

    @property
    def directories(self) -> tuple[str, ...]:
        return self._limited().directories

    def visible(self, tool_name: str) -> bool:
        writes = traits_of(tool_name).effect is Effect.WRITE
        return self._parent.visible(tool_name) and not (writes and self._read_only)

    def left_out(self, tool_name: str) -> list[str]:
        return self._limited().left_out(tool_name)

    def grant_for_turn(self, rules: Sequence[str]) -> None:
        """Change nothing: the rules of the turn are the main agent's."""

    def apply(self, updates: Sequence[Mapping[str, Any]]) -> list[str]:
        mode = self._parent.mode
        problems = self._parent.apply(updates)
        if self._parent.mode != mode:
            self._mode_changed()
        return problems

    def decide(
        self, tool: Askable, tool_input: Json, *, can_ask: bool = False, shell_cwd: str = "", granted: bool = False
    ) -> Decision:
        limited = self._limited()
        if self._read_only and not limited.only_reads(tool, tool_input):
            return Decision(Behavior.DENY, "This agent only reads, and the call may change something.", "mode")
        return limited.decide(tool, tool_input, can_ask=can_ask, shell_cwd=shell_cwd, granted=granted)

    def _limited(self) -> PermissionEngine:
        """Return the parent's engine as it is now, in the mode and the directory of the sub-agent."""
        engine = copy.copy(self._parent)
        engine._mode = self.mode
        engine._memory = self._memory
        if self._own_cwd:
            engine._cwd = self._own_cwd
            engine._places = Places.of(engine._cwd, engine._home, engine._places.roots[1:])
        return engine
