"""What an MCP server says of its own accord: notifications, and forms for the person."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Callable

from .client import McpError

Json = dict[str, Any]
Ask = Callable[[Json], Awaitable[Json]]

_OFFERS: Json = {"elicitation": {"form": {}, "url": {}}}
_MAX_ASKED = 8  # forms of one server at the same time


def offering(hello: Json, ask: Ask | None) -> Json:
    """Return a handshake that says what the server may ask."""
    return {**hello, "params": {**hello["params"], "capabilities": _OFFERS if ask is not None else {}}}


class Incoming:
    """`heard` gets notifications, `ask` puts a form to the person and returns the answer, `send` sends a message to the
    server. It raises McpError if it cannot."""

    def __init__(self, heard: Callable[[Json], None], ask: Ask | None, send: Callable[[Json], None]) -> None:
        self._heard = heard
        self._ask = ask
        self._send = send
        self._asking: dict[str, asyncio.Task[None]] = {}  # forms before the person, by the server's ids

    @property
    def asking(self) -> bool:
        """Whether a form is before the person."""
        return bool(self._asking)

    def hear(self, message: Json) -> None:
        """Take a notification or a request of the server."""
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if number is None:
            if method == "notifications/cancelled" and isinstance(params, dict):
                asking = self._asking.get(str(params.get("requestId")))
                if asking is not None:
                    asking.cancel()
            self._heard(message)
        elif method == "elicitation/create" and self._ask is not None and len(self._asking) < _MAX_ASKED:
            work = self._put(self._ask, number, params if isinstance(params, dict) else {})
            task = self._asking[str(number)] = asyncio.ensure_future(work)
            task.add_done_callback(lambda _: self._asking.pop(str(number), None))
        else:
            answer: Json = {"result": {}}
            if method != "ping":
                answer = {"error": {"code": -32601, "message": "ccb does not offer this"}}
            self._answer({"id": number, **answer})

    def end(self) -> None:
        """Take the forms back."""
        for asking in self._asking.values():
            asking.cancel()

    async def _put(self, ask: Ask, number: object, params: Json) -> None:
        self._answer({"id": number, "result": await ask(params)})

    def _answer(self, message: Json) -> None:
        with contextlib.suppress(McpError):
            self._send(message)
