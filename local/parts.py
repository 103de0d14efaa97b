"""What a session needs on this machine and what takes long to import: loaded while the network is busy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ccb.deploy import bundle
from ccb.deploy.bundle import Bundle
from ccb.tunnel.link import Link
from ccb.tunnel.proxy.core import AuthProxy
from ccb.tunnel.proxy.credential import CredentialSource
from ccb.tunnel.proxy.inband import InbandCalls
from ccb.tunnel.proxy.upstream import Upstream
from ccb.tunnel.secret import Secret

from .credentials import credential_source
from .settings import Settings, load_settings, settings_path


@dataclass(frozen=True)
class Parts:
    """`warnings` are sentences about the settings file."""

    settings: Settings
    warnings: tuple[str, ...]
    bundle: Bundle
    credential: CredentialSource
    upstream: Upstream

    @asynccontextmanager
    async def model_calls(self, link: Link, nonce: Secret) -> AsyncIterator[InbandCalls]:
        """Serve the model calls of a connection that has said hello."""
        async with (
            AuthProxy(self.credential, self.upstream) as proxy,
            InbandCalls(proxy, link.send, nonce, epoch=link.next_epoch) as calls,
        ):
            yield calls


def load_parts(environ: Mapping[str, str]) -> Parts:
    """Read the settings, find the credential's source, build or read the bundle. Raises ConfigError, CredentialError."""
    settings = load_settings(environ)
    upstream = Upstream.from_environ(environ)
    return Parts(
        settings,
        tuple(settings.warnings(settings_path(environ))),
        bundle.load(),
        credential_source(environ, settings, upstream.host),
        upstream,
    )
