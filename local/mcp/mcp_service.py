"""The MCP servers of a session, of the settings or of the program that drives it, and the check of each call."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from ccb.tunnel.errors import CcbError
from ccb.tunnel.heavy_imports import collection_paused
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import mcp_messages as wire
from ccb.tunnel.wire.control_protocol import Request, RequestFailed, RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_dict
from ccb.tunnel.wire.outside_messages import CHANNEL, PUSHED, TELL_SESSION, pushed_text, read_message

from ..session.own_hooks import FormHooks
from .mcp_config import ServerConfig
from .mcp_permissions import LaptopPermissions

if TYPE_CHECKING:
    from ..credentials.secret_store import SecretStore
    from ..session.remote_session import RemoteSession
    from .laptop_server import LaptopServer


def guard_client_servers(session: RemoteSession, permissions: LaptopPermissions) -> None:
    """Let the worker use the servers inside the program that drives this session, which gets what passes the gate."""

    async def pass_on(message: wire.McpMessage) -> Json:
        async def ask_program(allowed: Json) -> Json:
            try:
                passed = wire.McpMessage(message.server_name, allowed)
                return await session.ask_reader(Request(wire.MCP_MESSAGE, passed))
            except RequestFailed as failed:
                raise RequestRefused(str(failed)) from failed

        return await answered(permissions, message, ask_program)

    session.register(wire.MCP_MESSAGE, pass_on, is_call)


async def answered(gate: LaptopPermissions, message: wire.McpMessage, ask: Callable[[Json], Awaitable[Json]]) -> Json:
    """Return the worker's answer: what `ask` returns for what may go to the server. Raise RequestRefused."""
    allowed = await permitted(gate, message.server_name, message.message)
    reply = await ask(allowed)
    if is_call(message):
        tool = _named_in(message.server_name, allowed["params"])
        gate.replied(tool, allowed["params"]["arguments"], reply.get("result") or {})
    return {"mcp_response": reply}


async def permitted(permissions: LaptopPermissions, server: str, message: Json) -> Json:
    """Return the message that may go to a server: a call has the arguments that were allowed. Raise RequestRefused."""
    method, params = message.get("method"), as_dict(message.get("params"))
    arguments = as_dict(params.get("arguments"))
    if method == "tools/call":
        allowed = await permissions.check(_named_in(server, params), arguments, tool_use_id_of(params))
        return {**message, "params": {**params, "arguments": allowed}}
    if method == "resources/read":
        await permissions.check_reading(server, str(params.get("uri")))
    elif method == "prompts/get":
        await permissions.check_prompt(server, _named_in(server, params), arguments)
    return message


def _named_in(server: str, params: Json) -> str:
    return wire.tool_name(server, str(params.get("name")))


def is_call(message: wire.McpMessage) -> bool:
    return message.message.get("method") == "tools/call"


def _runs_once(message: wire.McpMessage) -> bool:
    return message.message.get("method") in ("tools/call", PUSHED)


def tool_use_id_of(params: Json) -> str:
    """Return the id of the tool call that a message belongs to, "" if it names none."""
    return str(as_dict(params.get("_meta")).get(wire.TOOL_USE_ID) or "")


log = logging.getLogger(__name__)

_MAX_PROGRESS = 200
_REFUSED_S = 10.0  # until the next message of a channel goes to the session, after one that was refused

MISSING = "MCP servers are configured, but the package for them is missing: pip install 'ccb[mcp]'"


def package_missing() -> bool:
    return importlib.util.find_spec("mcp") is None


def load_clients() -> None:
    """Import what speaks to servers: more than a second of work on a slow laptop."""
    with collection_paused():
        for name in ("laptop_server", "mcp_login"):
            importlib.import_module(f"{__package__}.{name}")


@dataclass(frozen=True)
class ServerState:
    """What the person is told about a server, and why it failed last."""

    shown: str
    why: str = ""


