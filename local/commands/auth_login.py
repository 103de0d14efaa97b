"""`ccb auth login`: ask for a credential, check it, store it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ccb.tunnel.errors import ConfigError, CredentialError, Unreachable, UsageError
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.credential import Credential, in_one_header, key_headers
from ccb.tunnel.providers.http_client import Endpoint, ProviderClient, endpoint_at
from ccb.tunnel.providers.model_lists import load_sdk
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.providers.provider_kinds import KINDS
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import AccountOptions
from ..config.log import state_dir
from ..config.settings import Settings
from ..config.settings_loading import load_settings
from ..credentials.accounts import DEFAULT, Account, ProviderAccounts, checked_name
from ..credentials.credential_helper import HELPER, checked, checked_workspace
from ..credentials.credential_sources import ANTHROPIC, API_KEY_VARIABLE, TOKEN_VARIABLE
from ..credentials.encrypted_file import MIN_PASSPHRASE, EncryptedFile, credentials_path
from ..credentials.secret_store import KeyStore, NoKeyring, SecretStore, open_store
from ..providers.named_provider import named_provider, refuse_provider
from ..terminal.console import print_line, say
from ..terminal.terminal_prompts import TerminalPrompts, read_secret

NOTHING_GIVEN = AccountOptions()
_CHECK_S = 30.0
_MAX_INPUT = 64 * 1024
_MILLISECONDS = 1e11  # a Unix time above this is in milliseconds, as some tools keep it
_TOKEN_PATH = "/v1/oauth/token"  # noqa: S105  # a path
_CLAUDE_CODE = "9d1c250a-e61b-44d9-88ed-5944d1962f5e"
"""The client that Claude Code logs in as, which its file does not name: a login can only be renewed by its client."""

_CLAUDE_CODE_RENEWS_AT = "https://console.anthropic.com/v1/oauth/token"

Json = dict[str, Any]


def login(environ: Mapping[str, str], provider: str = ANTHROPIC, given: AccountOptions = NOTHING_GIVEN) -> None:
    """Ask for a credential, check it with the provider, and store it. Raises CcbError; nothing is stored then."""
    settings = load_settings(environ)
    environ = settings.network.over(environ)
    where = target(provider, environ, settings)
    if where.name == ANTHROPIC:
        anthropic_endpoint(environ)  # no credential without TLS
    name = checked_name(given.account or DEFAULT)
    store = _store(environ, settings, given)
    account = replace(_read(where, name, given), workspace=checked_workspace(given.workspace, "--workspace"))
    note = asyncio.run(_check(where, account, environ))
    asyncio.run(store.unlock(create=True))
    accounts = ProviderAccounts(store, where.host, state_dir(environ))
    accounts.put(account)
    named = "" if account.name == DEFAULT else f" of account {account.name}"
    print_line(f"Stored the {_what(account)}{named} for {where.host} in {store.described()}.{note}")
    _say_what_counts(environ, settings, where, account, alone=len(accounts.all()) == 1)


def _store(environ: Mapping[str, str], settings: Settings, given: AccountOptions) -> SecretStore:
    prompts = TerminalPrompts()
    file = EncryptedFile(credentials_path(environ), environ, prompts, helper=settings.credentials.passphraseHelper)
    if given.in_file:
        return file
    store = open_store(environ, settings, prompts)
    try:
        store.described()
    except NoKeyring:
        if settings.credentials.store == "keyring" or _from_stdin(given) or not sys.stdin.isatty():
            raise
        say(
            f"This machine has no keyring. The credential goes into {file.path}, encrypted under a passphrase of at "
            f"least {MIN_PASSPHRASE} characters; ccb asks for it once in each run."
        )
        return file
    return store


def _from_stdin(given: AccountOptions) -> bool:
    return given.api_key_stdin or given.oauth_stdin


def _read(where: AuthTarget, name: str, given: AccountOptions) -> Account:
    if _from_stdin(given):
        text = sys.stdin.read(_MAX_INPUT)
    elif sys.stdin.isatty():
        text = read_secret(f"{'token' if given.bearer else 'API key'} for {where.host} (not shown): ")
    else:
        raise UsageError(
            "There is no terminal to ask for the key.", do="Pipe it into `ccb auth login --api-key-stdin`."
        )
    if given.oauth_stdin:
        return _login_in(text, where, name)
    return Account(name, "bearer" if given.bearer else "api_key", checked(text, "the input"))


def _login_in(text: str, where: AuthTarget, name: str) -> Account:
    if where.name != ANTHROPIC:
        raise UsageError("only Anthropic's logins can be renewed", do="Store a key, or use keyHelper in the settings.")
    try:
        given = _as_answered(json.loads(text))
        token, refresh, client = (str(given[each]) for each in ("access_token", "refresh_token", "client_id"))
        ends, lasts = given.get("expires_at"), given.get("expires_in")
        if ends is not None and float(ends) > _MILLISECONDS:
            ends = float(ends) / 1000
        expires = float(ends) if ends is not None else time.time() + float(lasts) if lasts is not None else None
        token_url = str(given.get("token_url") or str(where.endpoint.base).rstrip("/") + _TOKEN_PATH)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UsageError(
            "The input is not a login.", do="Give a JSON object with access_token, refresh_token and client_id."
        ) from None
    return Account(
        name,
        "oauth",
        checked(token, "access_token"),
        expires=expires,
        refresh=checked(refresh, "refresh_token"),
        token_url=token_url,
        client_id=client,
    )


def _as_answered(given: Json) -> Json:
    kept = given.get("claudeAiOauth")
    if not isinstance(kept, dict):
        return given
    return {
        "access_token": kept["accessToken"],
        "refresh_token": kept["refreshToken"],
        "expires_at": kept.get("expiresAt"),
        "client_id": kept.get("clientId") or _CLAUDE_CODE,
        "token_url": _CLAUDE_CODE_RENEWS_AT,
    }


async def _check(where: AuthTarget, account: Account, environ: Mapping[str, str]) -> str:
    """Check the credential with a request that costs nothing.

    Returns a note for the person. Raises CredentialError or Unreachable.
    """
    if account.token_url:
        endpoint_at(account.token_url, "token_url", environ)
    try:
        async with asyncio.timeout(_CHECK_S):
            status = await where.ask(account.credential("the input"), environ)
    except ProviderError as error:
        raise _not_checked(where.host, str(error)) from None
    except TimeoutError:
        raise _not_checked(where.host, f"no answer within {_CHECK_S:g} s") from None
    if status in (401, 403):
        raise CredentialError(
            f"{where.host} refused the key (HTTP {status}); nothing was stored.",
            do="Copy the key again from the provider's console.",
        )
    if status in (200, 429):
        return ""
    if status in (404, 405):
        return f" It could not be checked: {where.host} has no list of models."
    raise _not_checked(where.host, f"it answered HTTP {status}")


def _not_checked(host: str, cause: str) -> Unreachable:
    return Unreachable(
        f"The key could not be checked with {host}; nothing was stored.",
        evidence=cause,
        do="Check the network (HTTPS_PROXY, SSL_CERT_FILE, ANTHROPIC_BASE_URL) and try again.",
    )


def _say_what_counts(
    environ: Mapping[str, str], settings: Settings, where: AuthTarget, account: Account, *, alone: bool
) -> None:
    shadow = shadowed_by(environ, where)
    if shadow:
        print_line(f"{shadow} is set, and ccb uses it instead of the stored key.")
        return
    chosen = settings.credentials.account_for(where.name, "")
    taken = where.needs_key and (account.name == (chosen or DEFAULT) or (alone and chosen is None))
    if not taken and chosen != account.name:
        example = json.dumps({"credentials": {"account": {where.name: account.name}}})
        print_line(f"To use it, set {example} in settings.json (`hosts` there sets it for single hosts).")
    if settings.credentials.store == "auto" and credentials_path(environ).exists():
        with suppress(ConfigError):
            KeyStore().require()
            print_line('This machine has a keyring, too. To use the file, set {"credentials": {"store": "file"}}.')


def shadowed_by(environ: Mapping[str, str], where: AuthTarget) -> str:
    """Return the name of the source that ccb uses before stored accounts: a variable or the helper; "" if neither is
    set."""
    variable = next((name for name in where.variables if environ.get(name, "").strip()), "")
    return variable or (where.helper_name if where.helper else "")


def _what(account: Account) -> str:
    return {"api_key": "key", "bearer": "token", "oauth": "login"}[account.kind]


_CHECKED_AT = {"openrouter": "/key"}
"""Where a kind of provider refuses a wrong key; `/models` elsewhere. OpenRouter's list of models is for everybody."""


