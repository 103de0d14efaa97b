"""Makes the providers of clouds: who asks there comes from the tools of the cloud, on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from ccb.tunnel.proxy.providers.clouds.bedrock import BEARER_VARIABLE, Bedrock
from ccb.tunnel.proxy.providers.clouds.cloud import Cloud
from ccb.tunnel.proxy.providers.clouds.provider import CloudProvider
from ccb.tunnel.proxy.providers.clouds.vertex import Vertex
from ccb.tunnel.proxy.providers.models.fetching import Signer
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient

from ..credentials.key_text import checked
from .cloud_places import project_of, region_of
from .named_provider import NamedProvider


def cloud_provider(named: NamedProvider, client: ProviderClient, environ: Mapping[str, str]) -> CloudProvider:
    """Return the provider of a cloud. Raise ConfigError, CredentialError."""
    return CloudProvider(_cloud(named, environ), client, named.name)


def cloud_signer(named: NamedProvider, environ: Mapping[str, str]) -> Signer:
    """Return what proves to a cloud who asks for its list. Raise ConfigError, CredentialError."""
    return _CloudSigner(_cloud(named, environ))


class _CloudSigner:
    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def headers(self, url: str) -> Mapping[str, str]:
        await self._cloud.credential_name()  # the project may come with it
        return await self._cloud.signed(url, {}, b"", "GET")


def _cloud(named: NamedProvider, environ: Mapping[str, str]) -> Cloud:
    own, region = named.own, region_of(named.kind.name, named.own, environ)
    if named.dialect == "bedrock":
        variable = own.keyVariable or BEARER_VARIABLE
        key = environ.get(variable, "").strip()
        return Bedrock(region, own.profile or "", checked(key, variable) if key else None)
    return Vertex(region or "global", project_of(own, environ))
