"""One attached session as lines: what it says is printed, and what the person types is sent, answered or run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    TRUST_PROJECT,
    RequestFailed,
    RequestKind,
    new_uuid,
)
from ccb.tunnel.wire.journal_records import MAIN_AGENT, InputRecord, MessageRecord, agent_of_message
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, PublicMessage, ResultMessage

from ..session.session_client import (
    EventGap,
    LaptopNotice,
    LinkChange,
    LinkState,
    PromptDelivery,
    SessionClient,
    SessionEvent,
    parse_snapshot,
)
from ..slash_commands.command_table import find_command
from ..slash_commands.registry import Switch
from ..slash_commands.session_api import (
    NO_LAPTOP,
    LaptopSide,
    LeftSession,
    NextSession,
    Place,
    ReplInfo,
    SessionApi,
    farewell,
)
from ..slash_commands.typed_line import parse_command
from ..transcript.blocks import Level
from ..transcript.questions import OpenQuestions, ReplayMonitor
from ..transcript.session_facts import used_text
from ..transcript.transcript_reducer import TranscriptReducer
from ..tui.rendering.approval_text import place_of_call
from ..tui.rendering.permission_updates import kept_note, kept_updates
from .line_output import LinePrinter, PlainQuestion
from .line_replies import LineReplies

_ASKED: tuple[RequestKind[Any, Any], ...] = (CAN_USE_TOOL, ELICITATION, TRUST_PROJECT)
_NAMES = frozenset(kind.name for kind in _ASKED)
_TYPED_AHEAD_S = 1.0
"""Seconds after a question in which a line is not taken as its answer: it was typed for something else."""
_TICK_S = 0.2


class LineRepl:
    """`write` prints lines. `run` returns when the person leaves; `following` is the session to which they go on."""

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        write: Callable[[str], None],
        laptop: LaptopSide = NO_LAPTOP,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.following: NextSession | None = None
        self._laptop = laptop
        self._client = client
        self._info = info
        self._write = write
        self._printer = LinePrinter(write, info.path.rstrip("/"))
        self.reducer = TranscriptReducer(
            self._printer, model=info.model, mode=info.mode, sandbox=info.sandbox, own_name=info.client_name
        )
        self.reducer.notices.cwd = info.path.rstrip("/")
        self._api = SessionApi(
            client,
            info,
            self.reducer,
            laptop,
            place=Place.LINES,
            environ=environ,
            waits=lambda: write("ccb: sent when the connection is there again"),
            terminal=lambda: f"{environ.get('TERM', '?')}, --plain",
            problems=lambda: self._printer.problems,
        )
        self._replies = LineReplies(self._api, write)
        self._questions = OpenQuestions()
        self._replay = ReplayMonitor()
        self._shown: PlainQuestion | None = None
        self._shown_at = 0.0
        self._stopping = False
        self._finishing = False
        self._lost: CcbError | None = None
        for kind in _ASKED:
            client.register(kind)

    @property
    def busy(self) -> bool:
        waits = self.reducer.running or len(self._questions) > 0 or self.reducer.prompts.queued_count > 0
        return waits or self._replies.busy

    async def run(self, lines: AsyncIterator[str], *, waits: bool) -> CcbError | None:
        """Show the session and send `lines` until they end. Return the error by which the session was lost, if it
        was."""
        listening = asyncio.create_task(self._listen(), name="events")
        typing = asyncio.create_task(self._take(lines, waits=waits), name="lines")
        ticking = asyncio.create_task(self._tick(), name="questions")
        try:
            await asyncio.wait({listening, typing, ticking}, return_when=asyncio.FIRST_COMPLETED)
            for each in (listening, typing, ticking):
                if each.done():
                    each.result()
        finally:
            for each in (listening, typing, ticking):
                each.cancel()
            await asyncio.gather(listening, typing, ticking, return_exceptions=True)
            await self._replies.close()
        return self._lost

    async def interrupted(self) -> bool:
        """Ctrl+C: end the running turn, or else a copy. Return False if neither runs."""
        if not self.reducer.running:
            return self._replies.cancel_newest()
        self._write("ccb: interrupting")
        await self._attempt(self._client.interrupt)
        return True

    def farewell(self) -> list[str]:
        hello = self._client.hello
        left = LeftSession(
            session_id=hello.session,
            used=used_text(self.reducer.totals),
            in_memory=hello.storage == "memory",
            stopped=self._stopping,
            lost=self._lost.what if self._lost is not None else "",
            asking=len(self._questions) > 0,
            working=self.reducer.running,
        )
        return farewell(self._info, left)

    # What the session says.

    async def _listen(self) -> None:
        try:
            async for event in self._client.events():
                if isinstance(event, LinkChange):
                    self._link_changed(event)
                elif isinstance(event, EventGap):
                    self._skipped(event)
                elif isinstance(event, LaptopNotice):
                    self.reducer.notice(event.text, Level.WARNING)
                else:
                    self._received(event)
            self._write("ccb: the session has ended on the host")
        except CcbError as error:
            self._lost = error
            self._write(f"ccb: error: {error.what}. {error.do}")

    def _link_changed(self, change: LinkChange) -> None:
        if change.state is LinkState.CONNECTED:
            self._write("ccb: connected")
            return
        self.reducer.link_lost()
        reason = f": {change.reason}" if change.reason else ""
        again = f", attempt {change.attempt}" if change.attempt > 1 else ""
        self._write(f"ccb: {change.state.value}{again}{reason}")
        if change.state is LinkState.NEEDS_PERSON:
            self._write("ccb: the login asks something that --plain cannot ask now. Come back with:")
            self._write(self._info.resume)

    def _skipped(self, item: EventGap) -> None:
        state = parse_snapshot(item.body)
        self._replay.event_came(item.seq, time.monotonic(), replayed=True)
        self.reducer.skipped(state, running=self._client.hello.state != "idle")
        self._questions.replace_all(state.questions)

    def _received(self, item: SessionEvent) -> None:
        self._replay.event_came(item.seq, time.monotonic(), replayed=item.replayed)
        if item.kind == "progress":
            if agent_of_message(item.body) == MAIN_AGENT:
                self.reducer.apply_progress(item.public)
            self._message(item.public, replayed=item.replayed)  # such as a question that no journal holds
            return
        self.reducer.apply_event(item.record, replayed=item.replayed)
        content = item.record.content
        if isinstance(content, InputRecord) and isinstance(content.public, ControlResponse):
            self._close(content.public.request_id)
        elif isinstance(content, MessageRecord):
            self._message(item.public, replayed=item.replayed)

    def _message(self, public: PublicMessage, *, replayed: bool) -> None:
        if isinstance(public, ControlRequest) and public.subtype in _NAMES:
            self._questions.opened(public)
        elif isinstance(public, ControlCancel):
            self._close(public.request_id)
        elif isinstance(public, ResultMessage) and not replayed:
            self._write("ccb: the agent is done and waits for you")

    def _close(self, request_id: str) -> None:
        self._questions.closed(request_id)
        if self._shown is not None and self._shown.request.request_id == request_id:
            self._shown = None
            self._write("ccb: this question is settled")

    async def _tick(self) -> None:
        """Print the question that is next. Return when no more input comes and the agent is done."""
        while not self._finishing or self.busy:
            await asyncio.sleep(_TICK_S)
            if self._shown is None and self._replay.over(self._client.hello.seq, time.monotonic()):
                head = self._questions.show_head()
                if head is not None:
                    place = place_of_call(head, self._info.place, self._api.laptop_servers)
                    self._show(PlainQuestion(head, place))

    def _show(self, question: PlainQuestion) -> None:
        self._shown = question
        for line in question.lines:
            self._write(line)
        self._shown_at = time.monotonic()

    # What the person types.

    async def _take(self, lines: AsyncIterator[str], *, waits: bool) -> None:
        begun = ""
        async for line in lines:
            if line.endswith("\\"):
                begun += line[:-1] + "\n"
                continue
            text, begun = begun + line, ""
            if not await self._typed(text):
                return
        if waits:
            self._finishing = True
            await asyncio.Event().wait()  # `_tick` ends when the agent is done

    async def _typed(self, text: str) -> bool:
        line = text.strip()
        if not line:
            return True
        if self._shown is not None and not line.startswith("/"):
            await self._answer(self._shown, text)
            return True
        typed = parse_command(self._replies.meant(line))
        command = find_command(typed.name) if typed is not None else None
        if typed is None or command is None or Place.LINES not in command.places:
            await self._prompt(text)
            return True
        left = await self._replies.answer(command, typed.argument)
        if isinstance(left, Switch):
            self.following = left.following
        elif left is not None and left.stops:
            self._stopping = True
            await self._attempt(self._client.stop)
        return left is None

    async def _answer(self, question: PlainQuestion, text: str) -> None:
        if time.monotonic() - self._shown_at < _TYPED_AHEAD_S:
            self._write("ccb: this was typed before you can have read the question, so it is no answer: type it again")
            return
        reply = question.reply(text)
        if reply.again:
            self._write(f"ccb: {reply.again}")
        elif reply.response is None:
            self._show(question)
        else:
            self._shown = None
            self._questions.answered(question.request.request_id)
            response = reply.response
            await self._attempt(lambda: self._client.answer(question.request.request_id, response))
            kept, projects = kept_updates(response), self._laptop.projects
            if kept and projects is not None and await self._attempt(lambda: projects.keep(kept)):
                self._write(f"ccb: {kept_note(kept)}")

    async def _prompt(self, text: str) -> None:
        command_line = text.startswith("!")
        sent, name = text[1:].strip() if command_line else text, new_uuid()
        self._printer.own_prompts.append(text)
        if self.reducer.running:
            self._write("ccb: queued")
        self.reducer.prompt_sent(text, name, connected=self._client.state is LinkState.CONNECTED)
        try:
            await self._client.prompt(sent, uuid=name, how=PromptDelivery(command_line=command_line))
        except CcbError as error:
            self.reducer.prompt_failed(name)
            self._write(f"ccb: not sent: {error.what}")

    async def _attempt(self, action: Callable[[], Awaitable[object]]) -> bool:
        try:
            await action()
        except CcbError as error:
            self._write(f"ccb: error: {error.what}")
        except RequestFailed as error:
            self._write(f"ccb: error: {HostText(str(error))}")
        else:
            return True
        return False
