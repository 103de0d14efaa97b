"""`ccb mcp add`, `list`, `test`, `login` and the like: the MCP servers of the person's settings on this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import WANTS_LOGIN
from ccb.tunnel.wire.policy_patterns import is_allowed

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..config.policy import require
from ..config.settings_loading import keep_setting, load_settings
from ..credentials.secret_store import SecretStore, open_store
from ..mcp.mcp_config import HttpServer, ServerConfig, server_config
from ..mcp.mcp_service import MISSING, package_missing
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import TerminalPrompts


def run_mcp(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, name = arguments.rest[0], next(iter(arguments.rest[1:]), "")
    settings = load_settings(environ)
    servers = settings.mcpServers
    if action == "add":
        described = _described(arguments)
        shown = server_config(name, described, environ).shown
        keep_setting(environ, ("mcpServers", name), described)
        return _told(f"Added {name}: {shown}", f"Try it: ccb mcp test {name}")
    if action == "list":
        imported = settings.imported_servers
        lines = [_row(each, server, imported.get(each, ""), environ) for each, server in servers.items()]
        return _told(*lines or ["No MCP server. Add one: ccb mcp add NAME -- COMMAND"])
    if name not in servers:
        raise UsageError(f"there is no MCP server {name!r}", do="`ccb mcp list` shows them.")
    if action == "remove":
        if name in settings.imported_servers:
            what = f"{name} is an MCP server of Claude Code, in {settings.imported_servers[name]}"
            raise UsageError(what, do="Remove it there, or `ccb config set importClaudeSettings off`.")
        keep_setting(environ, ("mcpServers", name), None)
        return _told(f"Removed {name}.")
    config = server_config(name, servers[name], environ)
    if action == "get":
        return _told(f"{name}: {config.shown}")
    if package_missing():
        raise UsageError(MISSING)
    if action != "logout":
        require(is_allowed(config.reached, settings.policy.mcpServers), f"the MCP server {name}", "mcpServers")
    secrets = open_store(environ, settings, TerminalPrompts())
    if action == "test":
        return asyncio.run(_test(name, config, secrets))
    from ..mcp.mcp_login import LoginStore, log_in

    if not isinstance(config, HttpServer):
        raise UsageError(f"{name} is a program on this machine: it has no login", do="Give it what it needs with -e.")
    if action == "login":
        return _told(asyncio.run(log_in(name, config, secrets)))
    there = asyncio.run(LoginStore(config, secrets).forget())
    return _told(f"Logged out of {name}." if there else f"You were not logged in at {name}.")


def _row(name: str, server: Mapping[str, object], imported: str, environ: Mapping[str, str]) -> str:
    try:
        shown = server_config(name, server, environ).shown
    except ConfigError as error:
        if not imported:
            raise
        shown = f"not used: {error.evidence}"
    return f"{name}: {shown}{f'  ({imported})' if imported else ''}"


def _told(*lines: str) -> ExitCode:
    print_line(*lines)
    return ExitCode.OK


def _described(arguments: Arguments) -> Json:
    words, env, headers = arguments.rest[2:], arguments.host_command.env, arguments.host_command.headers
    if len(words) == 1 and words[0].startswith(("http://", "https://")):
        if env:
            raise UsageError("ccb mcp: -e is for a COMMAND, not for a URL", do="Use -H for headers.")
        return {"type": "http", "url": words[0], **_pairs("headers", headers, ":", "-H")}
    if headers:
        raise UsageError("ccb mcp: -H is for a URL, not for a COMMAND", do="Use -e for variables.")
    return {"command": words[0], "args": list(words[1:]), **_pairs("env", env, "=", "-e")}


def _pairs(key: str, texts: Sequence[str], sign: str, option: str) -> Json:
    found = {}
    for text in texts:
        name, found_sign, value = text.partition(sign)
        if not (name and found_sign):
            raise UsageError(f"ccb mcp: {option} wants NAME{sign}VALUE")
        found[name.strip()] = value.strip()
    return {key: found} if found else {}


async def _test(name: str, config: ServerConfig, secrets: SecretStore) -> int:
    from ..mcp.laptop_server import ClientSide, LaptopServer
    from ..mcp.mcp_login import stored_login

    server = LaptopServer(name, config, ClientSide(sys.stderr, auth=partial(stored_login, secrets)))
    try:
        hello = (await server.reply({"id": 0, "method": "initialize"}))["result"]
        listed = await server.reply({"id": 1, "method": "tools/list"}) if "tools" in hello["capabilities"] else {}
    except RequestRefused as error:
        what, why, do = str(error), server.why, f"`ccb mcp get {name}` shows how it is started."
        if WANTS_LOGIN in what:
            what, why, do = f"the MCP server {name} {WANTS_LOGIN}", "", f"Log in: ccb mcp login {name}"
        say(f"ccb: {what}", *([f"  {why}"] if why else []), f"  -> {do}")
        return ExitCode.AGENT_FAILED
    finally:
        await server.close()
    found = listed.get("result", {}).get("tools")
    tools = [str(each.get("name")) for each in (found if isinstance(found, list) else ()) if isinstance(each, dict)]
    info = hello["serverInfo"]
    return _told(f"{name} works: {info['name']} {info['version']}, {len(tools)} tools: {', '.join(tools)}")
