"""One attached session as lines: events, replies and copies are printed, lines are sent, answered or run."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from ccb import __version__
from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire.control_protocol import RequestFailed, new_uuid
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, ResultMessage

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..commands.move import move_along
from ..commands.session_table import choose_session
from ..config.log import state_dir
from ..connect.connect_session import connect_session
from ..connect.host_connection import HostConnection
from ..files.copying import Transfers, outcome, progress_line
from ..files.fetched_files import FetchedFile, FetchedFiles, PrivateFolder
from ..session import session_client
from ..slash_commands import session_api
from ..slash_commands.command_table import find_command
from ..slash_commands.registry import Copying, LaptopCommand, Leave, Live, OpenNext, Reply, ReplyRow, Rows, Switch, Text
from ..slash_commands.session_api import farewell as lines_of_farewell
from ..slash_commands.typed_line import parse_command
from ..terminal.console import print_line
from ..terminal.input_machine import typed_line
from ..terminal.signals import Interrupts
from ..terminal.stdio import read_pieces
from ..terminal.terminal_prompts import prompts_for
from ..transcript.blocks import Level
from ..transcript.questions import ASKED, OpenQuestions
from ..tui.rendering.approval_text import place_of_call
from ..tui.rendering.permission_updates import kept_note, kept_updates
from .line_output import LinePrinter, PlainQuestion

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts


_TYPED_AHEAD_S = 1.0
"""Seconds after a question in which a line is not taken as its answer: it was typed for something else."""
_TICK_S = 0.2
_EVERY_S = 10.0
_COLUMNS = 78
_HELP = """\
Type a prompt and press Enter. A line that ends with a backslash goes on in the next one.
! COMMAND runs a command on the host. Ctrl+C interrupts the agent; pressed while it is idle, it leaves.
After a list, a number alone chooses one of its rows. Other commands are the agent's own."""
_MAX_LINE = 1 << 20


