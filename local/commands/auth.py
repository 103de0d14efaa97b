"""`ccb auth`: log in (ask for a credential, check it, store it), status, log out."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ccb.tunnel.errors import ConfigError, CredentialError, UsageError
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.provider_kinds import KINDS
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments, HostCommandOptions
from ..command_line.exit_codes import ExitCode
from ..config.log import state_dir
from ..config.settings import Settings, settings_path
from ..config.settings_loading import load_settings
from ..credentials.accounts import DEFAULT, Account, ProviderAccounts, checked_name
from ..credentials.credential_helper import checked, checked_workspace
from ..credentials.credential_sources import ANTHROPIC, environ_credential
from ..credentials.encrypted_file import MIN_PASSPHRASE, EncryptedFile, credentials_path
from ..credentials.secret_store import KeyStore, NoKeyring, SecretStore, open_store
from ..providers.key_login import AuthTarget, check_account, target
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import TerminalPrompts, ask

NOTHING_GIVEN = HostCommandOptions()
_MAX_INPUT = 64 * 1024
_MILLISECONDS = 1e11  # a Unix time above this is in milliseconds, as some tools keep it
_TOKEN_PATH = "/v1/oauth/token"  # noqa: S105  # a path
_CLAUDE_CODE = "9d1c250a-e61b-44d9-88ed-5944d1962f5e"
"""The client that Claude Code logs in as, which its file does not name: a login can only be renewed by its client."""

_CLAUDE_CODE_RENEWS_AT = "https://console.anthropic.com/v1/oauth/token"
_KINDS = {"api_key": "an API key", "bearer": "a token", "oauth": "a login"}


def run_auth(arguments: Arguments, environ: Mapping[str, str]) -> int:
    action, provider = arguments.rest[0], next(iter(arguments.rest[1:]), "")
    options = arguments.host_command
    try:
        if action == "login":
            login(environ, provider or ANTHROPIC, options)
            return ExitCode.OK
        settings = load_settings(environ)
        if action == "status":
            return asyncio.run(_status(environ, settings, provider, as_json=options.json))
        where = target(provider or ANTHROPIC, environ, settings)
        return asyncio.run(_log_out(environ, settings, where, options.account or "", all=options.all))
    except (KeyboardInterrupt, EOFError):
        say("", "Nothing was stored.")
        return ExitCode.INTERRUPTED


def _targets(environ: Mapping[str, str], settings: Settings) -> Iterator[AuthTarget]:
    for name in dict.fromkeys((ANTHROPIC, *settings.providers, *KINDS)):
        with suppress(ConfigError, UsageError):  # it is not set up
            yield target(name, environ, settings)


def login(environ: Mapping[str, str], provider: str = ANTHROPIC, given: HostCommandOptions = NOTHING_GIVEN) -> None:
    """Ask for a credential, check it with the provider, and store it. Raises CcbError; nothing is stored then."""
    settings = load_settings(environ)
    environ = settings.network.over(environ)
    where = target(provider, environ, settings)
    if where.named.name == ANTHROPIC:
        anthropic_endpoint(environ)  # no credential without TLS
    name = checked_name(given.account or DEFAULT)
    store = _store(environ, settings, given)
    account = replace(_read(where, name, given), workspace=checked_workspace(given.workspace, "--workspace"))
    note = asyncio.run(check_account(where, account, environ))
    asyncio.run(store.unlock(create=True))
    accounts = ProviderAccounts(store, where.host, state_dir(environ))
    accounts.put(account)
    what = {"api_key": "key", "bearer": "token", "oauth": "login"}[account.kind]
    named = "" if account.name == DEFAULT else f" of account {account.name}"
    print_line(f"Stored the {what}{named} for {where.host} in {store.described()}.{note}")
    if shadow := where.outranks(environ):
        print_line(f"{shadow} is set, and ccb uses it instead of the stored key.")
        return
    chosen = settings.credentials.account_for(where.named.name, "")
    alone = len(accounts.all()) == 1
    taken = where.named.kind.needs_key and (account.name == (chosen or DEFAULT) or (alone and chosen is None))
    if not taken and chosen != account.name:
        example = json.dumps({"credentials": {"account": {where.named.name: account.name}}})
        print_line(f"To use it, set {example} in settings.json (`hosts` there sets it for single hosts).")
    if settings.credentials.store == "auto" and credentials_path(environ).exists():
        with suppress(ConfigError):
            KeyStore().require()
            print_line('This machine has a keyring, too. To use the file, set {"credentials": {"store": "file"}}.')


def _store(environ: Mapping[str, str], settings: Settings, given: HostCommandOptions) -> SecretStore:
    prompts = TerminalPrompts()
    file = EncryptedFile(credentials_path(environ), environ, prompts, helper=settings.credentials.passphraseHelper)
    if given.in_file:
        return file
    asks = sys.stdin.isatty() and not (given.api_key_stdin or given.oauth_stdin)
    store = open_store(environ, settings, prompts, creates=asks)
    store.described()
    if isinstance(store, EncryptedFile) and settings.credentials.store == "auto" and not store.exists():
        say(
            f"This machine has no keyring. The credential goes into {file.path}, encrypted under a passphrase of at "
            f"least {MIN_PASSPHRASE} characters; ccb asks for it once in each run."
        )
    return store


def _read(where: AuthTarget, name: str, given: HostCommandOptions) -> Account:
    if given.oauth_stdin:
        return _login_in(sys.stdin.read(_MAX_INPUT), where, name)
    if given.api_key_stdin:
        text = sys.stdin.read(_MAX_INPUT)
    elif sys.stdin.isatty():
        text = ask(f"{'token' if given.bearer else 'API key'} for {where.host} (not shown): ", hidden=True)
    else:
        raise UsageError("There is no terminal to ask for the key.", do="Pipe it: `ccb auth login --api-key-stdin`.")
    return Account(name, "bearer" if given.bearer else "api_key", checked(text, "the input"))


def _login_in(text: str, where: AuthTarget, name: str) -> Account:
    """Read the answer of a token endpoint, or Claude Code's file of credentials. Raise UsageError, CredentialError."""
    if where.named.name != ANTHROPIC:
        raise UsageError("only Anthropic's logins can be renewed", do="Store a key, or use keyHelper in the settings.")
    try:
        given = json.loads(text)
        if isinstance(kept := given.get("claudeAiOauth"), dict):
            given = {
                "access_token": kept["accessToken"],
                "refresh_token": kept["refreshToken"],
                "expires_at": kept.get("expiresAt"),
                "client_id": kept.get("clientId") or _CLAUDE_CODE,
                "token_url": _CLAUDE_CODE_RENEWS_AT,
            }
        token, refresh, client = (str(given[each]) for each in ("access_token", "refresh_token", "client_id"))
        ends, lasts = given.get("expires_at"), given.get("expires_in")
        if ends is not None:
            ends = float(ends) / 1000 if float(ends) > _MILLISECONDS else float(ends)
        elif lasts is not None:
            ends = time.time() + float(lasts)
        token_url = str(given.get("token_url") or str(where.endpoint.base).rstrip("/") + _TOKEN_PATH)
    except (ValueError, TypeError, KeyError, AttributeError):
        do = "Give a JSON object with access_token, refresh_token and client_id."
        raise UsageError("The input is not a login.", do=do) from None
    secret, refresh_token = checked(token, "access_token"), checked(refresh, "refresh_token")
    return Account(name, "oauth", secret, expires=ends, refresh=refresh_token, token_url=token_url, client_id=client)