@dataclass(frozen=True)
class AuthTarget:
    """A provider. `variables` may hold its key, and the command `helper` may print it; `helper_name` is the setting.
    `key_header` carries the key, "" for the headers of the Messages API. A key is checked by the client of `sdk`: at
    the path `checked_at`, or with the list of models. `needs_key` is False for a server that often runs without
    one."""

    name: str
    endpoint: Endpoint
    sdk: str
    checked_at: str
    key_header: str
    variables: tuple[str, ...]
    helper: str
    helper_name: str
    needs_key: bool = True

    @property
    def host(self) -> str:
        return self.endpoint.host

    async def ask(self, credential: Credential, environ: Mapping[str, str]) -> int:
        """Return the status of a request that costs nothing and shows whether the credential is good. Raise
        ProviderError."""
        await asyncio.to_thread(load_sdk, self.sdk)
        from ccb.tunnel.providers.sdk_clients import SdkClient

        sent = in_one_header(credential, self.key_header) if self.key_header and self.sdk == "anthropic" else credential
        headers = key_headers(sent, "" if self.sdk == "anthropic" else self.key_header)

        async def sign(url: str) -> Mapping[str, str]:
            return headers

        async with SdkClient(self.sdk, ProviderClient(self.endpoint, environ), sign) as api:
            answer = await api.get(self.checked_at) if self.checked_at else await api.list_models()
            return answer.status_code


