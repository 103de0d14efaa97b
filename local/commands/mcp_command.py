"""`ccb mcp add`, `list`, `test`, `login` and the like: the MCP servers of the person's settings on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.control_protocol import RequestRefused
from ccb.tunnel.wire.mcp_messages import WANTS_LOGIN

from ..command_line.exit_codes import ExitCode
from ..config.settings import settings_path
from ..config.settings_file import write_settings
from ..config.settings_loading import load_settings
from ..credentials.secret_store import SecretStore, open_store
from ..mcp.mcp_config import HttpServer, ServerConfig, server_config, server_configs
from ..mcp.mcp_service import MISSING, package_missing
from ..terminal.console import say, write_stdout
from ..terminal.signals import CommandParser, exit_code
from ..terminal.terminal_prompts import TerminalPrompts

Json = dict[str, Any]


def run_mcp(args: Sequence[str]) -> int:
    """Run `ccb mcp ARGS` and return the exit code."""
    return exit_code(lambda: _run(args, os.environ))


def mcp_parser() -> CommandParser:
    parser = CommandParser(prog="ccb mcp", description="MCP servers that run on this machine for agents on any host.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="add|list|get|remove|test|login|logout")
    add = commands.add_parser("add", help="add a server to your settings: ccb mcp add NAME -- COMMAND ARG..., or a URL")
    add.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for COMMAND")
    add.add_argument("-H", "--header", action="append", default=[], metavar="NAME: VALUE", help="a header for the URL")
    add.add_argument("name")
    add.add_argument("words", nargs="+", metavar="COMMAND|URL")
    commands.add_parser("list", help="list the servers of your settings")
    for name, what in (
        ("get", "show one server"),
        ("remove", "remove a server"),
        ("test", "start it, list its tools"),
        ("login", "log in at a server with OAuth, in the browser"),
        ("logout", "forget that login"),
    ):
        commands.add_parser(name, help=what).add_argument("name")
    return parser


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = mcp_parser().parse_args(list(args))
    settings = load_settings(environ)
    servers = settings.mcpServers
    if options.command == "add":
        described = _described(options)
        shown = server_config(options.name, described, environ).shown
        write_settings(settings_path(environ), environ, {"mcpServers": {**servers, options.name: described}})
        return write_stdout(f"Added {options.name}: {shown}", f"Try it: ccb mcp test {options.name}")
    if options.command == "list":
        configs = server_configs(servers, environ)
        lines = [f"{name}: {config.shown}" for name, config in configs.items()]
        return write_stdout(*lines or ["No MCP server. Add one: ccb mcp add NAME -- COMMAND"])
    if options.name not in servers:
        raise UsageError(f"there is no MCP server {options.name!r}", do="`ccb mcp list` shows them.")
    if options.command == "remove":
        left = {name: server for name, server in servers.items() if name != options.name}
        write_settings(settings_path(environ), environ, {"mcpServers": left})
        return write_stdout(f"Removed {options.name}.")
    config = server_config(options.name, servers[options.name], environ)
    if options.command == "get":
        return write_stdout(f"{options.name}: {config.shown}")
    if package_missing():
        raise UsageError(MISSING)
    secrets = open_store(environ, settings, TerminalPrompts())
    if options.command in ("login", "logout"):
        return _account(options.command, options.name, config, secrets)
    return asyncio.run(_test(options.name, config, secrets))


def _described(options: argparse.Namespace) -> Json:
    words = options.words[1:] if options.words[0] == "--" else options.words
    if len(words) == 1 and words[0].startswith(("http://", "https://")):
        if options.env:
            raise UsageError("ccb mcp: -e is for a COMMAND, not for a URL", do="Use -H for headers.")
        return {"type": "http", "url": words[0], **_pairs("headers", options.header, ":", "-H")}
    if options.header:
        raise UsageError("ccb mcp: -H is for a URL, not for a COMMAND", do="Use -e for variables.")
    return {"command": words[0], "args": words[1:], **_pairs("env", options.env, "=", "-e")}


def _pairs(key: str, texts: Sequence[str], sign: str, option: str) -> Json:
    found = {}
    for text in texts:
        name, found_sign, value = text.partition(sign)
        if not (name and found_sign):
            raise UsageError(f"ccb mcp: {option} wants NAME{sign}VALUE")
        found[name.strip()] = value.strip()
    return {key: found} if found else {}


async def _test(name: str, config: ServerConfig, secrets: SecretStore) -> int:
    """Start the server, with its stderr on ours, and list its tools."""
    from ..mcp.laptop_server import ClientSide, LaptopServer
    from ..mcp.mcp_login import StoredLogins

    server = LaptopServer(name, config, ClientSide(sys.stderr, auth=StoredLogins(secrets).at))
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
    return write_stdout(f"{name} works: {info['name']} {info['version']}, {len(tools)} tools: {', '.join(tools)}")


def _account(command: str, name: str, config: ServerConfig, secrets: SecretStore) -> int:
    """Log in at a server, or out."""
    from ..mcp.mcp_login import log_in, log_out

    if not isinstance(config, HttpServer):
        raise UsageError(f"{name} is a program on this machine: it has no login", do="Give it what it needs with -e.")
    if command == "logout":
        there = asyncio.run(log_out(config, secrets))
        return write_stdout(f"Logged out of {name}." if there else f"You were not logged in at {name}.")
    return write_stdout(asyncio.run(log_in(name, config, secrets)))
