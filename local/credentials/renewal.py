"""Get a new token for a login, with its refresh token. Both stay on this laptop."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from ccb.tunnel.errors import CredentialError
from ccb.tunnel.proxy.providers.network.endpoint import endpoint_at
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient
from ccb.tunnel.proxy.providers.provider import ProviderError, ProviderRequest
from ccb.tunnel.secret import Secret

from .accounts import Account
from .key_text import OAUTH_BETA

log = logging.getLogger(__name__)

_MAX_ANSWER = 64 * 1024
_USUAL_S = 3600.0
_REFUSED = (400, 401, 403)


class TokenRenewal:
    """Asks the provider's token endpoint, in Anthropic's form of OAuth's refresh grant. `clock` is the time of day."""

    def __init__(self, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.time) -> None:
        self._environ = environ
        self.clock = clock

    async def renew(self, account: Account) -> Account:
        """Return the account with a new token. Raise ProviderError if the endpoint cannot be reached, CredentialError
        if it takes the refresh token no more."""
        assert account.refresh is not None
        grant = {"grant_type": "refresh_token", "refresh_token": account.refresh.reveal()}
        body = json.dumps({**grant, "client_id": account.client_id}).encode()
        headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "ccb"}
        request = ProviderRequest("POST", "", {**headers, "anthropic-beta": OAUTH_BETA}, _whole(body), len(body))
        endpoint = endpoint_at(account.token_url, "the token URL of the login", self._environ)
        async with ProviderClient(endpoint, self._environ) as client, client.request(request) as response:
            answer = await _start(response.chunks)
        if response.status in _REFUSED:
            raise CredentialError(
                f"The login of account {account.name} is over: {endpoint.host} answered HTTP {response.status}.",
                do="Log in again: `ccb auth login --oauth-stdin`.",
            )
        if response.status != 200:
            raise ProviderError(f"{endpoint.host} answered HTTP {response.status} to the renewal of a token")
        log.info("renewed the token of account %s at %s", account.name, endpoint.host)
        return self._taken(account, answer, endpoint.host)

    def _taken(self, account: Account, answer: bytes, host: str) -> Account:
        try:
            fields = json.loads(answer)
            token, refresh, lasts = fields["access_token"], fields.get("refresh_token"), fields.get("expires_in")
        except (ValueError, TypeError, KeyError, AttributeError):
            token, refresh, lasts = "", None, None
        if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
            raise ProviderError(f"{host} answered the renewal of a token with no token")
        seconds = lasts if isinstance(lasts, int | float) and not isinstance(lasts, bool) else _USUAL_S
        return replace(
            account,
            secret=Secret(token),
            refresh=Secret(refresh) if isinstance(refresh, str) and refresh else account.refresh,
            expires=self.clock() + seconds,
        )


async def _whole(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _start(chunks: AsyncIterator[bytes]) -> bytes:
    kept = bytearray()
    async for chunk in chunks:
        kept += chunk[: _MAX_ANSWER - len(kept)]
        if len(kept) >= _MAX_ANSWER:
            break
    return bytes(kept)
