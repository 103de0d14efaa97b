"""stdin of a headless run: part of the prompt, or NDJSON messages for the session."""

from __future__ import annotations

import asyncio
import json
import math
import stat
from collections.abc import AsyncIterator, Callable
from os import fstat

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import FrameError, LineSplitter

from ..session.client import Json
from ..terminal.stdio import read_pieces

MAX_TEXT = 16 * 1024 * 1024
"""Most bytes of piped text in a prompt."""

MAX_INPUT_LINE = 48 * 1024 * 1024
"""Longest NDJSON line on stdin; images and documents travel in it."""

SILENCE = 3.0
"""Seconds without a byte, after which a pipe that somebody left open is not waited for when there is a prompt."""

_FORWARDED = ("user", "control_request", "control_response", "control_cancel_request")


class BadInput(CcbError):
    """A line on stdin that no client may send. Ends the run with exit code 1, as the reference does."""

    exit_name = "AGENT_FAILED"
    way_out = "Write one message of the stream-json protocol in each line."


def is_piped(fd: int) -> bool:
    """Whether something other than a terminal or a device is at `fd`."""
    try:
        mode = fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


async def read_prompt(prompt: str | None, fd: int, *, say: Callable[[str], None]) -> str:
    """The prompt of the command line, then what is piped in. A pipe from which nothing comes is left alone when there is a
    prompt; what is unusual about the input is said.

    Raises UsageError when there is neither.
    """
    piped = await _read_text(fd, say, needed=not (prompt or "").strip()) if is_piped(fd) else ""
    parts = [part for part in (prompt or "", piped) if part.strip()]
    if not parts:
        raise UsageError(
            "Error: Input must be provided either through stdin or as a prompt argument when using --print",
            do='Write the prompt behind the host: ccb ssh host:/path -p "what to do"',
        )
    return "\n\n".join(parts) if len(parts) > 1 else parts[0]


_NONE_MEANT = "</dev/null if none is meant"


async def _read_text(fd: int, say: Callable[[str], None], *, needed: bool) -> str:
    loop = asyncio.get_running_loop()
    found = bytearray()
    pieces = read_pieces(fd)
    first = asyncio.create_task(_next(pieces), name="first of stdin")
    waiting = f"waiting for the end of standard input (a pipe is open; {_NONE_MEANT})"
    notice = loop.call_later(SILENCE, say, waiting) if needed else None
    try:
        if not needed and not (await asyncio.wait({first}, timeout=SILENCE))[0]:
            say(f"nothing came on standard input within {SILENCE:g} s, going on without it ({_NONE_MEANT})")
            return ""
        found += await first
        notice = notice or loop.call_later(SILENCE, say, waiting)
        async for piece in pieces:
            found += piece
            if len(found) > MAX_TEXT:
                raise UsageError(
                    f"more than {MAX_TEXT // 1024 // 1024} MB were piped in",
                    do="Put the data into a file on the host and name it in the prompt.",
                )
    finally:
        first.cancel()
        if notice is not None:
            notice.cancel()
    text = found.decode("utf-8", "replace")
    if b"\0" in found or "\ufffd" in text:
        say("standard input is not UTF-8 text; what cannot be read was replaced in the prompt")
    return text.rstrip("\n")


async def _next(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


async def read_messages(fd: int) -> AsyncIterator[Json]:
    """The messages on stdin that go to the session; what the protocol ignores is dropped. Raises BadInput."""
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


def _finite(number: str) -> float:
    """A number with a fraction or exponent, or NaN and its like: what is not finite has no spelling on the wire."""
    value = float(number)
    if not math.isfinite(value):
        raise BadInput(f"Error: a number on stdin is not finite: {number[:40]}")
    return value


def _message(line: bytes) -> Json | None:
    if not line.strip():
        return None
    try:
        body = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"Error parsing streaming input line ({len(line)} bytes): {type(error).__name__}",
            evidence=neutralise(line[:80].decode("utf-8", "replace")),
        ) from None
    if not isinstance(body, dict) or body.get("type") not in _FORWARDED:
        return None
    if body["type"] == "user":
        message = body.get("message")
        role = message.get("role") if isinstance(message, dict) else None
        if role != "user":
            raise BadInput(f"Error: Expected message role 'user', got {neutralise(repr(role))[:40]}")
    elif body["type"] == "control_request" and not isinstance(body.get("request"), dict):
        raise BadInput("Error: Missing request on control_request")
    return body
