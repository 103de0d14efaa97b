"""The MCP servers of this laptop for one session, and what it lets the worker do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.requests import CAN_USE_TOOL, Request, ToolApproval, ToolPermission

from ..command_line.model import Arguments
from ..session.remote_session import RemoteSession
from .project_trust import ProjectDesk
from .session_request import flagged_mode

if TYPE_CHECKING:
    from ..config.settings import Settings
    from ..credentials.store import SecretStore
    from ..mcp.config import ServerConfig
    from ..mcp.permissions import LaptopPermissions


def laptop_servers(
    arguments: Arguments, settings: Settings, environ: Mapping[str, str]
) -> tuple[dict[str, ServerConfig], tuple[str, ...]]:
    """Return the MCP servers that run on this laptop, and warnings. Raises ConfigError."""
    described = {} if arguments.sdk.strict_mcp_config else dict(settings.mcpServers)
    if arguments.sdk.mcp_config:
        from ..command_line.option_table.mcp_config import mcp_servers

        described |= mcp_servers(arguments.sdk.mcp_config)
    if all(server.get("type") == "sdk" for server in described.values()):
        return {}, ()
    from ..mcp.config import server_configs
    from ..mcp.service import MISSING, package_missing

    return ({}, (MISSING,)) if package_missing() else (server_configs(described, environ), ())


async def unlock_for(servers: Mapping[str, ServerConfig], secrets: SecretStore) -> None:
    """Ask for what opens the store if a server may want a login from it, before the session takes the terminal.
    Without an answer the session goes on without such logins."""
    if not servers:
        return
    from ..mcp.config import HttpServer

    if any(isinstance(each, HttpServer) and not each.headers for each in servers.values()):
        with suppress(CcbError):
            await secrets.unlock()


def laptop_permissions(
    arguments: Arguments,
    settings: Settings,
    options: SessionOptions,
    desk: ProjectDesk,
    session: RemoteSession,
    *,
    new: bool,
) -> LaptopPermissions:
    """Return what decides on the calls of a session. It sees what the session asks and says. `new`: the session begins,
    so the mode of `options` is the one that this laptop has set."""
    from ..mcp.permissions import LaptopPermissions

    async def ask(question: ToolApproval) -> ToolPermission:
        return await session.ask_reader(Request(CAN_USE_TOOL, question))

    def rules() -> Mapping[str, Sequence[str]]:
        own = {"allow": options.allowed_tools, "deny": options.disallowed_tools, "ask": settings.permissions.ask}
        return {kind: [*texts, *desk.kept_rules.get(kind, ())] for kind, texts in own.items()}

    can_ask = options.permission_prompts == "stdio"
    mode = options.permission_mode if new else flagged_mode(arguments) or "default"
    permissions = LaptopPermissions(
        rules,
        ask if can_ask else None,
        mode=mode,
        may_bypass=options.allow_bypass,
        prompt_tool="" if options.permission_prompts in ("stdio", "none") else options.permission_prompts,
    )
    session.watched_by(permissions)
    return permissions
