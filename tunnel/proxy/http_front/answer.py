"""Writes the answer to one request of an HTTP client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from http.client import responses
from typing import Protocol

from .request import HttpRequest

_JOINED = 8 * 1024
"""Bytes up to which a piece of an answer is copied to be sent in one go with its frame."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class AnsweredConnection(Protocol):
    """The connection of the request."""

    @property
    def writing_paused(self) -> bool:
        """Whether the client reads too slowly."""

    def answered(self) -> None:
        """Go on with the next request, or end the connection."""

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""


class HttpAnswer:
    """The head goes with the first bytes of the body, if they come in the same step of the loop."""

    def __init__(self, connection: AnsweredConnection, transport: asyncio.Transport, request: HttpRequest) -> None:
        self.closes = request.closes
        self._connection = connection
        self._transport = transport
        self._request = request
        self._without_body = request.method == "HEAD"
        self._chunked = False
        self._head = b""

    @property
    def paused(self) -> bool:
        """Whether the client reads too slowly."""
        return self._connection.writing_paused

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        request = self._request
        self._without_body = self._without_body or status in (204, 304)
        self.closes = self.closes or not request.complete  # what is still to come would be read as a request
        framing: dict[str, str] = {}
        if "content-length" not in headers and not self._without_body:
            self._chunked = not request.old
            framing = {} if request.old else {"transfer-encoding": "chunked"}
            self.closes = self.closes or request.old
        if self.closes:
            framing["connection"] = "close"
        self._head = head_of(status, {**headers, **framing})
        asyncio.get_running_loop().call_soon(self._flush)

    def write(self, piece: bytes) -> None:
        """Send a piece of the body."""
        if self._without_body or not piece:
            return
        head, self._head = self._head, b""
        if not self._chunked:
            self._transport.write(head + piece if head else piece)
        elif len(piece) <= _JOINED:
            self._transport.write(b"%b%x\r\n%b\r\n" % (head, len(piece), piece))
        else:
            self._transport.writelines((b"%b%x\r\n" % (head, len(piece)), piece, b"\r\n"))

    def finish(self) -> None:
        """End the body."""
        head, self._head = self._head, b""
        if self._chunked or head:
            self._transport.write(head + b"0\r\n\r\n" if self._chunked else head)
        asyncio.get_running_loop().call_soon(self._connection.answered)

    def break_off(self) -> None:
        """End the connection so that nobody takes what has come for a whole answer."""
        self._connection.break_off()

    def _flush(self) -> None:
        """Send the head, if it has not gone."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)


class Answering(Protocol):
    """What answers one request."""

    def go_on(self) -> None:
        """Write what there is: the client can take more, or there is news."""

    def give_up(self) -> None:
        """Write no more: the client has left."""


Serve = Callable[[HttpRequest, HttpAnswer], Answering]
"""Begins to answer a request."""


def head_of(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the head of an answer. A header whose value is more than that is left out."""
    lines = [
        f"{name}: {value}\r\n" for name, value in headers.items() if value.isprintable() or not _CONTROL.search(value)
    ]
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\n{''.join(lines)}\r\n".encode("utf-8", "surrogateescape")