@dataclass(frozen=True)
class _Found:
    """`used` is in words, "" without a credential; `problem` is why stored accounts cannot be read."""

    where: AuthTarget
    used: str
    accounts: Mapping[str, Account]
    chosen: str = ""
    store: str = ""
    problem: str = ""

    def object(self) -> dict[str, object]:
        return {
            "provider": self.where.named.name,
            "host": self.where.host,
            "used": self.used or None,
            "store": self.store or None,
            "accounts": [
                {"name": each.name, "kind": each.kind, "expires": each.expires, "workspace": each.workspace or None}
                for each in self.accounts.values()
            ],
            "account": self.chosen or None,
        }

    def lines(self) -> list[str]:
        other = "" if self.where.named.name == ANTHROPIC else self.where.named.name
        none = f"none. Run `ccb auth login {other}`."
        if not other:
            none = "none. Run `ccb auth login`, or export ANTHROPIC_API_KEY."
        if self.problem:
            none = "none."
        elif self.accounts:
            none = "none is chosen: set credentials.account in the settings."
        return [
            f"Credential for {self.where.host}{f' ({other})' if other else ''}: {self.used or none}",
            *filter(None, [self.problem]),
            *(
                f"  also stored: {_named(each)}{_ends(each)}"
                for each in self.accounts.values()
                if each.name != self.chosen
            ),
        ]


