"""Asks a provider for its list of models. That costs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..credential import CredentialSource, key_headers
from ..network.http_client import ProviderClient
from ..provider import ProviderError, ProviderRequest
from .listing import MAX_LIST_BYTES, ListedModel, read_list


@dataclass(frozen=True)
class ListCall:
    """How a provider is asked for its list. `path` is appended to the base URL, without `strips` at its end.
    `key_header` carries the key where that is another header than that of model calls."""

    path: str = "/models"
    strips: str = ""
    key_header: str = ""


class ModelSource:
    """A provider that is asked for its list: where it is, and with which credential. Each `fetch` opens a connection of
    its own: it is rare, and nothing stays open behind it."""

    def __init__(
        self, client: ProviderClient, credential: CredentialSource | None, call: ListCall, key_header: str
    ) -> None:
        self._client = client
        self._credential = credential
        self._call = call
        self._key_header = call.key_header or key_header

    async def fetch(self) -> list[ListedModel]:
        """Return the models. Raise ProviderError, which says why there is no list, CredentialError, ConfigError."""
        credential = await self._credential.get() if self._credential is not None else None
        headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "ccb"}
        headers |= key_headers(credential, self._key_header)
        request = ProviderRequest("GET", self._call.path, headers, _no_body(), 0)
        async with self._client, self._client.request(request) as response:
            body = bytearray()
            async for chunk in response.chunks:
                body += chunk
                if len(body) > MAX_LIST_BYTES:
                    raise ProviderError("its list of models is too long", permanent=True)
        if response.status != 200:
            raise ProviderError(f"it answered its list of models with HTTP {response.status}")
        try:
            return read_list(bytes(body))
        except ValueError as error:
            raise ProviderError(f"its list of models cannot be read: {error}", permanent=True) from None


async def _no_body() -> AsyncIterator[bytes]:
    return
    yield b""
