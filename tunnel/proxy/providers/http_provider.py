"""What all providers share that send their own requests over HTTP: one client, one source of the credential."""

from __future__ import annotations

from typing import Self

from ...errors import CredentialError
from ..policy import ROUTES
from .credential import Credential, CredentialSource
from .network.http_client import ProviderClient
from .provider import ProviderError


class HttpProvider:
    """See `Provider`; `exchange` is missing. `credential` is None for a server that wants none. `given_name` is the
    name that the person has given the provider, "" for the one without a name in front of its models."""

    def __init__(self, credential: CredentialSource | None, client: ProviderClient, given_name: str = "") -> None:
        self._credential = credential
        self._client = client
        self._given_name = given_name

    @property
    def name(self) -> str:
        host = self._client.endpoint.host
        return f"{self._given_name} ({host})" if self._given_name else host

    @property
    def what_to_check(self) -> str:
        return f"{self._client.endpoint.variable}, the network, HTTPS_PROXY"

    @property
    def routes(self) -> frozenset[tuple[str, str]]:
        return ROUTES

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__(None, None, None)

    def prepare(self) -> None:
        self._client.prepare()

    async def credential_name(self) -> str:
        try:
            return (await self._credential.get()).source if self._credential is not None else "none"
        except ProviderError as error:  # what renews the token cannot be reached
            raise CredentialError("The model credential cannot be renewed.", evidence=str(error)) from None

    async def _may_have_another(self, refused: Credential | None) -> bool:
        """Return whether the next call may send another credential than the one that the provider has refused."""
        return self._credential is not None and refused is not None and await self._credential.refused(refused)
