"""The MCP client: JSON-RPC over a channel, and the forms that servers put to the person."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Callable

from ccb.tunnel.wire.control_protocol import Broker, Request, RequestFailed, RequestKind, public_fields
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import ELICITATION as ASK_PERSON
from ccb.tunnel.wire.mcp_messages import LAPTOP_MCP_MESSAGE, TOOL_USE_ID, Elicitation, McpMessage, reason_of, too_long
from ccb.tunnel.wire.messages import as_dict

from ..hooks.hook_runner import HookRunner
from ..hooks.hook_table import ELICITATION, ELICITATION_RESULT
from ..session_store.journal import NotKept

Json = dict[str, Any]
Ask = Callable[[Json], Awaitable[Json]]

PROTOCOL = "2025-11-25"
HANDSHAKE_S = 60.0
"""Seconds for each message of the handshake, and for each page of a list."""
ELSEWHERE_S = 100_000.0
"""Seconds for a call of a server elsewhere: whoever runs it limits its calls, and may ask a person before."""
UNKNOWN = "; whether this had any effect is not known: check that before you try again"
"""What is said of a message that has been sent and gets no answer."""
STARTS_AGAIN = "; the next call starts it again"
"""What is said of a server that has ended."""
_LOOK_S = 1.0  # between two looks whether the person is being asked
_MAX_PAGES = 100
_MAX_LISTED = 1000


class McpError(Exception):
    """A server cannot be reached, refuses, or answers with something that is not MCP. `status`: it said so in HTTP."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class McpChannel:
    """Carries messages to one server: the one that is described by `reaches`. `offers` are the capabilities that the
    server is told. One that `may_come_back` is tried again. `call_s` is the limit of its calls, in seconds."""

    transport = ""  # what clients are told, if the place of the server does not say it
    may_come_back = False
    offers: Mapping[str, Json] = {}
    reaches: object = None
    call_s = ELSEWHERE_S

    @property
    def asking(self) -> bool:
        """Whether the person is being asked for what the server wants to know."""
        return False

    async def exchange(self, message: Json) -> Json:
        """Return the server's reply, if the message is no notification. Cancelling withdraws it. Raise McpError."""
        raise NotImplementedError

    async def close(self) -> None:
        """End a server that the worker has started. The next handshake starts it again."""


class RequestChannel(McpChannel):
    """Reaches a server by requests of one kind: MCP_MESSAGE inside the client, LAPTOP_MCP_MESSAGE on the laptop. A
    message is sent once, and waits for its answer over lost connections."""

    def __init__(
        self, broker: Broker, kind: RequestKind[McpMessage, Json], server: str, call_s: float = ELSEWHERE_S
    ) -> None:
        self._broker = broker
        self._kind = kind
        self._server = server
        self.call_s = call_s
        # the client of an SDK has a server or has none; one of the laptop may be down for a while
        self.may_come_back = kind is LAPTOP_MCP_MESSAGE

    async def exchange(self, message: Json) -> Json:
        about = f"the MCP server {self._server}"
        try:
            return await self._broker.request(Request(self._kind, McpMessage(self._server, message), about))
        except RequestFailed as error:
            raise McpError(str(error)) from None


class RefusedChannel(McpChannel):
    """Stands for a server that cannot be started, and says why."""

    def __init__(self, why: str) -> None:
        self.reaches = why

    async def exchange(self, message: Json) -> Json:
        raise McpError(str(self.reaches))


@dataclass(frozen=True)
class ServerTool:
    """A tool as its server describes it."""

    name: str
    description: str
    input_schema: object
    only_reads: bool = False


