"""The messages on stdin, read from the start of a run on.

Official clients wait 60 s for the answer to their first request, and a login with a deployment may take longer. If the
session is not there in time, the request is answered here; the session still gets it, and its own answer is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from ccb.tunnel.wire.options import CLAUDE_CODE_VERSION
from ccb.tunnel.wire.requests import Success, public_answer

from .stdin import read_messages

if TYPE_CHECKING:
    from ...session.client import Json

EARLY_ANSWER_S = 20.0
"""Seconds that the first request of a client waits for the session."""

_MAX_AHEAD = 16  # messages that are read before the session is there


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
        self._connected = asyncio.Event()
        self._answered: set[str] = set()
        self._first: Json | Exception | None = None
        self.confirmed: Json = {}
        """Fields that an answer given here has besides."""

    async def __aenter__(self) -> EarlyInput:
        self._tasks.append(asyncio.create_task(self._read(), name="stdin"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def connected(self) -> None:
        """The session is there: it answers from now on."""
        self._connected.set()

    def answered_early(self, request_id: str) -> bool:
        """Return whether a request was answered here, so that the session's answer is not to be shown."""
        return request_id in self._answered

    async def first_request(self) -> Json:
        """Return the first request of the client once it has come, without taking it; {} if it does not begin with
        one."""
        self._first = await self._messages.get()
        request = self._first.get("request") if isinstance(self._first, dict) else None
        return request if isinstance(request, dict) else {}

    async def messages(self) -> AsyncIterator[Json]:
        """Yield the messages up to the end of stdin. Raises BadInput."""
        while (item := self._first or await self._messages.get()) is not None:
            self._first = None
            if isinstance(item, Exception):
                raise item
            yield item

    async def _read(self) -> None:
        try:
            async for body in read_messages(self._stdin):
                if not self._connected.is_set() and _subtype(body) == "initialize":
                    answering = self._answer_early(str(body.get("request_id")))
                    self._tasks.append(asyncio.create_task(answering, name="early answer"))
                await self._messages.put(body)
        except Exception as error:  # noqa: BLE001 - raised where the messages are read
            await self._messages.put(error)
        await self._messages.put(None)

    async def _answer_early(self, request_id: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._connected.wait()
        except TimeoutError:
            self._answered.add(request_id)
            await self._answer(public_answer(Success(request_id, {**early_description(), **self.confirmed})))


def _subtype(body: Json) -> object:
    request = body.get("request")
    return request.get("subtype") if body["type"] == "control_request" and isinstance(request, dict) else None


def early_description() -> Json:
    """Return what is known of a session before it is there."""
    return {
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
