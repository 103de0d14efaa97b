"""Read the stdin of a headless run. Clients wait 60 s for their first answer; a slow login gets it given here."""

from __future__ import annotations

import asyncio
import stat
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from os import fstat
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import Success, public_answer
from ccb.tunnel.wire.frames import FrameError, Json
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, UserMessage, as_blocks, as_dict, parse_message
from ccb.tunnel.wire.ndjson import MAX_DEPTH, LineSplitter, is_too_deep, load
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION, LAPTOP_COMMANDS

from ..terminal.stdio import read_pieces
from .output_formats import report
from .own_answers import END

if TYPE_CHECKING:
    from .event_printer import EventPrinter

EARLY_ANSWER_S = 20.0  # seconds that the first request of a client waits for the session
_MAX_AHEAD = 16  # messages that are read before the session is there
_KNOWN_EARLY: Json = {  # what is known of a session before it is there
    "commands": [],
    "agents": [],
    "output_style": "default",
    "available_output_styles": ["default"],
    "models": [{"value": "default", "displayName": "Default", "description": ""}],
    "account": {},
    "claude_code_version": CLAUDE_CODE_VERSION,
    "session_state": "idle",
    "capabilities": ["interrupt_receipt_v1"],
    "hook_on_failure_supported": True,  # without this word an SDK whose hooks must decide ends the session
}
MAX_TEXT = 16 * 1024 * 1024  # the most bytes of piped text in a prompt
MAX_INPUT_LINE = 24 * 1024 * 1024  # the longest NDJSON line on stdin, in bytes. It may carry images and documents.
SILENCE_S = 3.0  # seconds to wait for the first byte of a pipe. If there is a prompt, a silent pipe is ignored then.
_FORWARDED = ("user", "control_request", "control_response", "control_cancel_request")
_NO_INPUT_HINT = "use </dev/null if there is no input"


