"""`ccb acp`: the methods of the Agent Client Protocol. What a session needs is loaded with the first one, so that
`initialize` is answered at once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ccb
from ccb.tunnel.errors import CcbError, ProtocolError
from ccb.tunnel.heavy_imports import collection_paused
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire.control_protocol import RequestFailed
from ccb.tunnel.wire.frames import FrameError, Json
from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, NOT_FOUND, Handler, JsonRpcPeer, Reply, RpcError
from ccb.tunnel.wire.messages import as_dict

from ..command_line.arguments import Arguments, SessionChoice
from ..command_line.exit_codes import ExitCode
from ..command_line.option_values import is_session_id
from ..command_line.transport_choice import TransportKind, host_label, transport_kind
from ..terminal.console import say
from ..terminal.stdio import Writer, in_thread, read_some
from .acp_paths import PathMap

if TYPE_CHECKING:
    from ..connect.host_connection import HostConnection
    from .acp_session import AcpSession

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
_PIECE = 64 * 1024
_STOP_S = 5.0  # seconds for a turn to end before its session is closed
_MAX_SESSIONS = 50  # open at the same time
_ID_LENGTH = 36
_UNFIT = re.compile(r"[^A-Za-z0-9-]+")
_LONG = ("session/prompt",)
_CAPABILITIES: Json = {
    "loadSession": True,
    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
    "mcpCapabilities": {"http": True, "sse": False},
    "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {}},
    "auth": {},
}


def run_acp(arguments: Arguments, environ: Mapping[str, str]) -> Coroutine[Any, Any, ExitCode]:
    """Return what serves the protocol until stdin ends. From here on nothing else reads from stdin, and what anything
    prints to stdout goes to stderr."""
    given, told = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - there is no path to speak of
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return _serve(arguments, environ, given, told)


async def _serve(arguments: Arguments, environ: Mapping[str, str], given: int, told: int) -> ExitCode:
    writer = Writer(told)

    async def read() -> bytes:
        return await in_thread(lambda: read_some(given, _PIECE))

    async def write(line: bytes) -> None:
        if writer.broken.done():
            raise writer.broken.result()
        await writer.write(line)

    agent = AcpAgent(arguments, environ)
    peer = JsonRpcPeer(agent.handlers, read, write, long=_LONG, outgoing=harmless)
    try:
        async with agent.serving(peer):
            await peer.serve()
    except FrameError as error:
        await writer.drain()
        raise ProtocolError(f"the editor sent what cannot be read: {error}", do="Send a shorter prompt.") from None
    await writer.drain()
    return ExitCode.OK


class AcpAgent:
    """Sessions of one host for one editor. They share its connection; each lives on when the editor ends."""

    def __init__(self, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self._arguments = arguments
        self._environ = environ
        is_here = transport_kind(arguments.connection) is TransportKind.LOCAL and not arguments.connection.container
        maps = ("/=/",) if is_here else arguments.host_command.maps
        self._paths = PathMap(host_label(arguments.connection), arguments.directory or "~", maps)
        self._capabilities: Json = {}
        self._host: HostConnection | None = None
        self._connecting = asyncio.Lock()
        self._sessions: dict[str, AcpSession] = {}
        self._stack = AsyncExitStack()
        methods: Mapping[str, Handler] = {
            "initialize": self._initialize,
            "session/new": lambda params: self._open(params, SessionChoice(), tail=0),
            "session/load": lambda params: self._open(params, _existing(params), tail=0),
            "session/resume": lambda params: self._open(params, _existing(params), tail=1),
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": lambda params: self._session(params).prompt(params.get("prompt")),
            "session/cancel": lambda params: self._session(params).cancel(),
            "session/set_mode": lambda params: self._session(params).set_mode(params.get("modeId")),
            "session/set_config_option": lambda params: self._session(params).set_option(
                params.get("configId"), params.get("value")
            ),
        }
        self.handlers = {name: _with_errors_told(handler) for name, handler in methods.items()}

    @asynccontextmanager
    async def serving(self, peer: JsonRpcPeer) -> AsyncIterator[None]:
        """At the end, leave the sessions, and then the host. When the editor has ended, read their answers out."""
        has_ended = False
        self._peer = peer
        async with self._stack:
            try:
                yield
                has_ended = True
            finally:
                leaving = [each.close(reads_out=has_ended) for each in self._sessions.values()]
                await asyncio.gather(*leaving, return_exceptions=True)

    # The connection.

    async def _initialize(self, params: Json) -> Json:
        self._capabilities = as_dict(params.get("clientCapabilities"))
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": _CAPABILITIES,
            "agentInfo": {"name": "ccb", "title": f"ccb on {self._paths.host}", "version": ccb.__version__},
            "authMethods": [],
        }

    async def _connected(self) -> HostConnection:
        async with self._connecting:
            if self._host is None:
                with collection_paused():
                    from ..connect.host_connection import HostConnection

                nobody = NobodyToAsk(tell=lambda sentence: say(f"ccb: {sentence}"))
                host = HostConnection(self._arguments, nobody, self._environ)
                self._host = await self._stack.enter_async_context(host)
            return self._host

    # Sessions.

    async def _open(self, params: Json, choice: SessionChoice, *, tail: int) -> Reply:
        self._sessions = {number: each for number, each in self._sessions.items() if not each.is_over}
        if len(self._sessions) >= _MAX_SESSIONS:
            raise RpcError(INVALID_PARAMS, f"{_MAX_SESSIONS} sessions are open already: close one first")
        directory = self._paths.directory(params.get("cwd"))
        listed = params.get("additionalDirectories")
        folders = listed if isinstance(listed, list) else []
        others = [self._paths.directory(each) for each in folders]
        arguments = replace(self._arguments, directory=directory, session=choice)
        permissions = arguments.permissions
        permissions = replace(permissions, add_dirs=(*permissions.add_dirs, *others))
        sdk = replace(arguments.sdk, mcp_config=(*arguments.sdk.mcp_config, *_servers(params.get("mcpServers"))))
        await self._leave(choice.resume or "")  # if this process has it open
        host = await self._connected()
        from .acp_session import open_session
        from .acp_updates import Editor

        roots = (str(params["cwd"]), *map(str, folders))
        editor = Editor(self._peer, self._capabilities, self._paths, roots)
        session = await open_session(host, replace(arguments, permissions=permissions, sdk=sdk), editor, tail)
        self._sessions[session.id] = session
        facts = await session.facts()
        if choice.resume is None:
            facts = {"sessionId": session.id, **facts}
        return Reply(facts, session.announce)

    async def _list(self, params: Json) -> Json:
        """All sessions come at once, so no cursor ever leads on."""
        from datetime import UTC, datetime, timedelta

        from ..connect.host_script import run_command
        from ..connect.session_rows import with_prompts

        wanted, only = params.get("cwd"), None
        if wanted is not None:
            self._paths.directory(wanted)  # refuses what is outside
            only = self._paths.folder(wanted)
        host = await self._connected()
        if not self._paths.there:
            found = await run_command(await host.connected(), "pwd -P", self._paths.place)
            self._paths.there = found.text.rstrip("\n")
        now, listed = datetime.now(UTC), []
        for row in with_prompts(await (await host.sessions()).listed()):
            cwd = self._paths.cwd(row.cwd.raw)
            if cwd is None or only not in (None, cwd):
                continue
            used = (now - timedelta(seconds=min(row.idle_s, 1e9))).isoformat(timespec="seconds")
            listed.append({"sessionId": row.session, "cwd": cwd, "title": row.prompt.cell, "updatedAt": used})
        return {"sessions": listed}

    async def _close(self, params: Json) -> None:
        with suppress(TimeoutError):  # without a connection the turn goes on
            async with asyncio.timeout(_STOP_S):
                await self._session(params).cancel()
        await self._leave(str(params["sessionId"]))

    async def _delete(self, params: Json) -> None:
        number = str(params.get("sessionId"))
        await self._leave(number)
        sessions = await (await self._connected()).sessions()
        row = next((each for each in await sessions.listed() if each.session == number), None)
        if row is not None:  # deleting what is gone already is no error
            await sessions.remove(row)

    async def _leave(self, number: str) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            await session.close()

    def _session(self, params: Json) -> AcpSession:
        number = str(params.get("sessionId"))
        session = self._sessions.get(number)
        if session is None or session.is_over:
            raise _unknown(number)
        return session


def harmless(value: Any) -> Any:
    """Return JSON with all its texts neutralised, in the names of fields, too: most of them are the host's."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else neutralise(value)
    if isinstance(value, dict):
        return {harmless(name): harmless(each) for name, each in value.items()}
    return [harmless(each) for each in value] if isinstance(value, list | tuple) else value