def target(name: str, environ: Mapping[str, str], settings: Settings) -> AuthTarget:
    """Return the provider with a name. Raise UsageError, ConfigError."""
    if name == ANTHROPIC:
        endpoint = anthropic_endpoint(environ, allow_plain=True)
        variables = (API_KEY_VARIABLE, TOKEN_VARIABLE)
        return AuthTarget(name, endpoint, "anthropic", "", "", variables, settings.apiKeyHelper or "", HELPER)
    named = named_provider(name, environ, settings)
    if named is None:
        refuse_provider(name, settings)
    own, kind = named.own, named.kind
    if named.dialect in ("bedrock", "vertex"):
        raise UsageError(f"{name} is signed with the credentials of the cloud's own tools", do="Log in with those.")
    anthropic = named.dialect == "anthropic"
    return AuthTarget(
        name,
        named.endpoint(environ),
        "anthropic" if anthropic else "openai",
        _CHECKED_AT.get(kind.name, ""),
        own.keyHeader or "" if anthropic else named.key_header,
        (own.keyVariable,) if own.keyVariable else kind.key_variables,
        own.keyHelper or "",
        f"providers.{name}.keyHelper",
        kind.needs_key,
    )


def targets(environ: Mapping[str, str], settings: Settings) -> Iterator[AuthTarget]:
    """Yield Anthropic, the providers of the settings, and those that ccb knows; not those without an address."""
    for name in dict.fromkeys((ANTHROPIC, *settings.providers, *KINDS)):
        try:
            yield target(name, environ, settings)
        except (ConfigError, UsageError):  # it is not set up
            continue
