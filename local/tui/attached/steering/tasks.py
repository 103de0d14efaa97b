"""/tasks and Ctrl+B: what the person does with work that goes on."""

from __future__ import annotations

import time
from typing import Protocol

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.kinds.tasks import BACKGROUND_TASKS, READ_TASK, STOP_TASK
from ccb.tunnel.wire.requests import P, Request, RequestFailed

from ....session.client import Json, SessionClient
from ...model.transcript_reducer import TranscriptReducer
from ..session_actions import SessionActions

_MAX_SHOWN = 20


class Hints(Protocol):
    """Shows a short answer to a key."""

    def __call__(self, text: str) -> None: ...


class TaskSteering:
    """Acts on the tasks of a session. Failures are shown, never raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, actions: SessionActions, hint: Hints) -> None:
        self._client = client
        self._reducer = reducer
        self._actions = actions
        self._hint = hint

    async def command(self, argument: str) -> None:
        """/tasks lists them, /tasks ID shows the end of the output of one, /tasks stop ID ends it."""
        word, _, rest = argument.partition(" ")
        if not argument:
            self._reducer.notice(self._list())
        elif word == "stop" and rest.strip():
            task_id = rest.strip()
            if await self._ask(Request(STOP_TASK, task_id)) is not None:
                self._hint(f"{task_id} is being stopped")
        else:
            answer = await self._ask(Request(READ_TASK, word))
            if answer is not None:
                output = str(answer.get("output") or "").rstrip() or "(no output yet)"
                self._reducer.notice([f"{word}, {HostText(str(answer.get('status'))).cell}:", *output.split("\n")])

    async def move(self) -> None:
        """Let the commands that the agent waits for go on in the background."""
        answer = await self._ask(Request(BACKGROUND_TASKS, None))
        if answer is not None:
            moved = answer.get("moved") is True
            self._hint("moved to the background" if moved else "no command runs that could go to the background")

    def _list(self) -> list[str]:
        tasks = self._reducer.tasks.running
        if not tasks:
            return ["Nothing runs in the background."]
        now = time.monotonic()
        lines = [f"{task.id}  {now - task.since:.0f} s  {task.description}" for task in tasks[:_MAX_SHOWN]]
        if len(tasks) > _MAX_SHOWN:
            lines.append(f"and {len(tasks) - _MAX_SHOWN} more")
        return [*lines, "/tasks ID shows the output of one, /tasks stop ID ends it."]

    async def _ask(self, request: Request[P, Json]) -> Json | None:
        try:
            return await self._client.request(request)
        except (CcbError, RequestFailed) as error:
            self._actions.show_error(error)
            return None