class McpClient:
    """`connect` comes first. `info` and `instructions` describe the server, `offers` are names of its capabilities."""

    def __init__(self, channel: McpChannel, *, handshake_s: float = HANDSHAKE_S) -> None:
        self.info: Json = {}
        self.instructions = ""
        self.call_s = channel.call_s
        self.broken: list[str] = []
        self._channel = channel
        self._handshake_s = handshake_s
        # Calls of an earlier worker or connection may still run on the server, under ids of their own.
        self._ids = itertools.count(secrets.randbits(48))
        self.offers: frozenset[str] = frozenset()
        self._progress: dict[str, Callable[[Json], None]] = {}
        self._signs: dict[str, float] = {}  # when a server has said something of a call

    async def connect(self) -> None:
        """Agree with the server on the protocol. Raise McpError."""
        about = {"protocolVersion": PROTOCOL, "clientInfo": {"name": "ccb", "version": "1"}}
        found = await self._ask("initialize", {**about, "capabilities": self._channel.offers}, self._handshake_s)
        self.info, self.offers = as_dict(found.get("serverInfo")), frozenset(as_dict(found.get("capabilities")))
        self.instructions = str(found.get("instructions") or "")
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._answered(self._channel.exchange(told), self._handshake_s, "it does not take what it is sent")

    async def tools(self) -> list[ServerTool]:
        """Return the tools of the server, from all pages; `broken` names those that nobody can call. Raise McpError."""
        found, self.broken = [], []
        for described in await self.listed("tools"):
            name, schema = described.get("name"), described.get("inputSchema")
            if isinstance(name, str) and name and isinstance(schema, (dict, bool)):
                only_reads = as_dict(described.get("annotations")).get("readOnlyHint") is True
                found.append(ServerTool(name, str(described.get("description") or ""), schema, only_reads))
            else:
                self.broken.append(str(name)[:100])
        return found

    async def listed(self, what: str) -> list[Json]:
        """Return the `tools`, `resources` or `prompts` that the server describes, from all pages. Raise McpError."""
        found: list[Json] = []
        cursor: object = None
        for _ in range(_MAX_PAGES if what in self.offers else 0):
            page = await self._ask(f"{what}/list", {} if cursor is None else {"cursor": cursor}, self._handshake_s)
            listed = page.get(what)
            found += [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            last, cursor = cursor, page.get("nextCursor")
            if cursor is None or cursor == last or len(found) >= _MAX_LISTED:
                break
        return found[:_MAX_LISTED]

    async def call(
        self,
        name: str,
        arguments: Json,
        tool_use_id: str = "",
        progress: Callable[[Json], None] | None = None,
        call_s: float | None = None,
    ) -> Json:
        """Call a tool and return the result object. `progress` gets what the server says meanwhile. Raise McpError."""
        params: Json = {"name": name, "arguments": arguments}
        if tool_use_id:
            params["_meta"] = {TOOL_USE_ID: tool_use_id, "progressToken": tool_use_id}
        if progress is not None:
            self._progress[tool_use_id] = progress
        try:
            return await self._ask("tools/call", params, call_s or self.call_s, tool_use_id)
        finally:
            self._progress.pop(tool_use_id, None)
            self._signs.pop(tool_use_id, None)

    async def read(self, uri: str) -> Json:
        return await self._ask("resources/read", {"uri": uri}, self._handshake_s)

    async def prompt(self, name: str, arguments: dict[str, str]) -> Json:
        """Return a prompt with these arguments in place. Raise McpError."""
        return await self._ask("prompts/get", {"name": name, "arguments": arguments}, self._handshake_s)

    def heard_progress(self, params: Json) -> None:
        """Pass on what the server says about the progress of a call."""
        token = str(params.get("progressToken"))
        progress = self._progress.get(token)
        if progress is not None:
            self._signs[token] = time.monotonic()
            progress(params)

    async def _ask(self, method: str, params: Json, seconds: float, token: str | None = None) -> Json:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        late = f"no answer within {seconds:g} s" if token is None else too_long(seconds) + UNKNOWN
        reply = await self._answered(self._channel.exchange(message), seconds, late, token)
        error, result = reply.get("error"), reply.get("result")
        if error is not None:
            raise McpError(reason_of(error))
        if not isinstance(result, dict):
            raise McpError(f"the reply to {method} has no result")
        return result

    async def _answered(self, work: Awaitable[Json], seconds: float, late: str, token: str | None = None) -> Json:
        """Return the answer to a message. The time of a call (`token`) begins again with each sign of the server about
        it, and when the person has been asked. Raise McpError, with the text `late`."""
        task = asyncio.ensure_future(work)
        asked_at = time.monotonic()
        try:
            while not task.done():
                left = max(asked_at, self._signs.get(token or "", 0.0)) + seconds - time.monotonic()
                if left <= 0:
                    raise McpError(late)
                await asyncio.wait({task}, timeout=min(left, _LOOK_S))
                if token is not None and self._channel.asking:
                    asked_at = time.monotonic()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})


