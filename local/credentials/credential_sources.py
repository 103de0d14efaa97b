"""Where the credential of a provider comes from, and how stored tokens are renewed; each goes to one host only."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, CredentialError, NoCredential
from ccb.tunnel.providers.credential import Credential, CredentialSource, FixedCredential
from ccb.tunnel.providers.http_client import ProviderClient, endpoint_at
from ccb.tunnel.providers.provider import ProviderError, ProviderRequest, WholeBody
from ccb.tunnel.secret import Secret
from ccb.tunnel.transports.login_prompts import NobodyToAsk

from ..config.log import state_dir
from ..terminal.stdio import in_thread
from .accounts import Account, ProviderAccounts
from .credential_helper import HELPER, OAUTH_BETA, HelperCredential, checked, checked_workspace, is_login_token
from .secret_store import NoKeyring, open_store

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts

    from ..config.settings import Settings


log = logging.getLogger(__name__)

_USUAL_S = 3600.0
_REFUSED = (400, 401, 403)
API_KEY_VARIABLE = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  # the name of a variable
WORKSPACE_VARIABLE = "ANTHROPIC_WORKSPACE_ID"
ANTHROPIC = "anthropic"
EARLY_S = 60.0  # seconds before its end at which a token is renewed
REFUSED_NEW_S = 60.0  # a token that is younger than this and refused is not renewed: another one would be refused, too
_LOCK_S = 60.0
_LOOK_S = 0.05


async def renew(account: Account, environ: Mapping[str, str], now: float) -> Account:
    """Return the account with a new token of its token endpoint, in Anthropic's form of OAuth's refresh grant. Raise
    ProviderError, or CredentialError if the endpoint refuses."""
    assert account.refresh is not None
    grant = {"grant_type": "refresh_token", "refresh_token": account.refresh.reveal()}
    body = json.dumps({**grant, "client_id": account.client_id}).encode()
    headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "ccb"}
    request = ProviderRequest("POST", "", {**headers, "anthropic-beta": OAUTH_BETA}, WholeBody(body))
    endpoint = endpoint_at(account.token_url, "the token URL of the login", environ)
    async with ProviderClient(endpoint, environ) as client, client.request(request) as response:
        answer = await response.start()
    if response.status in _REFUSED:
        raise CredentialError(
            f"The login of account {account.name} is over: {endpoint.host} answered HTTP {response.status}.",
            do="Log in again: `ccb auth login --oauth-stdin`.",
        )
    if response.status != 200:
        raise ProviderError(f"{endpoint.host} answered HTTP {response.status} to the renewal of a token")
    try:
        fields = json.loads(answer)
        token, refresh, lasts = fields["access_token"], fields.get("refresh_token"), fields.get("expires_in")
    except (ValueError, TypeError, KeyError, AttributeError):
        token, refresh, lasts = "", None, None
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise ProviderError(f"{endpoint.host} answered the renewal of a token with no token")
    log.info("renewed the token of account %s at %s", account.name, endpoint.host)
    seconds = lasts if isinstance(lasts, int | float) and not isinstance(lasts, bool) else _USUAL_S
    new_refresh = Secret(refresh) if isinstance(refresh, str) and refresh else account.refresh
    return replace(account, secret=Secret(token), refresh=new_refresh, expires=now + seconds)


def credential_source(
    environ: Mapping[str, str], settings: Settings, host: str, stored: StoredCredentials
) -> CredentialSource:
    """Return the first configured source of Anthropic's credential. Nothing is run or unlocked before `get`."""
    if given := stored.given(host):
        return given
    if workspace := environ.get(WORKSPACE_VARIABLE, "").strip():
        workspace = checked_workspace(workspace, WORKSPACE_VARIABLE)
    else:
        own = settings.credentials.workspace or ""
        workspace = checked_workspace(own, "credentials.workspace of the settings")
    from_environ = environ_credential(environ, workspace)
    if from_environ is not None:
        return FixedCredential(from_environ)
    if settings.apiKeyHelper:
        keep_s = settings.credentials.helperSeconds
        return HelperCredential(settings.apiKeyHelper, environ, keep_s=keep_s, workspace=workspace)
    return stored.of(ANTHROPIC, host)


def environ_credential(environ: Mapping[str, str], workspace: str = "") -> Credential | None:
    """Return the credential in the environment variables, or None. Raises CredentialError."""
    key, token = environ.get(API_KEY_VARIABLE, "").strip(), environ.get(TOKEN_VARIABLE, "").strip()
    if not key and not token:
        return None
    source = API_KEY_VARIABLE if key else TOKEN_VARIABLE
    api_key = checked(key, API_KEY_VARIABLE) if key else None
    bearer = checked(token, TOKEN_VARIABLE) if token else None
    if is_login_token(bearer or api_key):
        return Credential(source, bearer=bearer or api_key, workspace=workspace, betas=(OAUTH_BETA,))
    return Credential(source, api_key=api_key, bearer=bearer, workspace=workspace)