class LineReplies:
    def __init__(self, api: session_api.SessionApi, write: Callable[..., None]) -> None:
        self._api = api
        self._write = write
        self._offered: Sequence[str] = ()  # the command lines of the rows that were printed last
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._telling)

    async def close(self) -> None:
        await cancelled(*self._telling)

    def meant(self, line: str) -> str:
        """Return the command line of the row whose number was typed right below its list; any other line as it is."""
        offered, self._offered = self._offered, ()
        number = int(line) if line.isdigit() and len(line) < 4 else 0
        return (offered[number - 1] if 0 < number <= len(offered) else "") or line

    async def answer(self, command: LaptopCommand, argument: str) -> Switch | Leave | None:
        """Run a command, and print its reply. Return the reply if the person leaves with it."""
        if command.name == "help":
            self._write(*_HELP.split("\n"))
        try:
            reply = await command.run(self._api, argument)
            if isinstance(reply, Switch | Leave):
                return reply
            await self._print(reply)
        except CcbError as error:
            self._say(f"error: {error.what}. {error.do}".rstrip())
        except RequestFailed as error:
            self._say(f"error: {HostText(str(error))}")
        except ValidationError:
            self._say("error: the worker's answer cannot be read")
        return None

    async def _print(self, reply: Reply) -> None:
        match reply:
            case Text() if reply.text:
                self._api.transcript.notice(reply.lines, reply.level)
            case Rows(rows=[]) | Rows(rows=()):
                self._say(reply.none)
            case Rows():
                offered = [each.choose for each in reply.rows]
                numbers = not reply.title or any(offered)
                self._offered = offered if numbers else ()
                self._print_list(reply.rows, numbers=numbers)
                for line in reply.after.splitlines():
                    self._say(line)
            case Live(updates=updates):
                printed: list[ReplyRow] = []
                async for rows in updates:
                    self._print_list([each for each in rows.rows if each not in printed])
                    printed = [*rows.rows]
                    last = rows
                self._say(last.after or last.title)
            case Copying():
                self._start(self._tell(reply))
            case OpenNext():
                self._start(self._open())

    def _print_list(self, rows: Sequence[ReplyRow], *, numbers: bool = False) -> None:
        for number, row in enumerate(rows, 1):
            first, *more = row.line.split("\n")
            self._write(f"{number}: {first}" if numbers else first, *(f"  {each}" for each in more))

    def _say(self, text: str) -> None:
        self._write(f"ccb: {text}")

    # Files.

    def _start(self, telling: Awaitable[None]) -> None:
        task = asyncio.ensure_future(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, copying: Copying) -> None:
        transfer = copying.transfer
        self._say(f"copying {transfer.name}; Ctrl+C breaks it off while the agent is idle")
        while not (await asyncio.wait({transfer.task}, timeout=_EVERY_S))[0]:
            self._say(progress_line(transfer.name, transfer.progress, _COLUMNS))
        fetched = self._api.laptop.fetched if copying.shown else None
        found = await (outcome(transfer) if fetched is None else fetched.arrived(transfer))
        if found is None:
            self._say(f"{transfer.name}: broken off; the same command goes on where it ended")
        elif isinstance(found, CcbError):
            self._say(f"error: {found.what}. {found.do}")
        elif isinstance(found, FetchedFile):
            self._offer(found)
        else:
            first, *more = transfer.done_text(found)
            self._write(f"ccb: {first}", *more)

    async def _open(self) -> None:
        fetched = self._api.laptop.fetched
        file = fetched.take_first() if fetched is not None else None
        if fetched is None or file is None:
            self._say("no file waits to be opened: /open PATH fetches one of the host")
            return
        try:
            self._say(await fetched.open_file(file))
        except CcbError as error:
            self._say(f"error: {error.what}. {error.do}")
        if fetched.offered:
            self._offer(fetched.offered[0])

    def _offer(self, file: FetchedFile) -> None:
        fetched = self._api.laptop.fetched
        assert fetched is not None
        before = fetched.offered.index(file) if file in fetched.offered else 0
        way = f"/open alone opens it{f' with {fetched.viewer}' if fetched.viewer else ''}"
        self._say(f"{file.text}; {way}{f', after the {before} before it' if before else ''}")


