"""Asks a provider for its list of models. That costs nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ....wire.dataclass import dataclass
from ..credential import CredentialSource, key_headers
from ..network.http_client import ProviderClient
from ..provider import ProviderError, ProviderRequest
from ..request_body import WholeBody, as_body
from .listing import MAX_LIST_BYTES, MAX_LISTED, ListedModel, read_details, read_page

log = logging.getLogger(__name__)

_MAX_DETAILED = 100  # models of which more is asked: servers on a laptop have few
_MAX_PARTS = 20


@dataclass(frozen=True)
class ListCall:
    """How a provider is asked for its list. `path` is appended to the base URL, without `strips` at its end; `more` are
    the paths of lists that belong to it, too. `key_header` carries the key where that is another header than that of
    model calls. `details` is the path that says more of one model, "" for none. With `of_project`, the path has a place
    for the name of a project, and is appended to the host."""

    path: str = "/models"
    strips: str = ""
    key_header: str = ""
    details: str = ""
    more: tuple[str, ...] = ()
    of_project: bool = False


class Signer(Protocol):
    """Proves who asks."""

    async def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers that a request for a list has. Raise CredentialError, ConfigError."""


class KeySigner:
    """Sends a key in a header. `credential` is None for a server that wants none."""

    def __init__(self, credential: CredentialSource | None, key_header: str) -> None:
        self._credential = credential
        self._key_header = key_header

    async def headers(self, url: str) -> Mapping[str, str]:
        credential = await self._credential.get() if self._credential is not None else None
        return key_headers(credential, self._key_header)


class ModelSource:
    """A provider that is asked for its list: where it is, and with which credential. Each `fetch` opens a connection of
    its own: it is rare, and nothing stays open behind it."""

    def __init__(self, client: ProviderClient, signer: Signer, call: ListCall) -> None:
        self._client = client
        self._signer = signer
        self._call = call

    async def fetch(self) -> list[ListedModel]:
        """Return the models. Raise ProviderError, which says why there is no list, CredentialError, ConfigError."""
        models: dict[str, ListedModel] = {}
        async with self._client:
            for path in (self._call.path, *self._call.more):
                for model in await self._listed(path):
                    if len(models) < MAX_LISTED:
                        models.setdefault(model.id, model)
            found = list(models.values())
            if not self._call.details:
                return found
            headers = await self._headers(self._call.details)
            return [await self._with_details(each, headers) for each in found[:_MAX_DETAILED]] + found[_MAX_DETAILED:]

    async def _listed(self, path: str) -> list[ListedModel]:
        """Return the models of one list, of all its parts."""
        models: list[ListedModel] = []
        asked = path
        for _ in range(_MAX_PARTS):
            request = ProviderRequest("GET", asked, await self._headers(asked), WholeBody([]), 0)
            status, body = await self._asked(request)
            if status != 200:
                raise ProviderError(f"it answered its list of models with HTTP {status}")
            try:
                part, more = read_page(body)
            except ValueError as error:
                raise ProviderError(f"its list of models cannot be read: {error}", permanent=True) from None
            models += part
            if not more:
                break
            asked = path.partition("?")[0] + "?" + "&".join(_parameters(path, more))
        return models

    async def _headers(self, path: str) -> dict[str, str]:
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        return {**headers, "user-agent": "ccb", **await self._signer.headers(str(self._client.endpoint.url(path)))}

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


def _parameters(path: str, more: str) -> list[str]:
    """Return the parameters of a path, and those of the next part, which outrank them."""
    given = more.split("&")
    names = {each.partition("=")[0] for each in given}
    return [each for each in path.partition("?")[2].split("&") if each and each.partition("=")[0] not in names] + given
