"""JSON-RPC 2.0 in lines, with requests both ways: the transport of the Agent Client Protocol. A handler gets the
parameters as they came, so that nothing in `_meta` can take the place of one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Mapping
from typing import Any, Callable

from .dataclass import dataclass
from .frames import FrameError, Json
from .ndjson import MAX_FRAME, MAX_LINE, LineSplitter, count_values, dump_line, load, to_bytes

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
CANCELLED = -32800
PEER_ENDED = -32099  # only raised here, never sent

CANCEL_REQUEST = "$/cancel_request"
MAX_OPEN = 128  # requests and notifications of the other end that are being handled, and requests of this end
_ORDERED_BY = "sessionId"

Handler = Callable[[Json], Awaitable[Any]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reply:
    """The result of a request, and what its handler does once the other end has the result on its way."""

    result: Json
    then: Callable[[], Awaitable[None]]


class RpcError(Exception):
    """An error that one end answers to a request of the other."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


def _error_of(value: object) -> RpcError:
    error = value if isinstance(value, dict) else {}
    code, message = error.get("code"), error.get("message")
    number = code if isinstance(code, int) and code != PEER_ENDED else INTERNAL_ERROR
    return RpcError(number, message if isinstance(message, str) else "an error without a message", error.get("data"))


class JsonRpcPeer:
    """One end of a connection. `read` gives the next bytes, and b"" at the end; `write` gets whole lines. `outgoing`
    gives each message the form in which the other end gets it, None if it does not, `incoming` its form here.

    What names the same session is handled in order of arrival, one after the other. The handlers of `long` methods
    begin in this order, too, up to where they first wait; then the next one need not wait for their end. A handler
    that is cancelled belongs to a cancelled request, or the other end is gone: `has_ended` tells."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[bytes], Awaitable[None]],
        *,
        long: Collection[str] = (),
        line_limit: int = MAX_FRAME,
        incoming: Callable[[Json], Json] = lambda message: message,
        outgoing: Callable[[Json], Json | None] = lambda message: message,
    ) -> None:
        self.has_ended = False
        self._handlers = handlers
        self._long = long
        self._read = read
        self._write = write
        self._incoming, self._outgoing = incoming, outgoing
        self._lines = LineSplitter(line_limit)
        self._writing = asyncio.Lock()
        self._last_id = 0
        self._asked: dict[object, asyncio.Future[Any]] = {}  # requests of this end, by id
        self._open: dict[object, asyncio.Task[None]] = {}  # requests of the other end, by id
        self._tasks: dict[asyncio.Task[None], str | None] = {}  # with the session whose next call waits for it

    async def serve(self) -> None:
        """Handle messages until the other end closes its side. Raise FrameError for a line over the limit."""
        try:
            while data := await self._read():
                for line in self._lines.feed(data):
                    if line.strip():
                        await self._take(line)
        except FrameError as error:
            await self._refuse(None, RpcError(PARSE_ERROR, str(error)))
            raise
        finally:
            self.has_ended = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(RpcError(PEER_ENDED, "the other end has closed the connection"))
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def request(self, method: str, params: Json) -> Any:
        """Return the result. Raise RpcError. Cancelled, it tells the other end so and does not wait any more."""
        if self.has_ended:
            raise RpcError(PEER_ENDED, "the other end has closed the connection")
        if len(self._asked) >= MAX_OPEN:
            raise RpcError(INTERNAL_ERROR, f"{MAX_OPEN} requests wait for their answers already")
        self._last_id += 1
        number = self._last_id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await answer
        except asyncio.CancelledError:
            if not self.has_ended:
                await self.notify(CANCEL_REQUEST, {"requestId": number})
            raise
        finally:
            del self._asked[number]

    async def notify(self, method: str, params: Json) -> None:
        await self._send({"method": method, "params": params})

    async def _send(self, message: Json) -> None:
        formed = self._outgoing({"jsonrpc": "2.0", **message})
        if formed is None:
            return
        try:
            async with self._writing:
                await self._write(to_bytes(dump_line(formed)) + b"\n")
        except OSError as error:
            raise RpcError(PEER_ENDED, f"the other end does not read any more ({error})") from None

    async def _refuse(self, number: object, error: RpcError) -> None:
        with contextlib.suppress(RpcError):  # the other end is gone, which ends the reading, too
            await self._send({"id": number, "error": error.as_json()})

    async def _take(self, line: bytes) -> None:
        number: str | int | None = None
        try:
            message = self._incoming(_parsed(line))
            method, given = message.get("method"), message.get("id")
            if given is not None and not isinstance(given, (str, int)):
                raise RpcError(INVALID_REQUEST, "the id of a message is neither text nor a number")
            if not isinstance(method, str):
                self._take_answer(given, message)
            elif given is None:
                await self._take_notification(method, message.get("params", {}))
            else:
                number = given
                await self._take_request(method, message.get("params", {}), number)
        except RpcError as error:
            await self._refuse(number, error)

    def _take_answer(self, number: object, message: Json) -> None:
        if "id" not in message or not ("result" in message or "error" in message):
            raise RpcError(INVALID_REQUEST, "a message has neither a method nor a result")
        answer = self._asked.get(number)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(_error_of(message["error"]))
        else:
            answer.set_result(message["result"])

    async def _take_notification(self, method: str, params: object) -> None:
        if not isinstance(params, dict):
            return
        if method == CANCEL_REQUEST:
            number = params.get("requestId")
            if isinstance(number, (str, int)) and number in self._open:
                self._open[number].cancel()
        elif method in self._handlers:
            while len(self._tasks) >= MAX_OPEN:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._start(method, params)

    async def _take_request(self, method: str, params: object, number: str | int) -> None:
        """Raise RpcError for one that is not handled."""
        if method not in self._handlers:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method[:100]}")
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "the parameters are no object")
        if number in self._open or len(self._open) >= MAX_OPEN:
            raise RpcError(INVALID_REQUEST, f"the id is in use, or {MAX_OPEN} requests are being handled already")
        await self._start(method, params, number)

    async def _start(self, method: str, params: Json, number: str | int | None = None) -> None:
        named = params.get(_ORDERED_BY)
        session = named if isinstance(named, str) else None
        before = [task for task, of in self._tasks.items() if session is not None and of == session and not task.done()]
        task = asyncio.ensure_future(self._handle(before[-1:], number, method, params))
        self._tasks[task] = None if method in self._long else session
        task.add_done_callback(self._tasks.pop)
        if number is not None:
            self._open[number] = task
        await asyncio.sleep(0)  # it begins before the next message, and a cancel finds it begun

    async def _handle(
        self, before: list[asyncio.Task[None]], number: str | int | None, method: str, params: Json
    ) -> None:
        then: Callable[[], Awaitable[None]] | None = None
        try:
            if before:  # else it begins at once, before the next message
                await asyncio.wait(before)
            result: object = await self._handlers[method](params)
            if isinstance(result, Reply):
                then, result = result.then, result.result
            reply: Json = {"result": {} if result is None else result}
        except asyncio.CancelledError:
            if self.has_ended:
                raise
            reply = {"error": RpcError(CANCELLED, "the request was cancelled").as_json()}
        except RpcError as error:
            reply = {"error": error.as_json()}
        except Exception as error:
            log.exception("%s failed", method)
            reply = {"error": RpcError(INTERNAL_ERROR, f"{type(error).__name__}: {error}").as_json()}
        finally:
            self._open.pop(number, None)
        if number is None:
            if "error" in reply:
                log.warning("%s: %s", method, reply["error"]["message"])
            return
        with contextlib.suppress(RpcError):  # the other end is gone, which ends the reading, too
            await self._send({"id": number, **reply})
            if then is not None:
                await then()


def _parsed(line: bytes) -> Json:
    try:
        text = line.decode("utf-8")
        if len(line) > MAX_LINE:
            count_values(text)
        message = load(text)
    except (ValueError, RecursionError, FrameError) as error:
        raise RpcError(PARSE_ERROR, f"a line is not JSON ({error})") from None
    if not isinstance(message, dict):
        raise RpcError(INVALID_REQUEST, "a message is no object")
    return message