class EarlyInput:
    """Use it as a context, in which stdin is read. `answer` prints an answer for the client."""

    def __init__(
        self, stdin: int, answer: Callable[[Json], Awaitable[None]], *, patience_s: float = EARLY_ANSWER_S
    ) -> None:
        self._stdin = stdin
        self._answer = answer
        self._patience_s = patience_s
        self._messages: asyncio.Queue[Json | Exception | None] = asyncio.Queue(_MAX_AHEAD)
        self._tasks: list[asyncio.Task[None]] = []
        self.connected = asyncio.Event()
        self.answered: set[str] = set()  # the requests that were answered here, by their ids
        self._first: Json | Exception | None = None
        self.confirmed: Json = {}  # fields that an answer given here has besides

    async def __aenter__(self) -> EarlyInput:
        self._tasks.append(asyncio.create_task(self._read(), name="stdin"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancelled(*self._tasks)

    async def first_request(self) -> Json:
        """Return the first request of the client, without taking it; {} if it does not begin with one."""
        self._first = await self._messages.get()
        request = self._first.get("request") if isinstance(self._first, dict) else None
        return request if isinstance(request, dict) else {}

    async def messages(self) -> AsyncIterator[Json]:
        while (item := self._first or await self._messages.get()) is not None:
            self._first = None
            if isinstance(item, Exception):
                raise item
            yield item

    async def _read(self) -> None:
        try:
            async for body in read_messages(self._stdin):
                request = body.get("request") if body["type"] == "control_request" else None
                if request and request.get("subtype") == "initialize" and not self.connected.is_set():
                    answering = self._answer_early(str(body.get("request_id")))
                    self._tasks.append(asyncio.create_task(answering, name="early answer"))
                await self._messages.put(body)
        except Exception as error:  # noqa: BLE001 - raised where the messages are read
            await self._messages.put(error)
        await self._messages.put(None)

    async def _answer_early(self, request_id: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self.connected.wait()
        except TimeoutError:
            self.answered.add(request_id)
            await self._answer(public_answer(Success(request_id, {**_KNOWN_EARLY, **self.confirmed})))


class BadInput(CcbError):
    """A line on stdin is not a message that a client may send. The exit code is 1, as in the reference."""

    exit_name = "AGENT_FAILED"
    way_out = "Write one message of the stream-json protocol in each line."


def is_piped(fd: int) -> bool:
    try:
        mode = fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


async def read_prompt(prompt: str | None, fd: int, *, say: Callable[[str], None]) -> str:
    """Return the prompt of the command line, followed by the piped text. Raises UsageError if there is neither."""
    piped = await _read_text(fd, say, needed=not (prompt or "").strip()) if is_piped(fd) else ""
    parts = [part for part in (prompt or "", piped) if part.strip()]
    if not parts:
        raise UsageError(
            "Error: Input must be provided either through stdin or as a prompt argument when using --print",
            do='Write the prompt behind the host: ccb ssh host:/path -p "what to do"',
        )
    return "\n\n".join(parts) if len(parts) > 1 else parts[0]


async def _read_text(fd: int, say: Callable[[str], None], *, needed: bool) -> str:
    loop = asyncio.get_running_loop()
    found = bytearray()
    pieces = read_pieces(fd)
    first = asyncio.ensure_future(anext(pieces, b""))
    waiting = f"waiting for the end of standard input (a pipe is open; {_NO_INPUT_HINT})"
    notice = loop.call_later(SILENCE_S, say, waiting) if needed else None
    try:
        if not needed and not (await asyncio.wait({first}, timeout=SILENCE_S))[0]:
            say(f"nothing came on standard input within {SILENCE_S:g} s, going on without it ({_NO_INPUT_HINT})")
            return ""
        found += await first
        notice = notice or loop.call_later(SILENCE_S, say, waiting)
        async for piece in pieces:
            found += piece
            if len(found) > MAX_TEXT:
                do = "Put the data into a file on the host and name it in the prompt."
                raise UsageError(f"more than {MAX_TEXT // 1024 // 1024} MB were piped in", do=do)
    finally:
        first.cancel()
        if notice is not None:
            notice.cancel()
    text = found.decode("utf-8", "replace")
    if b"\0" in found or "\ufffd" in text:
        say("standard input is not UTF-8 text; what cannot be read was replaced in the prompt")
    return text.rstrip("\n")


async def read_messages(fd: int) -> AsyncIterator[Json]:
    """Yield the messages on `fd` for the session, without those that the protocol ignores. Raises BadInput."""
    lines = LineSplitter(MAX_INPUT_LINE)
    async for piece in read_pieces(fd):
        try:
            for line in lines.feed(piece):
                body = _message(line)
                if body is not None:
                    yield body
        except FrameError as error:
            raise BadInput(f"Error: a line on stdin is too long: {error.reason}") from None
    body = _message(lines.rest())
    if body is not None:
        yield body


def _message(line: bytes) -> Json | None:
    if not line.strip():
        return None
    try:
        body = load(line.decode("utf-8-sig"))  # a file may begin with a byte order mark
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"Error parsing streaming input line ({len(line)} bytes): {type(error).__name__}",
            evidence=neutralise(f"{error}\n{line[:80].decode('utf-8', 'replace')}"),
        ) from None
    if is_too_deep(body):
        raise BadInput(f"Error: a line on stdin has more than {MAX_DEPTH} levels of objects and lists")
    if not isinstance(body, dict) or body.get("type") not in _FORWARDED:
        return None
    if body["type"] == "user":
        role = as_dict(body.get("message")).get("role")
        if role != "user":
            raise BadInput(f"Error: Expected message role 'user', got {neutralise(repr(role))[:40]}")
    elif body["type"] == "control_request" and not isinstance(body.get("request"), dict):
        raise BadInput("Error: Missing request on control_request")
    return body


Keep = Callable[[Sequence[Json]], Awaitable[None]]
"""Keeps the permission updates of an answer that are not for the session only."""
RunCommand = Callable[[str], Awaitable[str | None]]
"""Carries out the slash command of this machine that a prompt is, and returns its text; None for any other prompt."""


@dataclass(eq=False)
class InputPump:
    """Sends the input of one run. A slash command of this machine gets its result here, in its turn."""

    _printer: EventPrinter
    _keep: Keep
    _run_command: RunCommand
    _held: deque[UserMessage] = field(default_factory=deque)
    _sending_held: asyncio.Task[None] | None = None

    async def send_prompt(self, prompt: str) -> bool:
        """Send the only prompt of the run. Return whether it went to the worker."""
        printer = self._printer
        text = await self._run_command(prompt) if _names_command(prompt) else None
        if text is None:
            printer.results.pending.sent(await printer.session.remote.prompt(prompt))
        else:
            await printer.results.of_command(text)
        await printer.questions.input_ended()
        return text is None

    async def send_messages(self, messages: AsyncIterator[Json]) -> None:
        try:
            await self._send_messages(messages)
        finally:
            await cancelled(self._sending_held)

    async def _send_user(self, message: UserMessage) -> None:
        await self._printer.sent(await self._printer.session.remote.send(message.body), message)

    async def _send_held(self) -> None:
        results = self._printer.results
        while self._held:
            message, text = self._held[0], None
            if _may_be_command(message):
                await results.settled()
                text = await self._run_command(message.text(""))
            if text is None:
                await self._send_user(message)
            else:
                await results.of_command(text, message.uuid)
            self._held.popleft()
        results.commands_wait = False

    async def _send_messages(self, messages: AsyncIterator[Json]) -> None:
        printer = self._printer
        async for body in messages:
            message = parse_message(body)
            if isinstance(message, UserMessage):
                if not self._held and not _may_be_command(message):
                    await self._send_user(message)
                    continue
                self._held.append(message)
                if len(self._held) == 1:
                    printer.results.commands_wait = True
                    self._sending_held = asyncio.create_task(self._send_held(), name="held prompts")
                continue
            if isinstance(message, ControlRequest):
                answer = printer.own.payload(message)
                if answer is not None:
                    await printer.results.output.message(public_answer(Success(message.request_id, answer)))
                    if message.subtype == END:
                        break
                    continue
            if isinstance(message, ControlResponse):
                await self._keep_updates(message.request_id, body)
                await printer.questions.closed(message.request_id)
            await printer.session.remote.send(body)
        await printer.questions.input_ended()
        if self._sending_held is not None:
            await self._sending_held

    async def _keep_updates(self, request_id: str, body: Json) -> None:
        answer = as_dict(as_dict(body.get("response")).get("response"))
        updates = as_blocks(answer.get("updatedPermissions"))
        if not updates or not self._printer.questions.asks_person(request_id):
            return
        try:
            await self._keep(updates)
        except CcbError as error:
            report(f"the permission updates are not kept: {error.what}")


def _may_be_command(message: UserMessage) -> bool:
    return len(message.blocks) == 1 and _names_command(str(message.blocks[0].get("text")))


def _names_command(prompt: str) -> bool:
    word = prompt.split(maxsplit=1)[0] if prompt.strip() else ""
    return word.startswith("/") and word[1:] in LAPTOP_COMMANDS.split()
