"""Answer the worker's messages to the MCP servers of the person's settings."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ccb.tunnel.errors import CcbError
from ccb.tunnel.loading import collection_paused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import (
    CLIENT_MCP_MESSAGE,
    ELICITATION,
    LAPTOP_MCP_MESSAGE,
    Elicitation,
    McpMessage,
    tool_name,
)
from ccb.tunnel.wire.requests import Request, RequestFailed, RequestRefused

from .config import ServerConfig
from .form_hooks import FormHooks
from .gate import answered, is_call, tool_use_id_of
from .permissions import LaptopPermissions

if TYPE_CHECKING:
    from ..credentials.store import SecretStore
    from ..session.remote_session import RemoteSession
    from .server import LaptopServer

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MAX_PROGRESS = 200

MISSING = "MCP servers are configured, but the package for them is missing: pip install 'ccb[mcp]'"


def package_missing() -> bool:
    """Return whether the extra `ccb[mcp]` is not installed."""
    from importlib.util import find_spec

    return find_spec("mcp") is None


def load_clients() -> None:
    """Import what speaks to servers: more than a second of work on a slow laptop."""
    with collection_paused():
        for name in ("connection", "oauth", "server"):
            importlib.import_module(f"{__package__}.{name}")


@dataclass(frozen=True)
class ServerState:
    """What the person is told about a server of this laptop: whether it runs, the reason of its last failure, and the
    seconds until it may be started again."""

    name: str
    shown: str
    running: bool
    why: str
    retry_s: float


class LaptopServers:
    """The servers of one session. What `permissions` refuses reaches none of them. `forms` are the person's own hooks
    about their forms. Use as a context manager: leaving ends them."""

    def __init__(
        self,
        session: RemoteSession,
        configs: Mapping[str, ServerConfig],
        permissions: LaptopPermissions,
        secrets: SecretStore,
        forms: FormHooks | None = None,
    ) -> None:
        self._session = session
        self._configs = configs
        self._permissions = permissions
        self._secrets = secrets
        self._forms = forms or FormHooks({})
        self._servers: dict[str, LaptopServer] = {}
        self._closing = False
        self._loading: asyncio.Task[None] | None = None
        self._stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # `ccb mcp test` shows it

    async def __aenter__(self) -> Self:
        self._session.register(LAPTOP_MCP_MESSAGE, self._answer, is_call)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers.values()))
        self._stderr.close()

    def states(self) -> list[ServerState]:
        """Return the state of each server."""
        found = []
        for name, config in self._configs.items():
            server = self._servers.get(name)
            if server is None:
                found.append(ServerState(name, config.shown, False, "", 0.0))
            else:
                found.append(ServerState(name, config.shown, server.running, server.why, server.retry_s))
        return found

    async def restart(self, name: str) -> None:
        """Start a server again, without waiting. Raise KeyError, RequestRefused."""
        await (await self._server(name, self._configs[name])).restart()

    async def _server(self, name: str, config: ServerConfig) -> LaptopServer:
        """Return a server. The first call loads what speaks to it in a thread, because the screen must not stand still
        meanwhile."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(load_clients), name="load the MCP clients")
        await asyncio.shield(self._loading)
        if self._closing:
            raise RequestRefused("The session ends.")
        from .connection import ClientSide
        from .oauth import StoredLogins
        from .server import LaptopServer

        if name not in self._servers:
            client = ClientSide(self._stderr, self._said, self._ask, StoredLogins(self._secrets).at)
            self._servers[name] = LaptopServer(
                name, config, client, lambda tool: self._permissions.stands_for_person(tool_name(name, tool))
            )
        return self._servers[name]

    async def _answer(self, message: McpMessage) -> Json:
        config = self._configs.get(message.server_name)
        if config is None:
            raise RequestRefused("This laptop has no MCP server of that name.")
        server = await self._server(message.server_name, config)
        return await answered(self._permissions, message, lambda allowed: server.reply(allowed, self._shower(message)))

    async def _said(self, name: str, message: Json) -> None:
        try:
            await self._session.request(Request(CLIENT_MCP_MESSAGE, McpMessage(name, message)))
        except (RequestFailed, CcbError) as error:
            log.info("the worker does not take a message of the MCP server %s: %s", name, error)

    async def _ask(self, form: Elicitation) -> Json:
        """Let hooks of the person answer the form of a server, else the person."""
        return await self._forms.answer(form, self._ask_person)

    async def _ask_person(self, form: Elicitation) -> Json:
        """Put a form to the person. Where nobody can be asked, decline it."""
        try:
            return await self._session.ask_reader(Request(ELICITATION, form))
        except RequestFailed:
            return {"action": "decline"}

    def _shower(self, message: McpMessage) -> Callable[[Json], None] | None:
        """Return what shows the progress of a call in its row. The host has no part in it."""
        params = message.message.get("params")
        if message.message.get("method") != "tools/call" or not isinstance(params, dict):
            return None
        began = time.monotonic()
        name, tool_use_id = tool_name(message.server_name, str(params.get("name"))), tool_use_id_of(params)

        def show(progress: Json) -> None:
            total, said = progress.get("total"), str(progress.get("message") or "")[:_MAX_PROGRESS]
            count = progress.get("progress")
            done = "" if count is None else f"{count:g}/{total:g}" if total else f"{count:g}"
            self._session.show(
                {
                    "type": "tool_progress",
                    "tool_use_id": tool_use_id,
                    "tool_name": name,
                    "elapsed_time_seconds": round(time.monotonic() - began, 1),
                    "output": f"{done} {said}".strip(),
                    "total_bytes": 0,
                    "parent_tool_use_id": None,
                }
            )

        return show
