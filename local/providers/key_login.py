"""Check the key of a provider, and in a session ask for it: it is kept where the person says, and used at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ccb.tunnel.errors import CcbError, ConfigError, CredentialError, Unreachable, UsageError
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.credential import Credential, CredentialSource, FixedCredential, key_headers
from ccb.tunnel.providers.http_client import Endpoint, ProviderClient, endpoint_at
from ccb.tunnel.providers.model_lists import ListCall, ModelSource
from ccb.tunnel.providers.model_router import ModelRouter
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.exit_codes import error_lines
from ..config.log import state_dir
from ..config.settings import Settings
from ..credentials.accounts import DEFAULT, Account, ProviderAccounts
from ..credentials.credential_helper import HELPER, checked
from ..credentials.credential_sources import ANTHROPIC, StoredCredentials
from ..credentials.encrypted_file import MIN_PASSPHRASE, EncryptedFile
from ..credentials.secret_store import SecretStore, open_store
from ..terminal.stdio import in_thread
from .known_models import default_provider
from .named_provider import NamedProvider, named_provider, refuse_provider

_CHECK_S = 30.0
_TRIES = 3
_CHECKED_AT = {"openrouter": "/key"}
"""Where a kind of provider refuses a wrong key; `/models` elsewhere. OpenRouter's list of models is for everybody."""


@dataclass(frozen=True)
class AuthTarget:
    """A provider and its address. `helper` names the setting of a command that prints its key, "" without one."""

    named: NamedProvider
    endpoint: Endpoint
    helper: str

    @property
    def host(self) -> str:
        return self.endpoint.host

    def outranks(self, environ: Mapping[str, str]) -> str:
        """Return the variable or setting whose key counts more than stored accounts, "" without one."""
        own = self.named.own.keyVariable
        names = (own,) if own else self.named.kind.key_variables
        return next((name for name in names if environ.get(name, "").strip()), "") or self.helper

    async def ask(self, credential: Credential, environ: Mapping[str, str]) -> int:
        """Return the status of a request that costs nothing and shows whether the credential is good."""
        named = self.named
        sdk = "anthropic" if named.dialect == "anthropic" else "openai"
        call = ListCall(_CHECKED_AT.get(named.kind.name, ""), sdk=sdk)

        async def sign(url: str) -> Mapping[str, str]:
            return key_headers(credential, named.key_header, named.own.keyHeader)

        source = ModelSource(ProviderClient(self.endpoint, environ), sign, call)
        await source.load()
        async with source.client:
            return (await source.ask(call.path))[0]


def target(name: str, environ: Mapping[str, str], settings: Settings) -> AuthTarget:
    if name == ANTHROPIC:
        endpoint = anthropic_endpoint(environ, allow_plain=True)
        return AuthTarget(default_provider(), endpoint, HELPER if settings.apiKeyHelper else "")
    named = named_provider(name, environ, settings)
    if named is None:
        refuse_provider(name, settings)
    if named.dialect in ("bedrock", "vertex"):
        raise UsageError(f"{name} is signed with the credentials of the cloud's own tools", do="Log in with those.")
    return AuthTarget(named, named.endpoint(environ), f"providers.{name}.keyHelper" if named.own.keyHelper else "")


async def check_account(where: AuthTarget, account: Account, environ: Mapping[str, str]) -> str:
    """Check the credential, and return a note for the person. Raise CredentialError, Unreachable."""
    if account.token_url:
        endpoint_at(account.token_url, "token_url", environ)
    try:
        async with asyncio.timeout(_CHECK_S):
            status = await where.ask(account.credential("the input"), environ)
    except (ProviderError, TimeoutError) as error:
        cause = str(error) or f"no answer within {_CHECK_S:g} s"
    else:
        if status in (401, 403):
            do = "Copy the key again from the provider's console."
            raise CredentialError(f"{where.host} refused the key (HTTP {status}); nothing was stored.", do=do)
        if status in (200, 429):
            return ""
        if status in (404, 405):
            return f" It could not be checked: {where.host} has no list of models."
        cause = f"it answered HTTP {status}"
    raise Unreachable(
        f"The key could not be checked with {where.host}; nothing was stored.",
        evidence=cause,
        do="Check the network (HTTPS_PROXY, SSL_CERT_FILE, ANTHROPIC_BASE_URL) and try again.",
    )


async def log_in(provider: str, router: ModelRouter, stored: StoredCredentials, why: str = "") -> str:
    """Ask for the key of a provider, and let the session send it from its next request on. `why` is shown first.
    Return what the person is told, "" if they give no key. Raise CcbError."""
    where = target(provider, stored.environ, stored.settings)
    given = await _asked(where, stored, why)
    if given is None:
        return ""
    account, note = given
    store = await _keep(where, account, stored)
    source: CredentialSource = FixedCredential(account.credential("the input"))
    told = f"The key for {where.host} is used from now on, until ccb ends; it is not kept.{note}"
    if store is not None:
        stored.secrets = store
        source = stored.of(provider, where.host)
        told = f"Stored the key for {where.host} in {store.described()}. It is used from now on.{note}"
    stored.give(where.host, source)
    router.use_credential(where.host, source)
    shadow = where.outranks(stored.environ)
    return f"{told} {shadow} is set: the next run of ccb uses its key." if shadow else told


async def _asked(where: AuthTarget, stored: StoredCredentials, why: str) -> tuple[Account, str] | None:
    """Return a key that the provider takes, and a note; None if the person gives up."""
    name, said = stored.chosen(where.named.name) or DEFAULT, why
    question = f"API key for {where.host} (not shown; Enter for none): "
    for left in reversed(range(_TRIES)):
        answers = await stored.prompts.challenge(said, "", [(question, False)])
        if not answers or not answers[0].strip():
            return None
        try:
            account = Account(name, "api_key", checked(answers[0], "the input"))
            stored.prompts.banner(f"Checking the key with {where.host} …")
            return account, await check_account(where, account, stored.environ)
        except (CredentialError, Unreachable) as error:
            if not left:
                raise
            said = "\n".join(error_lines(error))
    return None


async def _keep(where: AuthTarget, account: Account, stored: StoredCredentials) -> SecretStore | None:
    """Keep the account if the person wants that. Return where it is now, None for nowhere."""
    try:
        store = await in_thread(lambda: open_store(stored.environ, stored.settings, stored.prompts, creates=True))
        place = await in_thread(store.described)
    except ConfigError as error:  # there is no keyring, or a broken one
        stored.prompts.banner("\n".join(error_lines(error)))
        return None
    said = f"It can be kept in {place}."
    if isinstance(store, EncryptedFile) and not store.exists():
        said += f"\nccb asks for its passphrase, of at least {MIN_PASSPHRASE} characters, once in each run."
    question = "Keep it for later sessions? (yes/no; Enter for yes) "
    accounts = ProviderAccounts(store, where.host, state_dir(stored.environ))
    while True:
        answers = await stored.prompts.challenge(said, "", [(question, True)])
        if not answers or answers[0].lower() not in ("", "y", "yes"):
            return None
        try:
            await store.unlock(create=True)
            await in_thread(lambda: accounts.put(account))
            return store
        except CcbError as error:
            said = "\n".join(error_lines(error))