def _with_errors_told(handler: Handler) -> Handler:
    async def told(params: Json) -> object:
        try:
            return await handler(params)
        except (CcbError, RequestFailed) as error:
            from .acp_session import rpc_error

            raise rpc_error(error) from None

    return told


def _existing(params: Json) -> SessionChoice:
    number = str(params.get("sessionId"))
    if not is_session_id(number) or len(number) < _ID_LENGTH:  # the start of an ID is one for people only
        raise _unknown(number)
    return SessionChoice(resume=number.lower())


def _unknown(number: str) -> RpcError:
    what = f"there is no session {number[:100]!r} here"
    return RpcError(NOT_FOUND, f"{what}: session/list lists those that can be loaded", {"sessionId": number[:100]})


def _servers(given: object) -> list[str]:
    """Return the MCP servers of the editor as `--mcp-config` takes them. They run on this machine. Raise RpcError."""
    if not given:
        return []
    servers: Json = {}
    for each in given if isinstance(given, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise RpcError(INVALID_PARAMS, "an MCP server has no name")
        name = _UNFIT.sub("-", each["name"])[:64].strip("-") or "server"
        if name in servers:
            raise RpcError(INVALID_PARAMS, f"two MCP servers would have the name {name!r}: give them different names")
        if each.get("type") in ("http", "sse"):
            server = {"type": each["type"], "url": each.get("url"), "headers": _pairs(each.get("headers"))}
        else:
            server = {"command": each.get("command"), "args": each.get("args") or [], "env": _pairs(each.get("env"))}
        servers[name] = server
    return [json.dumps({"mcpServers": servers})]


def _pairs(given: object) -> dict[str, str]:
    listed = given if isinstance(given, list) else []
    return {str(each.get("name")): str(each.get("value")) for each in listed if isinstance(each, dict)}