@dataclass(eq=False, repr=False)  # the configurations may hold tokens
class LaptopServers:
    """The servers of one session. What the permissions refuse reaches none of them. A context: leaving ends them."""

    _session: RemoteSession
    _configs: Mapping[str, ServerConfig]
    _permissions: LaptopPermissions
    _secrets: SecretStore
    _forms: FormHooks
    _own: Mapping[str, Callable[[Json], Awaitable[Json]]] = field(default_factory=dict)  # servers in this process
    _channels: Mapping[str, asyncio.Lock] = field(default_factory=dict)  # of servers to which the person has subscribed
    _refused: set[str] = field(default_factory=set)  # channels of which nothing is taken any more
    _servers: dict[str, LaptopServer] = field(default_factory=dict)
    _closing: bool = False
    _loading: asyncio.Task[None] | None = None
    # `ccb mcp test` shows it
    _stderr: TextIO = field(default_factory=lambda: Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115

    async def __aenter__(self) -> Self:
        self._session.register(wire.LAPTOP_MCP_MESSAGE, self._answer, _runs_once)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        self._stderr.close()

    def states(self) -> dict[str, ServerState]:
        failed = {name: server.why for name, server in self._servers.items()}
        return {name: ServerState(config.shown, failed.get(name, "")) for name, config in self._configs.items()}

    async def restart(self, name: str) -> None:
        """Start a server again, without waiting. Raise KeyError, RequestRefused."""
        await (await self._server(name, self._configs[name])).restart()

    async def _server(self, name: str, config: ServerConfig) -> LaptopServer:
        """Return a server. The first call loads what speaks to it in a thread: the screen must not stand still."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(load_clients), name="load the MCP clients")
        await asyncio.shield(self._loading)
        if self._closing:
            raise RequestRefused("The session ends.")
        from .laptop_server import ClientSide, LaptopServer
        from .mcp_login import stored_login

        if name not in self._servers:
            pushed = self._pushed if name in self._channels else None
            client = ClientSide(self._stderr, self._said, self._ask, partial(stored_login, self._secrets), pushed)
            self._servers[name] = LaptopServer(
                name, config, client, lambda tool: self._permissions.stands_for_person(wire.tool_name(name, tool))
            )
        return self._servers[name]

    async def _answer(self, message: wire.McpMessage) -> Json:
        if (own := self._own.get(message.server_name)) is not None:
            return await answered(self._permissions, message, own)
        config = self._configs.get(message.server_name)
        if config is None and message.server_name in self._channels and message.message.get("method") == PUSHED:
            await self._pushed(message.server_name, pushed_text(as_dict(message.message.get("params"))))
            if message.server_name in self._refused:
                await asyncio.Event().wait()  # the host sends the next one after the answer
            return {"mcp_response": {}}
        if config is None:
            raise RequestRefused("This laptop has no MCP server of that name.")
        server = await self._server(message.server_name, config)
        return await answered(self._permissions, message, lambda allowed: server.reply(allowed, self._shower(message)))

    async def _said(self, name: str, message: Json) -> None:
        try:
            await self._session.request(Request(wire.CLIENT_MCP_MESSAGE, wire.McpMessage(name, message)))
        except (RequestFailed, CcbError) as error:
            log.info("the worker does not take a message of the MCP server %s: %s", name, error)

    async def _pushed(self, name: str, text: str) -> None:
        """Put a message of a channel into the session, if the person has allowed that server to."""
        async with self._channels[name]:
            if name in self._refused:
                return
            try:
                await self._permissions.check_channel(name, text)
            except RequestRefused as refused:
                self._refused.add(name)
                self._session.warn(f"Nothing is taken from the channel {name}: {refused}")
                return
            try:
                message = read_message({"text": text, "sender": name, "via": CHANNEL})
                await self._session.request(Request(TELL_SESSION, message))
            except (RequestRefused, RequestFailed, CcbError) as error:
                self._session.warn(f"A message of the channel {name} was not taken: {one_line(str(error))}")
                await asyncio.sleep(_REFUSED_S)  # what is refused is in the journal, too; the newest messages wait

    async def _ask(self, form: wire.Elicitation) -> Json:
        """Let hooks of the person answer the form of a server, else the person; where nobody can be asked, decline."""

        async def ask_person(form: wire.Elicitation) -> Json:
            try:
                return await self._session.ask_reader(Request(wire.ELICITATION, form))
            except RequestFailed:
                return {"action": "decline"}

        return await self._forms.answer(form, ask_person)

    def _shower(self, message: wire.McpMessage) -> Callable[[Json], None] | None:
        """Return what shows the progress of a call in its row. The host has no part in it."""
        if not is_call(message):
            return None
        began, params = time.monotonic(), as_dict(message.message.get("params"))
        name, tool_use_id = _named_in(message.server_name, params), tool_use_id_of(params)

        def show(progress: Json) -> None:
            total, said = progress.get("total"), str(progress.get("message") or "")[:_MAX_PROGRESS]
            count = progress.get("progress")
            done = "" if count is None else f"{count:g}/{total:g}" if total else f"{count:g}"
            call = {"tool_use_id": tool_use_id, "tool_name": name, "parent_tool_use_id": None}
            printed = {"output": f"{done} {said}".strip(), "total_bytes": 0}
            elapsed = round(time.monotonic() - began, 1)
            self._session.show({"type": "tool_progress", **call, "elapsed_time_seconds": elapsed, **printed})

        return show