class LineRepl:
    """`write` prints lines. `run` returns when the person leaves; `following` is the session to which they go on,
    `moves_to` the place to which they take this one."""

    def __init__(
        self,
        client: session_client.SessionClient,
        info: session_api.ReplInfo,
        write: Callable[..., None],
        laptop: session_api.LaptopSide = session_api.NO_LAPTOP,
        lent: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self.following: session_api.NextSession | None = None
        self.moves_to = ""
        self._write = write
        self._printer = LinePrinter(write, info.path.rstrip("/"))
        self.reducer = info.transcript(self._printer)
        self._api = session_api.SessionApi(
            client,
            info,
            self.reducer,
            laptop,
            place=session_api.Place.LINES,
            waits=lambda: write("ccb: sent when the connection is there again"),
            terminal=lambda: f"{os.environ.get('TERM', '?')}, --plain",
            problems=lambda: self._printer.problems,
            lent=lent,
        )
        self._replies = LineReplies(self._api, write)
        self._questions = OpenQuestions()
        self._replaying = False
        self._shown: PlainQuestion | None = None
        self._shown_at = 0.0
        self._stopping = False
        self._finishing = False
        self._lost: CcbError | None = None
        for kind in ASKED:
            client.register(kind)

    @property
    def busy(self) -> bool:
        waits = self.reducer.running or len(self._questions) > 0 or self.reducer.prompts.queued_count > 0
        return waits or self._replies.busy

    async def run(self, lines: AsyncIterator[str], *, waits: bool) -> CcbError | None:
        listening = asyncio.create_task(self._listen(), name="events")
        typing = asyncio.create_task(self._take(lines, waits=waits), name="lines")
        ticking = asyncio.create_task(self._tick(), name="questions")
        try:
            await asyncio.wait({listening, typing, ticking}, return_when=asyncio.FIRST_COMPLETED)
            for each in (listening, typing, ticking):
                if each.done():
                    each.result()
        finally:
            await cancelled(listening, typing, ticking)
            await self._replies.close()
        return self._lost

    async def interrupted(self) -> bool:
        """Ctrl+C: end the running turn, or else a copy. Return False if neither runs."""
        if not self.reducer.running:
            transfers = self._api.laptop.transfers
            return transfers is not None and transfers.cancel_newest() is not None
        self._write("ccb: interrupting")
        await self._attempt(self._api.client.interrupt)
        return True

    def farewell(self) -> list[str]:
        left = self._api.left(stopped=self._stopping, error=self._lost, asking=len(self._questions) > 0)
        return lines_of_farewell(self._api.info, left)

    # What the session says.

    async def _listen(self) -> None:
        try:
            async for event in self._api.client.events():
                if isinstance(event, session_client.LinkChange):
                    self._link_changed(event)
                elif isinstance(event, session_client.EventGap):
                    self._skipped(event)
                elif isinstance(event, session_client.ReplayEnd):
                    self._replaying = False
                elif isinstance(event, session_client.PortOffer):
                    self.reducer.notice(event.text)
                elif isinstance(event, session_client.LaptopNotice):
                    self.reducer.notice(event.text, Level.WARNING)
                else:
                    self._received(event)
            self._write("ccb: the session has ended on the host")
        except CcbError as error:
            self._lost = error
            self._write(f"ccb: error: {error.what}. {error.do}")

    def _link_changed(self, change: session_client.LinkChange) -> None:
        if change.state is session_client.LinkState.CONNECTED:
            self._write("ccb: connected")
            return
        self.reducer.link_lost()
        reason = f": {change.reason}" if change.reason else ""
        again = f", attempt {change.attempt}" if change.attempt > 1 else ""
        self._write(f"ccb: {change.state.value}{again}{reason}")
        if change.state is session_client.LinkState.NEEDS_PERSON:
            self._write("ccb: the login asks something that --plain cannot ask now. Come back with:")
            self._write(self._api.info.resume)

    def _skipped(self, item: session_client.EventGap) -> None:
        state = session_client.parse_snapshot(item.body)
        self._replaying = True
        self.reducer.skipped(state, running=self._api.client.hello.state != "idle")
        self._questions.replace_all(state.questions)

    def _received(self, item: session_client.SessionEvent) -> None:
        self._replaying |= item.replayed
        public = self.reducer.take(item)
        if isinstance(public, ControlRequest):
            self._questions.opened(public)
        elif isinstance(public, ControlCancel | ControlResponse):
            self._close(public.request_id)
        elif isinstance(public, ResultMessage) and not item.replayed:
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
            if self._shown is None and not self._replaying:
                head = self._questions.show_head()
                if head is not None:
                    place = place_of_call(head, self._api.info.place, self._api.laptop_servers)
                    self._show(PlainQuestion(head, place))

    def _show(self, question: PlainQuestion) -> None:
        self._shown = question
        self._write(*question.lines)
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
        if typed is None or command is None or session_api.Place.LINES not in command.places:
            await self._prompt(text)
            return True
        left = await self._replies.answer(command, typed.argument)
        if isinstance(left, Switch):
            self.following = left.following
        elif left is not None:
            self.moves_to = left.moves_to
            if left.stops:
                self._stopping = True
                await self._attempt(self._api.client.stop)
        return left is None

    async def _answer(self, question: PlainQuestion, text: str) -> None:
        if time.monotonic() - self._shown_at < _TYPED_AHEAD_S:
            self._write("ccb: this was typed before you can have read the question, so it is no answer: type it again")
            return
        reply = question.reply(text)
        if isinstance(reply, str):
            self._write(f"ccb: {reply}")
        elif reply is None:
            self._show(question)
        else:
            self._shown = None
            self._questions.answered(question.request.request_id)
            await self._attempt(lambda: self._api.client.answer(question.request.request_id, reply))
            kept, projects = kept_updates(reply), self._api.laptop.projects
            if kept and projects is not None and await self._attempt(lambda: projects.keep(kept)):
                self._write(f"ccb: {kept_note(kept)}")

    async def _prompt(self, text: str) -> None:
        command_line = text.startswith("!")
        sent, name = text[1:].strip() if command_line else text, new_uuid()
        self._printer.own_prompts.append(text)
        if self.reducer.running:
            self._write("ccb: queued")
        self.reducer.prompt_sent(text, name, connected=self._api.client.state is session_client.LinkState.CONNECTED)
        try:
            await self._api.client.prompt(sent, uuid=name, how=session_client.PromptDelivery(command_line=command_line))
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


class FirstLoginPrompts:
    """Asks the person during the first login, and while a command of theirs runs: a later login could take a prompt for
    a password."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts, self._own = prompts, prompts

    def over(self) -> None:
        self._prompts = NobodyToAsk(self._own.memory)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        self._prompts = self._own
        try:
            yield
        finally:
            self.over()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._prompts, name)


async def run_plain(arguments: Arguments) -> int:
    prompts = FirstLoginPrompts(prompts_for(headless=False))
    lines = _lines(arguments.prompt)
    async with HostConnection(arguments, cast("Prompts", prompts)) as host:
        while True:
            code, following = await _one_session(arguments, prompts, lines, host)
            if following is None:
                return code
            arguments = following


async def _one_session(
    arguments: Arguments, prompts: FirstLoginPrompts, lines: AsyncIterator[str], host: HostConnection
) -> tuple[int, Arguments | None]:
    """Connect, and show a session. Return the exit code, and the arguments for the session that comes next."""
    async with (
        connect_session(host, arguments, choose=lambda _, rows: choose_session(rows)) as connected,
        Transfers(connected.files.lend) as transfers,
        FetchedFiles(transfers, PrivateFolder(state_dir() / "opened"), connected.open_with) as fetched,
    ):
        prompts.over()
        hello = connected.session.hello
        info = session_api.info_of(connected)
        laptop = session_api.laptop_of(connected, transfers, fetched)
        repl = LineRepl(connected.session, info, _write, laptop, prompts.lent)
        _write(f"ccb {__version__}, {info.place}. Type a prompt; /help says more.")
        for warning in connected.warnings:
            _write(f"ccb: warning: {warning}")
        code = await _until_left(repl, lines, waits=not sys.stdin.isatty())
        following = repl.following
        stays = f"ccb: this session stays on the host: {connected.resume}"
        if not repl.moves_to:
            _write(*(repl.farewell() if following is None else [stays]))
        await connected.session.close(done=True)
    if repl.moves_to:
        await move_along(connected.arguments, hello.session, repl.moves_to, os.environ)
    if following is None:
        return code, None
    return code, session_api.arguments_for(following, connected.arguments, hello.cwd.raw)


async def _until_left(repl: LineRepl, lines: AsyncIterator[str], *, waits: bool) -> int:
    running = asyncio.create_task(repl.run(lines, waits=waits), name="lines")
    try:
        while True:
            with Interrupts() as signals:
                waited: tuple[asyncio.Future[Any], ...] = (running, signals.first)
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    lost = running.result()
                    return lost.exit_code if lost is not None else ExitCode.OK
                code = signals.first.result()
                if code is not ExitCode.INTERRUPTED or not await repl.interrupted():
                    return int(code)
    finally:
        await cancelled(running)


async def _lines(first: str | None) -> AsyncIterator[str]:
    if first:
        yield first
    decoder, rest, by_hand = codecs.getincrementaldecoder("utf-8")("replace"), "", sys.stdin.isatty()
    async for piece in read_pieces(sys.stdin.fileno()):
        *whole, rest = (rest + decoder.decode(piece)).split("\n")
        for line in whole:
            yield typed_line(line.rstrip("\r")) if by_hand else line.rstrip("\r")
        rest = rest[:_MAX_LINE]
    if rest.strip():
        yield rest


def _write(*lines: str) -> None:
    with suppress(OSError):  # the window may be closed
        print_line(*lines)
