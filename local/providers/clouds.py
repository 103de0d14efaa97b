"""Makes the providers of clouds: who asks there comes from the tools of the cloud, on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from ccb.tunnel.proxy.providers.clouds.bedrock import BEARER_VARIABLE, Bedrock
from ccb.tunnel.proxy.providers.clouds.cloud import Cloud
from ccb.tunnel.proxy.providers.clouds.provider import CloudProvider
from ccb.tunnel.proxy.providers.clouds.vertex import Vertex
from ccb.tunnel.proxy.providers.network.http_client import ProviderClient

from ..credentials.key_text import checked
from .named import NamedProvider
from .places import project_of, region_of


def cloud_provider(named: NamedProvider, client: ProviderClient, environ: Mapping[str, str]) -> CloudProvider:
    """Return the provider of a cloud. Raise ConfigError, CredentialError."""
    own, region = named.own, region_of(named.kind.name, named.own, environ)
    cloud: Cloud
    if named.dialect == "bedrock":
        variable = own.keyVariable or BEARER_VARIABLE
        key = environ.get(variable, "").strip()
        cloud = Bedrock(region, own.profile or "", checked(key, variable) if key else None)
    else:
        cloud = Vertex(region or "global", project_of(own, environ))
    return CloudProvider(cloud, client, named.name)
