"""The services of this laptop for the worker, which may be hostile: MCP servers, and texts of public web pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import CcbError, ConfigError
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.outside_messages import GROUP_SERVER
from ccb.tunnel.wire.policy_patterns import NOT_ALLOWED, is_allowed
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.web_fetch import MAX_TEXT, TIMEOUT_S, WEB_FETCH, FetchedText, WebFetcher, WebPage, WebRefused

from ..command_line.arguments import Arguments
from ..session.remote_session import RemoteSession
from ..session.session_client import Json
from .project_trust import ProjectDesk
from .session_request import given_mode

if TYPE_CHECKING:
    from ..config.settings import Settings
    from ..credentials.secret_store import SecretStore
    from ..mcp.mcp_config import ServerConfig
    from ..mcp.mcp_service import LaptopServers
    from ..mcp.session_group import GroupMember
    from .startup import SessionStartup

log = logging.getLogger(__name__)
_MAX_BODY = 4 << 20  # bytes
_MAX_AT_ONCE = 4


async def laptop_servers(
    arguments: Arguments, settings: Settings, environ: Mapping[str, str], secrets: SecretStore
) -> tuple[dict[str, ServerConfig], tuple[str, ...]]:
    """Return the MCP servers that run on this laptop, and warnings. If a server may want a login from the store, it is
    unlocked before the session takes the terminal. Raises ConfigError."""
    described, left = ({}, ()) if arguments.sdk.strict_mcp_config else _of_settings(settings, environ)
    if arguments.sdk.mcp_config:
        from ..mcp.mcp_config import mcp_servers

        described |= mcp_servers(arguments.sdk.mcp_config)
    if all(server.get("type") == "sdk" for server in described.values()):
        return {}, left
    from ..mcp.mcp_config import HttpServer, server_configs
    from ..mcp.mcp_service import MISSING, package_missing

    if package_missing():
        return {}, (*left, MISSING)
    patterns = settings.policy.mcpServers
    found = server_configs(described, environ)
    servers = {name: each for name, each in found.items() if is_allowed(each.reached, patterns)}
    left += tuple(f"{NOT_ALLOWED.format(name)}: {found[name].shown}" for name in found if name not in servers)
    if any(isinstance(each, HttpServer) and not each.headers for each in servers.values()):
        with suppress(CcbError):
            await secrets.unlock()
    return servers, left


def _of_settings(settings: Settings, environ: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Return the servers of the settings, and sentences about those of Claude Code that cannot be used."""
    described, left = dict(settings.mcpServers), []
    for name, path in settings.imported_servers.items():
        from ..mcp.mcp_config import server_config

        try:
            server_config(name, described[name], environ)
        except ConfigError as error:
            del described[name]
            left.append(f"{error.what} in {path}, so it is not used: {error.evidence}")
    return described, tuple(left)


async def open_services(
    arguments: Arguments,
    startup: SessionStartup,
    options: SessionOptions,
    desk: ProjectDesk,
    session: RemoteSession,
    servers: Mapping[str, ServerConfig],
    group: GroupMember | None,
    hooks: Mapping[str, Any],
    *,
    new: bool,
    stack: AsyncExitStack,
) -> LaptopServers | None:
    """Serve what the worker may ask of this laptop: web pages, its servers, which `stack` ends, its `group`, and the
    servers inside the driving program. `new`: the mode of `options` is the one that this laptop set."""
    if options.web == "laptop":
        session.register(WEB_FETCH, LaptopWeb(allow_private=options.web_allow_private).fetch)
    channels = {name: asyncio.Lock() for name in arguments.agent.channels}
    has_some, driven = servers or channels or group is not None, arguments.streams.input_format == "stream-json"
    if not has_some and not driven:
        return None
    from ..mcp.mcp_permissions import LaptopPermissions
    from ..mcp.mcp_service import LaptopServers, guard_client_servers
    from ..session.own_hooks import FormHooks

    async def ask(question: control.ToolApproval) -> control.ToolPermission:
        return await session.ask_reader(control.Request(control.CAN_USE_TOOL, question))

    def rules() -> Mapping[str, Sequence[str]]:
        own = {
            "allow": options.allowed_tools,
            "deny": options.disallowed_tools,
            "ask": startup.settings.permissions.ask,
        }
        return {kind: [*texts, *desk.kept_rules.get(kind, ())] for kind, texts in own.items()}

    permissions = LaptopPermissions(
        rules,
        ask if options.permission_prompts == "stdio" else None,
        mode=options.permission_mode if new else given_mode(arguments, startup.settings) or "default",
        may_bypass=options.allow_bypass,
        prompt_tool="" if options.permission_prompts in ("stdio", "none") else options.permission_prompts,
    )
    session.watched_by(permissions)
    if driven:
        guard_client_servers(session, permissions)
    if not has_some:
        return None
    own = {GROUP_SERVER: group.reply} if group is not None else {}
    secrets = startup.stored.secrets
    made = LaptopServers(session, servers, permissions, secrets, FormHooks(hooks), own, channels)
    return await stack.enter_async_context(made)


class LaptopWeb:
    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._room = asyncio.Semaphore(_MAX_AT_ONCE)

    async def fetch(self, url: str) -> Json:
        async with self._room:
            log.info("fetching a page for the worker")
            try:
                page = await self._page(url)
            except WebRefused as refused:
                raise control.RequestRefused(str(refused)) from None
        text = page.text()
        if text is None:
            raise control.RequestRefused(f"it is {page.media_type}, and the laptop fetches text only")
        cut = page.cut or len(text) > MAX_TEXT
        found = FetchedText(
            page.url, page.status, page.reason, page.media_type, text[:MAX_TEXT], page.redirect, cut=cut
        )
        return control.public_fields(found)

    async def _page(self, url: str) -> WebPage:
        fetcher = WebFetcher(allow_private=self._allow_private, max_body=_MAX_BODY)
        work = asyncio.ensure_future(asyncio.to_thread(fetcher.fetch, url))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.shield(work)
        except TimeoutError:
            raise WebRefused(f"it took longer than {TIMEOUT_S:.0f} s") from None
        finally:
            if not work.done():
                fetcher.stop()
                work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
