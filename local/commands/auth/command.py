"""`ccb auth login`, `status` and `logout`: manage the credentials of providers in the keyring of this machine, or in a
file that a passphrase encrypts."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping, Sequence

from ...command_line.exit_codes import ExitCode
from ...config.settings_loading import load_settings
from ...credentials.accounts import Kind
from ...terminal.guarded_streams import say
from ..running import CommandParser, exit_code
from .login import LoginWish, login
from .status import log_out, status
from .targets import target


def run_auth(args: Sequence[str]) -> int:
    """Run `ccb auth ARGS` and return the exit code."""
    try:
        return exit_code(lambda: _run(args, os.environ))
    except (KeyboardInterrupt, EOFError):
        say("", "Nothing was stored.")
        return ExitCode.INTERRUPTED


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = auth_parser().parse_args(list(args))
    if options.command == "login":
        kind: Kind = "oauth" if options.oauth_stdin else "bearer" if options.bearer else "api_key"
        wish = LoginWish(
            provider=options.provider,
            account=options.account,
            kind=kind,
            from_stdin=options.api_key_stdin or options.oauth_stdin,
            in_file=options.file,
            workspace=options.workspace,
        )
        login(environ, wish)
        return ExitCode.OK
    settings = load_settings(environ)
    if options.command == "status":
        return asyncio.run(status(environ, settings, options.provider, as_json=options.json))
    where = target(options.provider, environ, settings)
    return asyncio.run(log_out(environ, settings, where, options.account, everything=options.all))


def auth_parser() -> CommandParser:
    parser = CommandParser(
        prog="ccb auth", description="Keep the credentials of model providers in the keyring of this machine."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="login|status|logout")
    login_ = commands.add_parser("login", help="check a credential with the provider and store it")
    _provider(login_, "anthropic")
    login_.add_argument("--account", metavar="NAME", default="default", help="name of the account (default: default)")
    how = login_.add_mutually_exclusive_group()
    how.add_argument("--api-key-stdin", action="store_true", help="read the key from stdin instead of asking for it")
    how.add_argument(
        "--oauth-stdin",
        action="store_true",
        help="read a login from stdin, as JSON: access_token, refresh_token, client_id, expires_in, token_url",
    )
    login_.add_argument("--bearer", action="store_true", help="it is a token, sent in `Authorization: Bearer`")
    login_.add_argument("--workspace", metavar="ID", default="", help="Anthropic's workspace that the account uses")
    login_.add_argument(
        "--file", action="store_true", help="store it in a file that a passphrase encrypts, not in the keyring"
    )
    status_ = commands.add_parser("status", help="show which credentials are used, where they are, and when they end")
    _provider(status_, "")
    status_.add_argument("--json", action="store_true", help="print one JSON object for each provider")
    logout_ = commands.add_parser("logout", help="remove a stored credential")
    _provider(logout_, "anthropic")
    logout_.add_argument("--account", metavar="NAME", default="", help="the account, if there are several")
    logout_.add_argument("--all", action="store_true", help="remove all accounts of the provider")
    return parser


def _provider(parser: argparse.ArgumentParser, default: str) -> None:
    known = f" (default: {default})" if default else " (default: all)"
    parser.add_argument(
        "provider", metavar="PROVIDER", nargs="?", default=default, help=f"as in front of a model{known}"
    )
