"""One attached session as lines: what it says is printed, and what the person types is sent, answered or run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import LEARN_MODELS
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    SET_MODEL,
    SET_PERMISSION_MODE,
    TRUST_PROJECT,
    Request,
    RequestFailed,
    RequestKind,
    new_uuid,
)
from ccb.tunnel.wire.journal_records import MAIN_AGENT, InputRecord, MessageRecord, agent_of_message
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, PublicMessage, ResultMessage
from ccb.tunnel.wire.model_facts import ALIASES, may_be_model

from ..files.copying import Transfers
from ..files.fetched_files import FetchedFiles
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
from ..transcript.blocks import Level
from ..transcript.questions import OpenQuestions, ReplayMonitor
from ..transcript.session_facts import used_text
from ..transcript.transcript_reducer import TranscriptReducer
from ..tui.rendering.approval_text import place_of_call
from ..tui.rendering.permission_updates import Keep, kept_note, kept_updates
from ..tui.session_switching import NextSession
from ..tui.widgets.session_info import LeftSession, ReplInfo, farewell
from .commands import COMMAND_HELP, PlainCommands
from .files import PlainFiles
from .line_output import LinePrinter, PlainQuestion

if TYPE_CHECKING:
    from ..providers.known_models import ModelChoice

_ASKED: tuple[RequestKind[Any, Any], ...] = (CAN_USE_TOOL, ELICITATION, TRUST_PROJECT)
_NAMES = frozenset(kind.name for kind in _ASKED)
_HELP = """\
Type a prompt and press Enter. A line that ends with a backslash goes on in the next one.
! COMMAND runs a command on the host. Ctrl+C interrupts the agent; pressed while it is idle, it leaves.
/get REMOTE [LOCAL] and /put LOCAL [REMOTE] copy files and folders between the two machines.
/open PATH fetches a file of the host and says what it is; /open alone then shows it with a program of the laptop.
/model NAME, /mode MODE, /status, /revoke (call no models any more), /stop (end the session on the host),
/quit (leave; the session goes on). Commands of the project, skills and /context are the agent's own."""
_TYPED_AHEAD_S = 1.0
"""Seconds after a question in which a line is not taken as its answer: it was typed for something else."""
_TICK_S = 0.2


class LineRepl:
    """`write` prints lines. `run` returns when the person leaves or the session ends. `laptop_servers` returns the
    names of the MCP servers of this laptop, `keep` keeps rules for the host and the directory."""

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        write: Callable[[str], None],
        transfers: Transfers | None = None,
        models: ModelChoice | None = None,
        fetched: FetchedFiles | None = None,
        keep: Keep | None = None,
        laptop_servers: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._models = models
        self._laptop_servers = laptop_servers
        self._keep = keep
        self._client = client
        self._info = info
        self._write = write
        self._files = PlainFiles(transfers, fetched, write)
        self._printer = LinePrinter(write, info.path.rstrip("/"))
        self.reducer = TranscriptReducer(
            self._printer, model=info.model, mode=info.mode, sandbox=info.sandbox, own_name=info.client_name
        )
        self.reducer.notices.cwd = info.path.rstrip("/")
        self.commands = PlainCommands(client, info, self.reducer, write, self._printer.problems)
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
    def following(self) -> NextSession | None:
        """The session to which the person goes on, if any."""
        return self.commands.of_session.following

    @property
    def busy(self) -> bool:
        """Whether the agent works or waits for an answer, prompts wait for it, or files are copied."""
        waits = self.reducer.running or len(self._questions) > 0 or self.reducer.prompts.queued_count > 0
        return waits or self._files.busy

    async def run(self, lines: AsyncIterator[str], *, waits: bool) -> CcbError | None:
        """Show the session and send `lines` until they end. With `waits`, then wait until the agent is done. Return the
        error by which the session was lost, None if the person has left or stopped it."""
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
            await self._files.close()
        return self._lost

    async def interrupted(self) -> bool:
        """Ctrl+C: end the running turn, or else a copy. Return False if neither runs."""
        if not self.reducer.running:
            return self._files.cancel_newest()
        self._write("ccb: interrupting")
        await self._attempt(self._client.interrupt)
        return True

    def farewell(self) -> list[str]:
        """Return the lines that stay on the terminal."""
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
        """Print the question that is next, once it is known that it was not answered already. Return when no more input
        comes and the agent is done."""
        while not self._finishing or self.busy:
            await asyncio.sleep(_TICK_S)
            if self._shown is None and self._replay.over(self._client.hello.seq, time.monotonic()):
                head = self._questions.show_head()
                if head is not None:
                    place = place_of_call(head, self._info.place, self._laptop_servers())
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
        """Act on a line. Return False if the person leaves."""
        word, _, rest = text.strip().partition(" ")
        if not word:
            return True
        if word in ("/quit", "/exit"):
            return False
        if word == "/stop":
            self._stopping = True
            await self._attempt(self._client.stop)
            return False
        if self._shown is not None and not word.startswith("/"):
            await self._answer(self._shown, text)
        elif word == "/help":
            for each in (*_HELP.split("\n"), *(f"{usage}: {does}." for usage, does in COMMAND_HELP)):
                self._write(each)
        elif await self.commands.command(word, rest):
            return self.following is None
        elif word == "/revoke":
            self._info.revoke()
        elif word == "/status":
            self._write(f"ccb: {self._info.place}, {self._client.state.value}, model {self.reducer.model}, "
                        f"mode {self.reducer.mode}")  # fmt: skip
        elif word == "/mode":
            await self._attempt(lambda: self._client.request(Request(SET_PERMISSION_MODE, rest)))
        elif self._files.command(word, rest, self._client.hello.cwd.raw):
            pass
        elif word == "/model":
            await self._model(rest.strip())
        else:
            await self._prompt(text)
        return True

    async def _model(self, name: str) -> None:
        """Show the model, or use another one, if there can be one of this name."""
        name = self._models.without_alias(name) if self._models is not None else name
        if not name:
            self._write(f"ccb: model {self.reducer.model or 'not known before the first turn'}")
        elif not may_be_model(name):
            takes = f"/model takes {', '.join(ALIASES)}, or the full id of a model"
            self._write(f"ccb: {name} is no model, so the model stays. {takes}")
        else:
            await self._attempt(lambda: self._use_model(name))

    async def _use_model(self, name: str) -> None:
        """Use a model that its provider lists, and tell the worker what this laptop knows of it. Raise CcbError,
        RequestFailed."""
        if self._models is not None:
            for sentence in await self._models.check(name):
                self._write(f"ccb: {sentence}")
            with suppress(RequestFailed):  # an older worker does without
                await self._client.request(Request(LEARN_MODELS, self._models.known(name)))
        await self._client.request(Request(SET_MODEL, name))

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
            kept, keep = kept_updates(response), self._keep
            if kept and keep is not None and await self._attempt(lambda: keep(kept)):
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
        """Await an action of the client. Return whether it succeeded; a failure is printed."""
        try:
            await action()
        except CcbError as error:
            self._write(f"ccb: error: {error.what}")
        except RequestFailed as error:
            self._write(f"ccb: error: {HostText(str(error))}")
        else:
            return True
        return False
