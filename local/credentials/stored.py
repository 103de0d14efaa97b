"""The credential of a stored account, which is renewed when its token ends or is refused."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, CredentialError
from ccb.tunnel.login.prompter import NobodyToAsk
from ccb.tunnel.proxy.providers.credential import Credential
from ccb.tunnel.proxy.providers.provider import ProviderError

from ..config.log import state_dir
from ..terminal.stdio import in_thread
from .accounts import Account, ProviderAccounts
from .keyring_store import NoKeyring
from .renewal import TokenRenewal
from .store import open_store

if TYPE_CHECKING:
    from ccb.tunnel.login.prompter import Prompts

    from ..config.settings import Settings

log = logging.getLogger(__name__)

EARLY_S = 60.0
"""Seconds before its end at which a token is renewed."""

REFUSED_NEW_S = 60.0
"""A token that is younger than this and refused is not renewed: another one would be refused, too."""

_LOCK_S = 60.0
_LOOK_S = 0.05


class StoredCredentials:
    """The stored accounts for the sessions of one host, with one store, `secrets`, that is unlocked at most once.
    `prompts` may ask for its passphrase; without them nobody is asked."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        settings: Settings,
        prompts: Prompts | None = None,
        host: str = "",
    ) -> None:
        self._environ = settings.network.over(environ)
        self._settings = settings
        self._host = host
        self.secrets = open_store(environ, settings, prompts or NobodyToAsk())

    def of(self, provider: str, at: str, *, missing: CredentialError | None = None) -> StoredCredential:
        """Return the credential for a provider, which is reached at the host `at`. Nothing is read before `get`, which
        raises `missing` if nothing is stored."""
        accounts = ProviderAccounts(self.secrets, at, state_dir(self._environ), missing=missing)
        return StoredCredential(accounts, self.chosen(provider), TokenRenewal(self._environ))

    def chosen(self, provider: str) -> str | None:
        """Return the account of a provider that the settings name, None if they name none."""
        return self._settings.credentials.account_for(provider, self._host)


class StoredCredential:
    """One account, read once, and again after the provider refused it.

    Several ccb at once renew a token once: who comes second finds the new one in the store.
    """

    def __init__(self, accounts: ProviderAccounts, name: str | None, renewal: TokenRenewal) -> None:
        self._accounts = accounts
        self._name = name
        self._renewal = renewal
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
            elif self._renewal.clock() - self._renewed_at >= REFUSED_NEW_S:
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
        return known.expires - self._renewal.clock() < seconds

    async def _renew(self) -> None:
        """Take a new token from the store, where another ccb may have put it, or from the provider."""
        async with self._alone():
            stale, current = self._known, await self._read()
            if stale is None or current.secret != stale.secret or current.refresh is None:
                self._known = current
            else:
                self._known = fresh = await self._renewal.renew(current)
                try:
                    await in_thread(lambda: self._accounts.renewed(fresh))
                except CcbError as error:  # this run has its token; the next one may have to log in
                    log.warning("a new token cannot be stored", exc_info=error)
        self._renewed_at = self._renewal.clock()

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
            where, missing = self._accounts.host, self._accounts.missing
            raise missing or CredentialError(
                f"No model credential for {where}.", evidence=error.what, do=error.do
            ) from None

    def _credential(self, account: Account) -> Credential:
        return account.credential(f"account {account.name}")
