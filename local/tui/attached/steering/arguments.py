"""What may follow the commands of the REPL, as far as it is known: offered while the person types."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.requests import RequestFailed
from ccb.tunnel.wire.tool_traits import BUILT_IN

from ....terminal.stdio import in_thread
from ...completion.candidates import Choices
from ...model.transcript_reducer import TranscriptReducer
from ...sessions.choosing import SessionChoosing
from ..shell import ReplShell
from .mcp_servers import McpServerList
from .model_choosing import ModelChoosing
from .session_facts import SessionFacts

_FRESH_S = 10.0
_MAX_SAID = 80
_MAX_ANSWERS = 9
_SHORT_ID = 8


class KnownArguments:
    """`now` returns the arguments by command. Some have to be asked for: `ask`. Nothing of that is ever an error."""

    def __init__(
        self,
        reducer: TranscriptReducer,
        shell: ReplShell,
        choosing: SessionChoosing,
        mcp: McpServerList,
        facts: SessionFacts,
        models: ModelChoosing,
    ) -> None:
        self._reducer = reducer
        self._shell = shell
        self._choosing = choosing
        self._mcp = mcp
        self._facts = facts
        self._models = models
        self._asked_at: dict[str, float] = {}
        self._answers: dict[str, Choices] = {}
        self._sources: Mapping[str, Callable[[], Awaitable[Choices]]] = {
            "resume": self._sessions,
            "hosts": self._hosts,
            "permissions": self._rules,
        }

    def now(self) -> dict[str, Choices]:
        """Return what is known, by command."""
        reducer = self._reducer
        tasks = {one_line(task.id): one_line(task.description) for task in reducer.tasks.running}
        answers = [each.strip() for each in reversed(reducer.answers)][:_MAX_ANSWERS]
        tools = reducer.tools or tuple(BUILT_IN)
        return {
            **self._answers,
            "model": dict.fromkeys(map(one_line, self._models.names), ""),
            "tasks": {**tasks, **{f"stop {task_id}": f"ends {task_id}" for task_id in tasks}},
            "mcp": {f"reconnect {one_line(each)}": "" for each in self._mcp.names},
            "theme": dict.fromkeys(self._shell.appearance.names, ""),
            "copy": {str(place): _said(text) for place, text in enumerate(answers, 1)},
            "tools": dict.fromkeys((one_line(each) for each in tools), ""),
        }

    async def ask(self, command: str) -> bool:
        """Bring up to date what may follow a command. Return whether something has changed."""
        source, now = self._sources.get(command), time.monotonic()
        if source is None or now - self._asked_at.get(command, -_FRESH_S) < _FRESH_S:
            return False
        self._asked_at[command] = now
        try:
            found = await source()
        except (CcbError, RequestFailed, ValueError):
            return False
        changed = found != self._answers.get(command)
        self._answers[command] = found
        return changed

    async def _sessions(self) -> Choices:
        sessions = self._choosing.sessions
        rows = await sessions.listed() if sessions is not None else []
        return {
            row.session[:_SHORT_ID]: _said(f"{row.cwd.cell} · {row.prompt.cell}")
            for row in rows
            if row.session != self._choosing.here
        }

    async def _hosts(self) -> Choices:
        from ....ledger.recent_places import recent_places

        places = await in_thread(lambda: recent_places(self._shell.appearance.environ))
        return {f"{one_line(each.host)}:{one_line(each.directory)}": "" for each in places}

    async def _rules(self) -> Choices:
        return {one_line(each.rule): each.behavior for each in await self._facts.rules()}


def _said(text: str) -> str:
    return one_line(text[: 4 * _MAX_SAID])[:_MAX_SAID]
