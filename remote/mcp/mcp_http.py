"""An MCP server that this host reaches over Streamable HTTP: each message is a POST, answered in JSON or by events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import field
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import CALL_S, WANTS_LOGIN, Unreadable, answered_number, read_messages
from ccb.tunnel.wire.messages import as_dict
from ccb.tunnel.wire.web_fetch import WebPlace, WebRefused, proxy_for, read_url, tunnel

from ..model.answer_stream import SseParser
from ..model.retry import ModelError
from ..system.deadline import within
from .mcp_client import FORMS, UNKNOWN, Ask, Incoming, Json, McpChannel, McpError
from .mcp_stdio import MAX_MESSAGE, START_S

_MAX_HEAD = 65536
_BLOCK = 65536
_GRACE_S = 2.0  # for what is sent without waiting for it
_MAX_WAIT_S = 30.0  # between two tries to listen
_EVENTS = "text/event-stream"
_TOO_LONG = f"it has sent a message of more than {MAX_MESSAGE >> 20} MiB"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is, and the headers of each request to it. `call_s` is the limit of its calls."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    call_s: float = CALL_S


class HttpChannel(McpChannel):
    """Sends each message once, on a connection of its own. A server that has forgotten the session is greeted again.
    `hear` gets what the server says of its own accord, `ask` puts a form of the server to the person and returns the
    answer. A message has at most MAX_MESSAGE bytes."""

    transport = "http"
    may_come_back = True
    offers = FORMS

    def __init__(self, name: str, address: ServerAddress, hear: Callable[[Json], None], ask: Ask) -> None:
        self._name = name
        self._address = self.reaches = address
        self.call_s = address.call_s
        self._heard = hear
        self._incoming = Incoming(hear, ask, lambda message: self._later(self._post(message)))
        self._hello: Json = {}
        self._session = self._protocol = ""
        self._greeting = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def exchange(self, message: Json) -> Json:
        method = message.get("method")
        if method == "initialize":
            self._hello, self._session, self._protocol = message, "", ""
            return await self._post(message)
        if not self._hello:
            raise McpError("it is not connected")
        session = self._session
        try:
            reply = await self._post(message)
        except McpError as error:
            if error.status != 404 or not session:
                raise
            async with self._greeting:
                if self._session == session:  # the server has forgotten it
                    self._session = self._protocol = ""
                    await within(START_S, self._post({**self._hello, "id": 0}))
                    await self._post({"method": "notifications/initialized"})
                    self._listen()
                    self._heard({"method": "notifications/tools/list_changed"})
            reply = await self._post(message)
        if method == "notifications/initialized":
            self._listen()
        return reply

    @property
    def asking(self) -> bool:
        return self._incoming.asking

    async def close(self) -> None:
        session, self._hello = self._session, {}
        self._incoming.end()
        tasks = [*self._tasks, *filter(None, [self._listening])]
        for task in tasks:
            task.cancel()
        if session:
            with contextlib.suppress(McpError, asyncio.TimeoutError):
                await within(_GRACE_S, self._end_session())
        self._session = ""
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.ensure_future(self._hear_all())

    async def _hear_all(self) -> None:
        wait = 1.0
        while True:
            try:
                async with self._request("GET") as (headers, body):
                    async for message in _messages(headers, body):
                        wait = 1.0
                        if "method" in message:
                            self._incoming.hear(message)
            except McpError as error:
                if error.status:
                    return
                log.info("the MCP server %s is not heard: %s", self._name, error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, _MAX_WAIT_S)

    async def _post(self, message: Json) -> Json:
        number = message.get("id") if "method" in message else None
        sent = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode("utf-8", "replace")
        try:
            async with self._request("POST", sent) as (headers, body):
                if number is None:
                    return {}
                is_hello = message["method"] == "initialize"
                if is_hello:
                    self._session = headers.get("mcp-session-id", "")
                async for found in _messages(headers, body):
                    if "method" in found:
                        self._incoming.hear(found)
                    elif answered_number(found, (number,)) is not None:
                        agreed = str(as_dict(found.get("result")).get("protocolVersion"))
                        if is_hello and re.fullmatch(r"[\w.-]{1,40}", agreed):
                            self._protocol = agreed
                        return found
                raise McpError("the connection ended before the answer came" + UNKNOWN)
        except asyncio.CancelledError:
            if number is not None and self._hello:
                self._later(self._post({"method": "notifications/cancelled", "params": {"requestId": number}}))
            raise

    async def _end_session(self) -> None:
        async with self._request("DELETE"):
            pass

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        async def sent() -> None:
            with contextlib.suppress(McpError, asyncio.TimeoutError):
                await within(_GRACE_S, work)

        task = asyncio.ensure_future(sent())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, body: bytes = b""
    ) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[bytes]]]:
        writer: asyncio.StreamWriter | None = None
        try:
            place = read_url(self._address.url)
            reader, out = await within(START_S, _connected(place))
            writer = out
            out.write(self._head(method, place, len(body)) + body)
            await out.drain()
            status, headers = await _read_head(reader)
            if not 200 <= status < 300:
                raise McpError(self._why(status), status)
            yield headers, _body(reader, headers)
        except asyncio.TimeoutError:
            raise McpError(f"no connection within {START_S:g} s") from None
        except (OSError, EOFError, ValueError, WebRefused, asyncio.LimitOverrunError) as error:
            raise McpError(f"it cannot be reached: {getattr(error, 'strerror', None) or error}") from None
        finally:
            if writer is not None:
                writer.close()

    def _head(self, method: str, place: WebPlace, length: int) -> bytes:
        host = place.url[len(place.scheme) + 3 :].partition("/")[0]
        headers = {
            "Host": host,
            "User-Agent": "ccb",
            "Accept": _EVENTS if method == "GET" else f"application/json, {_EVENTS}",
            "Content-Type": "application/json",
            "Content-Length": str(length),
            "Connection": "close",
            **({"MCP-Protocol-Version": self._protocol} if self._protocol else {}),
            **({"Mcp-Session-Id": self._session} if self._session else {}),
            **self._address.headers,
        }
        lines = [f"{method} {place.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _why(self, status: int) -> str:
        if status == 401:
            where = self._address.url.partition("?")[0]
            return (
                f"it {WANTS_LOGIN} (HTTP 401), and logins stay on your machine. Add it to your own servers there: "
                f"ccb mcp add {self._name} {where}, then ccb mcp login {self._name}"
            )
        return f"it answers with HTTP {status}"


async def _connected(place: WebPlace) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = None
    if place.scheme == "https":
        import ssl

        context = ssl.create_default_context()
    name = place.host if context is not None else None
    proxy = proxy_for(place)
    if proxy is None:
        return await asyncio.open_connection(place.host, place.port, ssl=context, limit=_MAX_HEAD)
    made = asyncio.get_running_loop().run_in_executor(None, tunnel, proxy, place.host, place.port, START_S)
    return await asyncio.open_connection(sock=await made, ssl=context, server_hostname=name, limit=_MAX_HEAD)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1."):
        raise ValueError("it does not speak HTTP/1.1")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    left = int(headers.get("content-length", -1))
    while True:
        if chunked:
            left = int((await reader.readline()).split(b";")[0], 16)
        if left == 0:
            return
        while left:
            block = await reader.read(_BLOCK if left < 0 else min(left, _BLOCK))
            if not block and left > 0:
                raise EOFError("the connection was lost")
            if not block:
                return
            left -= len(block) if left > 0 else 0
            yield block
        if not chunked:
            return
        await reader.readline()


async def _messages(headers: Mapping[str, str], body: AsyncIterator[bytes]) -> AsyncIterator[Json]:
    if headers.get("content-type", "").lower().startswith(_EVENTS):
        parser = SseParser(MAX_MESSAGE)
        async for block in body:
            try:
                events = parser.feed(block)
            except ModelError:
                raise McpError(_TOO_LONG) from None
            for event in events:
                for message in _read(event.data.encode()):
                    yield message
        return
    whole = bytearray()
    async for block in body:
        whole += block
        if len(whole) > MAX_MESSAGE:
            raise McpError(_TOO_LONG)
    for message in _read(bytes(whole)):
        yield message


def _read(text: bytes) -> list[Json]:
    found = read_messages(text) if text.strip() else []
    if isinstance(found, Unreadable):
        raise McpError(found.why + UNKNOWN)
    return found
