"""`ccb auth`: status, logout."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping

from ccb.tunnel.errors import CredentialError, UsageError
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..config.log import state_dir
from ..config.settings import Settings, settings_path
from ..config.settings_loading import load_settings
from ..credentials.accounts import DEFAULT, Account, ProviderAccounts
from ..credentials.credential_sources import ANTHROPIC, environ_credential
from ..credentials.secret_store import NoKeyring, SecretStore, open_store
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import TerminalPrompts
from .auth_login import AuthTarget, login, shadowed_by, target, targets


def run_auth(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> int:
    """Run `ccb auth` and return the exit code."""
    action, provider = arguments.rest[0], next(iter(arguments.rest[1:]), "")
    given = arguments.account
    try:
        if action == "login":
            login(environ, provider or ANTHROPIC, given)
            return ExitCode.OK
        settings = load_settings(environ)
        if action == "status":
            return asyncio.run(status(environ, settings, provider, as_json=arguments.host_command.json))
        where = target(provider or ANTHROPIC, environ, settings)
        everything = arguments.host_command.all
        return asyncio.run(log_out(environ, settings, where, given.account or "", everything=everything))
    except (KeyboardInterrupt, EOFError):
        say("", "Nothing was stored.")
        return ExitCode.INTERRUPTED


_KINDS = {"api_key": "an API key", "bearer": "a token", "oauth": "a login"}


@dataclass(frozen=True)
class _Found:
    """What is known of one provider. `used` is in words, "" without a credential; `problem` is why stored accounts
    cannot be read."""

    where: AuthTarget
    used: str
    accounts: Mapping[str, Account]
    chosen: str
    store: str
    problem: str = ""

    def object(self) -> dict[str, object]:
        accounts = [
            {"name": each.name, "kind": each.kind, "expires": each.expires, "workspace": each.workspace or None}
            for each in self.accounts.values()
        ]
        found: dict[str, object] = {"provider": self.where.name, "host": self.where.host, "used": self.used or None}
        return {**found, "store": self.store or None, "accounts": accounts, "account": self.chosen or None}


async def status(environ: Mapping[str, str], settings: Settings, provider: str, *, as_json: bool) -> int:
    """Print the credentials of a provider, or of all that have one, and return the exit code."""
    store = open_store(environ, settings, TerminalPrompts())
    chosen = [target(provider, environ, settings)] if provider else list(targets(environ, settings))
    all_found = [await _found(each, environ, settings, store) for each in chosen]
    shown = [each for each in all_found if each.used or each.accounts or each.where.name in (provider, ANTHROPIC)]
    for each in shown:
        print_line(*([json.dumps(each.object())] if as_json else _lines(each)))
    wanted = next((each for each in shown if each.where.name == (provider or ANTHROPIC)), shown[0])
    return ExitCode.OK if any(each.used for each in ([wanted] if provider else shown)) else ExitCode.AUTH_FAILED


async def log_out(
    environ: Mapping[str, str], settings: Settings, where: AuthTarget, name: str, *, everything: bool
) -> int:
    """Remove an account, or all of a provider."""
    store = open_store(environ, settings, TerminalPrompts())
    await store.unlock()
    accounts = ProviderAccounts(store, where.host, state_dir(environ))
    place = store.described().partition(" (")[0]
    if everything:
        removed = store.delete(where.host)
    else:
        names = list(accounts.all())
        if not name and len(names) > 1:
            raise UsageError(f"{where.host} has several accounts: {', '.join(names)}", do="Name one: --account NAME.")
        removed = accounts.remove(name or (names[0] if names else DEFAULT))
    what = f"the account {name}" if name else "the key"
    if removed:
        print_line(f"Removed {what} for {where.host} from {place}.")
    else:
        print_line(f"{place[0].upper()}{place[1:]} has no key for {where.host}.")
    shadow = shadowed_by(environ, where)
    if shadow:
        print_line(f"{shadow} is still set, and ccb goes on using it.")
    return ExitCode.OK


async def _found(where: AuthTarget, environ: Mapping[str, str], settings: Settings, store: SecretStore) -> _Found:
    before = _before(where, environ)
    try:
        place = store.described()
        await store.unlock()
        accounts = ProviderAccounts(store, where.host, state_dir(environ)).all()
    except (NoKeyring, CredentialError) as error:
        return _Found(where, before, {}, "", "", "" if before else str(error))
    name = settings.credentials.account_for(where.name, "")
    chosen = accounts.get(name or DEFAULT) or (next(iter(accounts.values())) if len(accounts) == 1 else None)
    if chosen is None or (not where.needs_key and name != chosen.name):
        return _Found(where, before, accounts, "", place)
    used = before or f"{_named(chosen)} in {place}{_ends(chosen)}."
    return _Found(where, used, accounts, "" if before else chosen.name, place)


def _before(where: AuthTarget, environ: Mapping[str, str]) -> str:
    """Return the source that counts more than stored accounts in words, "" without one."""
    if where.name == ANTHROPIC and (credential := environ_credential(environ)) is not None:
        return f"{credential.source} from the environment, sent as {credential.kind.value}."
    source = shadowed_by(environ, where)
    if source in where.variables:
        return f"{source} from the environment."
    return f"{source} in {settings_path(environ)}, which runs when a session needs it." if source else ""


def _lines(found: _Found) -> list[str]:
    name = "" if found.where.name == ANTHROPIC else f" ({found.where.name})"
    none = "none. Run `ccb auth login`, or export ANTHROPIC_API_KEY."
    if found.where.name != ANTHROPIC:
        none = f"none. Run `ccb auth login {found.where.name}`."
    if found.problem:
        none = "none."
    elif not found.used and found.accounts:
        none = "none is chosen: set credentials.account in the settings."
    lines = [
        f"Credential for {found.where.host}{name}: {found.used or none}",
        *([found.problem] if found.problem else []),
    ]
    others = [each for each in found.accounts.values() if each.name != found.chosen]
    lines += [f"  also stored: {_named(each)}{_ends(each)}" for each in others]
    return lines


def _named(account: Account) -> str:
    name = "" if account.name == DEFAULT else f"account {account.name}, "
    workspace = f" for workspace {account.workspace}" if account.workspace else ""
    return f"{name}{_KINDS[account.kind]}{workspace}"


def _ends(account: Account) -> str:
    if account.expires is None:
        return ""
    left = account.expires - time.time()
    when = f"ends in {_minutes(left)}" if left > 0 else f"ended {_minutes(-left)} ago"
    return f"; its token {when}{', and is renewed' if account.refresh else ''}"


def _minutes(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2_880 else f"{minutes // 1440} days"
