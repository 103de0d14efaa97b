"""The command of the setting `statusLine`, whose first line stands in the status line. It runs on this machine, with a
time limit, and comes from the settings of this machine only: never from a host or a project."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rich.text import Text

from ccb.tunnel.errors import CredentialError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.secret import without_secrets

from ..credentials.credential_helper import output_of
from ..slash_commands.session_api import ReplInfo
from ..transcript.transcript_reducer import TranscriptReducer

_TIMEOUT_S = 5.0
_PAUSE_S = 1.0  # between two runs
_MAX_LINE = 500


class StatusCommand:
    """Runs the `command` at present, which may be "", when what it is told has changed. `run` starts a coroutine."""

    def __init__(
        self,
        command: Callable[[], str],
        environ: Mapping[str, str],
        run: Callable[[Coroutine[Any, Any, None]], object],
        session: str,
        info: ReplInfo,
        reducer: TranscriptReducer,
    ) -> None:
        self._command, self._environ, self._run = command, environ, run
        self._session, self._info, self._reducer = session, info, reducer
        self._line = ""
        self._told = ("", "")
        self._runs = False
        self._next_at = 0.0

    @property
    def line(self) -> str:
        return self._line if self._command() else ""

    def tick(self, now: float) -> None:
        """Run the command if the facts have changed. They have the names that such commands know from other agents."""
        command = self._command()
        if not command or self._runs or now < self._next_at:
            return
        info, reducer = self._info, self._reducer
        facts = {
            "session_id": self._session,
            "host": info.host,
            "cwd": info.path,
            "workspace": {"current_dir": info.path, "project_dir": info.path},
            "model": {"id": reducer.facts.model, "display_name": reducer.facts.model},
            "permission_mode": reducer.facts.mode,
            "git_branch": reducer.facts.branch,
            "version": info.version,
            "cost": {"total_cost_usd": reducer.totals.cost_usd},
            "context": reducer.totals.context_text,
        }
        told = (command, json.dumps(facts))
        if told != self._told:
            self._told, self._runs = told, True
            self._run(self._refresh(*told))

    async def _refresh(self, command: str, facts: str) -> None:
        environ = without_secrets(self._environ)
        try:
            text = await output_of(command, "statusLine", environ, _TIMEOUT_S, given=facts.encode())
            self._line = one_line(Text.from_ansi(text.partition("\n")[0][:_MAX_LINE]).plain)
        except CredentialError as error:  # it failed, or took too long
            self._line = error.what
        except (OSError, ValueError) as error:
            self._line = one_line(f"statusLine of the settings cannot run: {error}")
        finally:
            self._runs, self._next_at = False, time.monotonic() + _PAUSE_S