_MAX_MESSAGE = 10_000  # characters


async def answer_form(broker: Broker, hooks: HookRunner, server: str, params: Json) -> Json:
    """Return the answer to a form of a server. Where nobody can be asked, decline it."""
    schema, url = params.get("requestedSchema"), params.get("url")
    form = Elicitation(
        server,
        str(params.get("message") or "")[:_MAX_MESSAGE],
        "url" if params.get("mode") == "url" else "form",
        schema if isinstance(schema, dict) else None,
        url if isinstance(url, str) else None,
    )
    try:
        decided = await _by_hooks(hooks, ELICITATION, public_fields(form), server)
        if decided is not None:
            return decided
        answer: Json = {"action": "decline"}
        if broker.can_ask(ASK_PERSON):
            asked_for = Request(ASK_PERSON, form, about=f"what the MCP server {server} wants to know")
            answer = await broker.request(asked_for)
        told = {"mcp_server_name": server, "mode": form.mode, **answer}
        return await _by_hooks(hooks, ELICITATION_RESULT, told, server) or answer
    except NotKept:
        return {"action": "cancel"}


async def _by_hooks(hooks: HookRunner, event: str, payload: Json, server: str) -> Json | None:
    outcome = await hooks.run(event, payload, server)
    if outcome.refuses:
        return {"action": "decline"}
    action = outcome.own.get("action")
    if not action:
        return None
    given = {"content": outcome.own.get("content", {})} if action == "accept" else {}
    return {"action": action, **given}


FORMS: Json = {"elicitation": {"form": {}, "url": {}}}  # what servers of this host may ask of the person
_MAX_ASKED = 8  # forms of one server at the same time


class Incoming:
    """`heard` gets notifications, `ask` puts a form to the person, `send` sends a message or raises McpError."""

    def __init__(self, heard: Callable[[Json], None], ask: Ask, send: Callable[[Json], None]) -> None:
        self._heard = heard
        self._ask = ask
        self._send = send
        self._asking: dict[str, asyncio.Task[None]] = {}  # forms before the person, by the server's ids

    @property
    def asking(self) -> bool:
        return bool(self._asking)

    def hear(self, message: Json) -> None:
        method, number, params = message.get("method"), message.get("id"), as_dict(message.get("params"))
        if number is None:
            asking = self._asking.get(str(params.get("requestId")))
            if method == "notifications/cancelled" and asking is not None:
                asking.cancel()
            self._heard(message)
        elif method == "elicitation/create" and len(self._asking) < _MAX_ASKED:
            task = self._asking[str(number)] = asyncio.ensure_future(self._put(number, params))
            task.add_done_callback(lambda _: self._asking.pop(str(number), None))
        elif method == "ping":
            self._answer({"id": number, "result": {}})
        else:
            self._answer({"id": number, "error": {"code": -32601, "message": "ccb does not offer this"}})

    def end(self) -> None:
        for asking in self._asking.values():
            asking.cancel()

    async def _put(self, number: object, params: Json) -> None:
        self._answer({"id": number, "result": await self._ask(params)})

    def _answer(self, message: Json) -> None:
        with contextlib.suppress(McpError):
            self._send(message)