def api_key_source(source: str) -> str:
    """Return the `apiKeySource` of system/init: the public protocol calls all others `none`."""
    return source if source in (API_KEY_VARIABLE, HELPER) else "none"


class StoredCredentials:
    """The accounts for sessions of one host. `secrets` is unlocked at most once; without `prompts` nobody is asked.
    `environ` has what the settings say of the network. What the person has `given` in this run counts more than all
    other sources."""

    def __init__(
        self, environ: Mapping[str, str], *, settings: Settings, prompts: Prompts | None = None, host: str = ""
    ) -> None:
        self.environ = settings.network.over(environ)
        self.settings = settings
        self.prompts = prompts or NobodyToAsk()
        self._host = host
        self.secrets = open_store(environ, settings, self.prompts)

    def of(self, provider: str, at: str, *, missing: NoCredential | None = None) -> StoredCredential:
        """Return the credential for a provider at the host `at`. `get` raises `missing` if nothing is stored."""
        accounts = ProviderAccounts(self.secrets, at, state_dir(self.environ), missing=missing)
        return StoredCredential(accounts, self.chosen(provider), self.environ)

    def given(self, at: str) -> CredentialSource | None:
        found = self.prompts.memory.given.get((self._host, at))
        return found if isinstance(found, FixedCredential | StoredCredential) else None

    def give(self, at: str, source: CredentialSource) -> None:
        """Use a credential for a provider's host from now on, also in the sessions that follow in this run."""
        self.prompts.memory.given[self._host, at] = source

    def chosen(self, provider: str) -> str | None:
        return self.settings.credentials.account_for(provider, self._host)


class StoredCredential:
    """One account, read once, and again when it is refused. Several ccb at once renew a token once. `clock` is the time
    of day."""

    def __init__(
        self,
        accounts: ProviderAccounts,
        name: str | None,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._accounts = accounts
        self._name = name
        self._environ = environ
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: Account | None = None
        self._renewed_at = float("-inf")

    async def get(self) -> Credential:
        async with self._lock:
            if self._known is None:
                self._known = await self._read()
            if self._ends_within(EARLY_S):
                try:
                    await self._renew()
                except ProviderError:
                    if self._ends_within(0):
                        raise
            return self._credential(self._known)

    async def refused(self, credential: Credential) -> bool:
        async with self._lock:
            known = self._known
            if known is None or self._credential(known) != credential:
                return known is not None
            if known.refresh is None:
                self._known = None
                with suppress(CcbError):
                    self._known = await self._read()
            elif self._clock() - self._renewed_at >= REFUSED_NEW_S:
                try:
                    await self._renew()
                except ProviderError as error:
                    log.warning("a refused token cannot be renewed now: %s", error)
                    return True  # the next try comes with the next call
                except CredentialError:  # the next call says so, unless the person has logged in again by then
                    self._known = replace(known, expires=0.0)
                    return True
            return self._known is not None and self._credential(self._known) != credential

    def _ends_within(self, seconds: float) -> bool:
        known = self._known
        if known is None or known.refresh is None or known.expires is None:
            return False
        return known.expires - self._clock() < seconds

    async def _renew(self) -> None:
        """Take a new token from the store, where another ccb may have put it, or from the provider."""
        async with self._alone():
            stale, current = self._known, await self._read()
            if stale is None or current.secret != stale.secret or current.refresh is None:
                self._known = current
            else:
                self._known = fresh = await renew(current, self._environ, self._clock())
                try:
                    await in_thread(lambda: self._accounts.renewed(fresh))
                except CcbError as error:  # this run has its token; the next one may have to log in
                    log.warning("a new token cannot be stored", exc_info=error)
        self._renewed_at = self._clock()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        with ExitStack() as stack:
            try:
                async with asyncio.timeout(_LOCK_S):
                    while True:
                        try:
                            stack.enter_context(self._accounts.alone(wait=False))
                            break
                        except BlockingIOError:
                            await asyncio.sleep(_LOOK_S)
            except TimeoutError:
                raise ProviderError("another ccb has not ended the renewal of the token") from None
            yield

    async def _read(self) -> Account:
        await self._accounts.store.unlock()
        try:
            # A thread of its own: a keyring may wait for its password for ever, and the loop waits for its own threads.
            return await in_thread(lambda: self._accounts.chosen(self._name))
        except NoKeyring as error:
            missing, what, do = self._accounts.missing, error.what, error.do
            where = self._accounts.host
            raise missing or NoCredential(f"No model credential for {where}.", evidence=what, do=do) from None

    def _credential(self, account: Account) -> Credential:
        return account.credential(f"account {account.name}")
