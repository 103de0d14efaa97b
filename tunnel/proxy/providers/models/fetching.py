"""Asks a provider for its list of models. That costs nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from ..credential import CredentialSource, key_headers
from ..network.http_client import ProviderClient
from ..provider import ProviderError, ProviderRequest
from ..request_body import as_body
from .listing import MAX_LIST_BYTES, ListedModel, read_details, read_list

log = logging.getLogger(__name__)

_MOST_DETAILED = 100  # models of which more is asked: servers on a laptop have few


@dataclass(frozen=True)
class ListCall:
    """How a provider is asked for its list. `path` is appended to the base URL, without `strips` at its end.
    `key_header` carries the key where that is another header than that of model calls. `details` is the path that says
    more of one model, "" for none."""

    path: str = "/models"
    strips: str = ""
    key_header: str = ""
    details: str = ""


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
        async with self._client:
            status, body = await self._asked(request)
            if status != 200:
                raise ProviderError(f"it answered its list of models with HTTP {status}")
            try:
                models = read_list(body)
            except ValueError as error:
                raise ProviderError(f"its list of models cannot be read: {error}", permanent=True) from None
            if not self._call.details:
                return models
            return [await self._with_details(each, headers) for each in models[:_MOST_DETAILED]] + models[
                _MOST_DETAILED:
            ]

    async def _with_details(self, model: ListedModel, headers: dict[str, str]) -> ListedModel:
        asked = json.dumps({"model": model.id}).encode()
        more = {**headers, "content-type": "application/json"}
        request = ProviderRequest("POST", self._call.details, more, as_body(asked), len(asked))
        try:
            status, body = await self._asked(request)
        except ProviderError as error:  # the list is good without what would be said of one model
            log.info("no details of the model %s: %s", model.id, error)
            return model
        return replace(model, facts={**model.facts, **(read_details(body) if status == 200 else {})})

    async def _asked(self, request: ProviderRequest) -> tuple[int, bytes]:
        """Return status and body of an answer. Raise ProviderError."""
        body = bytearray()
        async with self._client.request(request) as response:
            async for chunk in response.chunks:
                body += chunk
                if len(body) > MAX_LIST_BYTES:
                    raise ProviderError("its list of models is too long", permanent=True)
        return response.status, bytes(body)


async def _no_body() -> AsyncIterator[bytes]:
    return
    yield b""
