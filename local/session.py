"""One attached session over a link: what the REPL and headless runs stand on.

One task reads the link. It answers waiting control requests itself and puts everything else into one bounded queue, so a
slow reader of `events` slows the host down instead of growing memory. The link is replaced without the readers noticing
more than `LinkChange`s.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from typing import Any, Self

from ccb.tunnel.errors import CcbError, ConnectionLost, UsageError
from ccb.tunnel.link import Link
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import Applied, Bye, Detach, Event, Fenced, FrameError, Hello, Input, Progress, Stop

from .client import ControlError, Json, LinkChange, LinkState, Received

log = logging.getLogger(__name__)

CONTROL_TIMEOUT = 60.0
"""Seconds a control request waits for its answer; what the official clients use."""

QUEUE = 256
"""Most received things that wait for the reader of `events`."""

_LEAVE = 2.0


class Session:
    """Drives the session behind `link`, which has attached already and is owned by the caller. Use as a context."""

    def __init__(self, link: Link, hello: Hello) -> None:
        self._link = link
        self._hello = hello
        self._state = LinkState.CONNECTED
        self._queue: asyncio.Queue[Received | LinkChange | None] = asyncio.Queue(QUEUE)
        self._waiting: dict[str, asyncio.Future[Json]] = {}
        self._failure: CcbError | None = None
        self._ended = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = asyncio.create_task(self._read(), name="session reader")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._fail_waiting("the session was left")

    @property
    def hello(self) -> Hello:
        return self._hello

    @property
    def state(self) -> LinkState:
        return self._state

    async def events(self) -> AsyncIterator[Received | LinkChange]:
        """Everything that was not read yet, then everything from here on; one reader at a time."""
        while True:
            if self._ended.is_set() and self._queue.empty():
                break
            item = await self._queue.get()
            if item is not None:
                yield item
        if self._failure is not None:
            raise self._failure

    async def prompt(self, content: str | list[Json], *, uuid: str | None = None) -> str:
        identity = uuid or _new_id()
        await self.send(
            {
                "type": "user",
                "message": {"role": "user", "content": content},
                "parent_tool_use_id": None,
                "session_id": self._hello.session,
                "uuid": identity,
            }
        )
        return identity

    async def send(self, body: Json) -> str:
        """Send a raw public object; the id under which the journal has it."""
        if self._failure is not None:
            raise self._failure
        input_id = _input_id(body)
        try:
            await self._link.send(Input(self._link.epoch, input_id, body))
        except FrameError as error:
            raise UsageError("the message is too large to be sent", evidence=error.reason, do="Send less.") from None
        return input_id

    async def control(self, subtype: str, **fields: Any) -> Json:
        request_id = _new_id()
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            await self.send(
                {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
            )
            async with asyncio.timeout(CONTROL_TIMEOUT):
                return await answer
        except TimeoutError:
            raise ControlError(f"no answer to {subtype} within {CONTROL_TIMEOUT:g} s") from None
        finally:
            self._waiting.pop(request_id, None)

    async def interrupt(self) -> None:
        await self.control("interrupt")

    async def answer(self, request_id: str, response: Json) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": response}
        await self.send({"type": "control_response", "response": body})

    async def refuse(self, request_id: str, error: str) -> None:
        """Answer a control request of the worker with an error: nobody decides it."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        await self.send({"type": "control_response", "response": body})

    async def stop(self, *, finish: bool = False) -> None:
        """Ask the host to end the session; `events` ends when it has."""
        if not self._ended.is_set():
            await self._link.send(Stop(self._link.epoch, finish))

    async def ended(self) -> None:
        """Wait until the session has ended, for whatever reason."""
        await self._ended.wait()

    async def close(self) -> None:
        if not self._ended.is_set():
            try:
                async with asyncio.timeout(_LEAVE):
                    await self._link.send(Detach(self._link.epoch))
                    await self._link.flush()
            except (TimeoutError, ConnectionLost) as error:
                log.info("the host was not told that this client leaves: %s", error)
        self._end(LinkState.CLOSED)

    async def _read(self) -> None:
        try:
            await self._pump()
        except CcbError as error:
            log.warning("the session ended: %s", error)
            self._failure = error
            self._fail_waiting(error.what)
            await self._queue.put(LinkChange(LinkState.LOST, error.what))
            self._end(LinkState.LOST)
        except Exception as error:
            log.exception("reading the session failed")
            self._failure = CcbError("reading the session failed", evidence=type(error).__name__)
            self._end(LinkState.LOST)

    async def _pump(self) -> None:
        async for frame in self._link.frames():
            match frame:
                case Event():
                    if not self._resolve(frame):
                        await self._queue.put(Received(frame.kind, frame.body, frame.seq))
                case Progress():
                    await self._queue.put(Received("progress", frame.body, frame.seq))
                case Fenced():
                    by = neutralise(frame.by) or "another client"
                    self._state = LinkState.FENCED
                    self._failure = ConnectionLost(
                        f"{by} drives this session now", do="Attach again to take it back; the session goes on."
                    )
                    await self._queue.put(LinkChange(LinkState.FENCED, f"{by} drives this session now"))
                    self._end(LinkState.FENCED)
                    return
                case Bye():
                    reason = neutralise(frame.reason)
                    await self._queue.put(LinkChange(LinkState.CLOSED, reason))
                    self._end(LinkState.CLOSED)
                    return
                case Applied():
                    pass

    def _resolve(self, frame: Event) -> bool:
        """Hand an answer to the control request that waits for it; False when nobody here does."""
        if frame.kind != "message" or frame.body.get("type") != "control_response":
            return False
        response = frame.body.get("response")
        if not isinstance(response, dict):
            return False
        waiting = self._waiting.get(str(response.get("request_id")))
        if waiting is None:
            return False
        if not waiting.done():
            if response.get("subtype") == "success":
                payload = response.get("response")
                waiting.set_result(payload if isinstance(payload, dict) else {})
            else:
                waiting.set_exception(ControlError(neutralise(str(response.get("error", "refused")))))
        return True

    def _end(self, state: LinkState) -> None:
        self._state = state
        self._ended.set()
        self._fail_waiting("the connection ended before the answer")
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes the reader of events

    def _fail_waiting(self, why: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(why))
        self._waiting.clear()


def _new_id() -> str:
    return str(uuid.uuid4())


def _input_id(body: Json) -> str:
    """The id under which an input is applied once: what the public object itself is known by."""
    match body:
        case {"type": "user", "uuid": str(identity)} if identity:
            return identity
        case {"type": "control_request", "request_id": str(identity)} if identity:
            return identity
        case {"type": "control_response", "response": {"request_id": str(identity)}} if identity:
            return f"answer:{identity}"
        case {"type": "control_cancel_request", "request_id": str(identity)} if identity:
            return f"cancel:{identity}"
    return _new_id()
