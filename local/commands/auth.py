"""`ccb auth login`, `status` and `logout`: manage the model credential in the keyring of this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from ccb.tunnel.errors import CcbError, ConfigError, CredentialError, Unreachable, UsageError
from ccb.tunnel.proxy.providers.anthropic import anthropic_client, anthropic_endpoint, list_models
from ccb.tunnel.proxy.providers.credential import Credential
from ccb.tunnel.proxy.providers.provider import ProviderError
from ccb.tunnel.secret import Secret

from ..command_line.error_text import code_of, error_text
from ..command_line.exit_codes import ExitCode
from ..config.credentials import HELPER, KEYRING, checked, environ_credential
from ..config.keyring_store import KeyStore, NoKeyring
from ..config.settings import load_settings, settings_path
from ..terminal.line_prompt import read_secret

_CHECK_S = 30.0


class _AuthParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"ccb auth: {message}", do="See `ccb auth --help`.")


def run_auth(args: Sequence[str]) -> int:
    """Run `ccb auth ARGS` and return the exit code."""
    try:
        return _run(args, os.environ)
    except CcbError as error:
        sys.stderr.write(error_text(error))
        return code_of(error)
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\nNothing was stored.\n")
        return ExitCode.INTERRUPTED
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    options = auth_parser().parse_args(list(args))
    host = anthropic_endpoint(environ, allow_plain=True).host
    if options.command == "login":
        login(environ, from_stdin=options.api_key_stdin)
        return ExitCode.OK
    return _status(host, environ) if options.command == "status" else _logout(host, environ)


def auth_parser() -> _AuthParser:
    parser = _AuthParser(prog="ccb auth", description="Keep the API key of the model in the keyring of this machine.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="login|status|logout")
    login = commands.add_parser("login", help="check a key against the API and store it")
    login.add_argument("--api-key-stdin", action="store_true", help="read the key from stdin instead of asking for it")
    commands.add_parser("status", help="show which credential is used")
    commands.add_parser("logout", help="remove the stored key")
    return parser


def login(environ: Mapping[str, str], *, from_stdin: bool = False) -> None:
    """Ask for a key, check it with the provider, and store it. Raises CcbError; nothing is stored then."""
    host = anthropic_endpoint(environ, allow_plain=True).host
    store = KeyStore()
    backend = store.require()
    key = _read_key(host, from_stdin=from_stdin)
    note = asyncio.run(_check(key, host))
    store.put(host, key)
    _print(f"Stored the key for {host} in the keyring ({backend}).{note}")
    shadow = _shadowed_by(environ)
    if shadow:
        _print(f"{shadow} is set, and ccb uses it instead of the stored key.")


def _read_key(host: str, *, from_stdin: bool) -> Secret:
    if from_stdin:
        text = sys.stdin.read(64 * 1024)
    elif sys.stdin.isatty():
        text = read_secret(f"API key for {host} (not shown): ")
    else:
        raise UsageError(
            "There is no terminal to ask for the key.", do="Pipe it into `ccb auth login --api-key-stdin`."
        )
    return checked(text, "the input")


async def _check(key: Secret, host: str) -> str:
    """Check the key by requesting the API's list of models.

    Returns a note for the person. Raises CredentialError or Unreachable.
    """
    try:
        async with asyncio.timeout(_CHECK_S):
            status, _ = await list_models(anthropic_client(), Credential(KEYRING, api_key=key))
    except ProviderError as error:
        raise _not_checked(host, str(error)) from None
    except TimeoutError:
        raise _not_checked(host, f"no answer within {_CHECK_S:g} s") from None
    if status in (401, 403):
        raise CredentialError(
            f"{host} refused the key (HTTP {status}); nothing was stored.",
            do="Copy the key again from the provider's console.",
        )
    if status in (200, 429):
        return ""
    if status in (404, 405):
        return f" It could not be checked: {host} has no list of models."
    raise _not_checked(host, f"it answered HTTP {status}")


def _not_checked(host: str, cause: str) -> Unreachable:
    return Unreachable(
        f"The key could not be checked with {host}; nothing was stored.",
        evidence=cause,
        do="Check the network (HTTPS_PROXY, SSL_CERT_FILE, ANTHROPIC_BASE_URL) and try again.",
    )


def _status(host: str, environ: Mapping[str, str]) -> int:
    found = environ_credential(environ)
    if found is not None:
        _print(f"Credential for {host}: {found.source} from the environment, sent as {found.kind.value}.")
        return ExitCode.OK
    if load_settings(environ).apiKeyHelper:
        _print(f"Credential for {host}: {HELPER} in {settings_path(environ)}, which runs when a session needs it.")
        return ExitCode.OK
    store = KeyStore()
    try:
        stored = store.get(host) is not None
    except NoKeyring as error:
        _print(f"Credential for {host}: none.\n{error}")
        return ExitCode.AUTH_FAILED
    if stored:
        _print(f"Credential for {host}: an API key in the keyring ({store.require()}).")
        return ExitCode.OK
    _print(f"Credential for {host}: none. Run `ccb auth login`, or export ANTHROPIC_API_KEY.")
    return ExitCode.AUTH_FAILED


def _logout(host: str, environ: Mapping[str, str]) -> int:
    removed = KeyStore().delete(host)
    _print(f"Removed the key for {host} from the keyring." if removed else f"The keyring has no key for {host}.")
    shadow = _shadowed_by(environ)
    if shadow:
        _print(f"{shadow} is still set, and ccb goes on using it.")
    return ExitCode.OK


def _shadowed_by(environ: Mapping[str, str]) -> str:
    """Return the name of the source that ccb uses before the keyring: a variable or the helper; "" if neither is
    set."""
    found = environ_credential(environ)
    if found is not None:
        return found.source
    with suppress(ConfigError):
        return HELPER if load_settings(environ).apiKeyHelper else ""
    return ""


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