async def _status(environ: Mapping[str, str], settings: Settings, provider: str, *, as_json: bool) -> int:
    store = open_store(environ, settings, TerminalPrompts())
    chosen = [target(provider, environ, settings)] if provider else list(_targets(environ, settings))
    all_found = [await _found(each, environ, settings, store) for each in chosen]
    shown = [each for each in all_found if each.used or each.accounts or each.where.named.name in (provider, ANTHROPIC)]
    for each in shown:
        print_line(*([json.dumps(each.object())] if as_json else each.lines()))
    return ExitCode.OK if any(each.used for each in shown) else ExitCode.AUTH_FAILED


async def _found(where: AuthTarget, environ: Mapping[str, str], settings: Settings, store: SecretStore) -> _Found:
    before = _before(where, environ)
    try:
        place = store.described()
        await store.unlock()
        accounts = ProviderAccounts(store, where.host, state_dir(environ)).all()
    except (NoKeyring, CredentialError) as error:
        return _Found(where, before, {}, problem="" if before else str(error))
    name = settings.credentials.account_for(where.named.name, "")
    chosen = accounts.get(name or DEFAULT) or (next(iter(accounts.values())) if len(accounts) == 1 else None)
    if chosen is None or (not where.named.kind.needs_key and name != chosen.name):
        return _Found(where, before, accounts, store=place)
    used = before or f"{_named(chosen)} in {place}{_ends(chosen)}."
    return _Found(where, used, accounts, "" if before else chosen.name, place)


def _before(where: AuthTarget, environ: Mapping[str, str]) -> str:
    """Return the source that counts more than stored accounts in words, "" without one."""
    if where.named.name == ANTHROPIC and (credential := environ_credential(environ)) is not None:
        return f"{credential.source} from the environment, sent as {credential.kind}."
    if (source := where.outranks(environ)) and source != where.helper:
        return f"{source} from the environment."
    return f"{where.helper} in {settings_path(environ)}, which runs when a session needs it." if where.helper else ""


async def _log_out(environ: Mapping[str, str], settings: Settings, where: AuthTarget, name: str, *, all: bool) -> int:
    store = open_store(environ, settings, TerminalPrompts())
    await store.unlock()
    accounts = ProviderAccounts(store, where.host, state_dir(environ))
    place = store.described().partition(" (")[0]
    if all:
        removed = store.delete(where.host)
    else:
        names = list(accounts.all())
        if not name and len(names) > 1:
            raise UsageError(f"{where.host} has several accounts: {', '.join(names)}", do="Name one: --account NAME.")
        removed = accounts.remove(name or (names[0] if names else DEFAULT))
    if removed:
        print_line(f"Removed {f'the account {name}' if name else 'the key'} for {where.host} from {place}.")
    else:
        print_line(f"{place[0].upper()}{place[1:]} has no key for {where.host}.")
    if shadow := where.outranks(environ):
        print_line(f"{shadow} is still set, and ccb goes on using it.")
    return ExitCode.OK


def _named(account: Account) -> str:
    name = "" if account.name == DEFAULT else f"account {account.name}, "
    workspace = f" for workspace {account.workspace}" if account.workspace else ""
    return f"{name}{_KINDS[account.kind]}{workspace}"


def _ends(account: Account) -> str:
    if account.expires is None:
        return ""
    left = account.expires - time.time()
    minutes = round(abs(left) / 60)
    size = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1440} days"
    when = f"ends in {size}" if left > 0 else f"ended {size} ago"
    return f"; its token {when}{', and is renewed' if account.refresh else ''}"
