"""The slash commands about tasks, other sessions and the past of this one, as lines with numbers to choose."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import (
    READ_TASK,
    REWIND_CONVERSATION,
    REWIND_FILES,
    REWIND_POINTS,
    STOP_TASK,
    ConversationRewind,
    FileRewind,
)
from ccb.tunnel.wire.control_protocol import Request

from ..session.session_client import LinkState, SessionClient
from ..terminal.stdio import in_thread
from ..transcript.notices import path_in
from ..transcript.transcript_reducer import TranscriptReducer
from ..tui.panels.rewind_panel import PastPrompts, RewindPreview
from ..tui.session_switching import NextSession
from .line_output import quoted

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions

SESSION_HELP = (
    ("/tasks [ID, stop ID]", "what runs in the background; the output of one; end it"),
    ("/rewind [N, N files, N conversation, N both]", "the prompts to go back to; what that changes; go back"),
    ("/new", "begin a new session here; this one stays on the host"),
    ("/resume [N, ID]", "the sessions of this host; go on with one of them"),
    ("/bug", "write a report of a problem to a file, without prompts and secrets"),
)
_MAX_PROMPT = 200
_LEAST_ID = 4
_SCOPES = ("files", "conversation", "both")


class LineSessionCommands:
    """Runs them for one session, and prints with `write`. `errors` are what went wrong so far, in words. A command that
    leads to another session sets `following`: the person leaves this one."""

    def __init__(
        self,
        client: SessionClient,
        reducer: TranscriptReducer,
        write: Callable[[str], None],
        errors: Collection[str],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._client = client
        self._reducer = reducer
        self._write = write
        self._errors = errors
        self._environ = environ
        self.sessions: HostSessions | None = None
        self.following: NextSession | None = None
        self.commands: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/tasks": self._tasks,
            "/rewind": self._rewind,
            "/new": self._new,
            "/resume": self._resume,
            "/bug": self._bug,
        }

    def _say(self, text: str) -> None:
        self._write(f"ccb: {text}")

    async def _tasks(self, argument: str) -> None:
        word, _, rest = argument.partition(" ")
        if not word:
            running = self._reducer.tasks.running
            for task in running:
                self._write(f"{task.id}: {task.description}")
            self._say("/tasks ID prints the output of one, /tasks stop ID ends it" if running else "nothing runs there")
        elif word == "stop" and rest.strip():
            await self._client.request(Request(STOP_TASK, rest.strip()))
            self._say(f"{rest.strip()} is being stopped")
        else:
            answer = await self._client.request(Request(READ_TASK, word))
            self._say(f"{word}, {HostText(str(answer.get('status'))).cell}")
            for line in quoted(str(answer.get("output") or "(no output yet)")):
                self._write(line)

    async def _rewind(self, argument: str) -> None:
        points = PastPrompts.model_validate(await self._client.request(Request(REWIND_POINTS, None))).points
        number, _, scope = argument.partition(" ")
        if not number:
            for place, each in enumerate(points, 1):
                files = f" ({each.files} file{'s' if each.files != 1 else ''} changed since)" if each.files else ""
                self._write(f"{place}: {each.text[:_MAX_PROMPT]}{files}")
            self._say("/rewind N says what going back changes" if points else "there is no prompt to go back to yet")
        elif not number.isdigit() or not 0 < int(number) <= len(points):
            self._say(f"there is no prompt {number}: /rewind lists them")
        elif scope.strip() in _SCOPES:
            await self._go_back(points[int(number) - 1].id, scope.strip())
        else:
            await self._say_what_changes(points[int(number) - 1].id, int(number))

    async def _say_what_changes(self, point: str, number: int) -> None:
        asked = Request(REWIND_FILES, FileRewind(point, dry_run=True))
        preview = RewindPreview.model_validate(await self._client.request(asked))
        for each in preview.files:
            why = f", not possible: {each.why}" if each.why else ""
            why += ", changed by something else since" if each.changedElsewhere else ""
            path = path_in(self._reducer.notices.cwd, each.path)
            self._write(f"{each.does} {path}, +{each.insertions} -{each.deletions}{why}")
        if not preview.files:
            self._say("no file would change")
        ways = ", ".join(f"/rewind {number} {scope}" for scope in _SCOPES)
        self._say(f"to go back to before this prompt: {ways}")

    async def _go_back(self, point: str, scope: str) -> None:
        if scope == "files":
            await self._client.request(Request(REWIND_FILES, FileRewind(point)))
            return
        rewind = ConversationRewind(point, files=scope == "both")
        done = RewindPreview.model_validate(await self._client.request(Request(REWIND_CONVERSATION, rewind)))
        if done.prompt:
            self._say("the prompt was:")
            for line in quoted(done.prompt):
                self._write(line)

    async def _new(self, _: str) -> None:
        if self._may_switch():
            self.following = NextSession("", self._reducer.model, self._reducer.mode)

    async def _resume(self, argument: str) -> None:
        if not self._may_switch() or self.sessions is None:
            return
        rows = await self.sessions.listed()
        here = self._client.hello.session
        if not argument:
            for place, row in enumerate(rows, 1):
                mark = " (this one)" if row.session == here else ""
                state = f"{row.state}, {row.cwd.cell}, {row.session[:8]}"
                self._write(f"{place}: {row.prompt.cell[:_MAX_PROMPT] or '(no prompt)'} ({state}){mark}")
            self._say("/resume N goes on with one")
            return
        named = [row for row in rows if len(argument) >= _LEAST_ID and row.session.startswith(argument.lower())]
        if argument.isdigit() and 0 < int(argument) <= len(rows):
            named = [rows[int(argument) - 1]]
        if len(named) != 1:
            self._say(f"{argument} is not the number or the ID of a session: /resume lists them")
        elif named[0].session == here:
            self._say("this is the session that you are in")
        else:
            self.following = NextSession(named[0].session)

    def _may_switch(self) -> bool:
        if self.sessions is None:
            self._say("there is only this session here")
        elif self._client.state not in (LinkState.CONNECTED, LinkState.FENCED):
            self._say("there is no connection now, so this session stays")
        else:
            return True
        return False

    async def _bug(self, _: str) -> None:
        from ..config.bug_report import write_report

        hello, reducer = self._client.hello, self._reducer
        facts = {
            "worker": f"Python {hello.python.cell} on {hello.platform.cell}, "
            f"protocol capabilities {len(hello.capabilities)}",
            "journal": hello.storage,
            "connection": self._client.state.value,
            "model": reducer.model,
            "permission mode": reducer.mode,
            "sandbox": reducer.sandbox,
            "terminal": f"{self._environ.get('TERM', '?')}, --plain",
        }
        try:
            path = await in_thread(lambda: write_report(self._environ, facts, tuple(self._errors)))
        except OSError as error:
            self._say(f"no report was written: {error.strerror or error}")
            return
        self._say(
            f"the report is in {path}, on the laptop. It has no prompts, no answers and no secrets; read it first."
        )
