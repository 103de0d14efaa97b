"""What a session needs on this machine and what takes long to import: loaded while the network is busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ccb.deploy import bundle
from ccb.deploy.bundle import Bundle
from ccb.tunnel.pipe import Transport
from ccb.tunnel.proxy.core import AuthProxy
from ccb.tunnel.proxy.credential import CredentialSource
from ccb.tunnel.proxy.upstream import Upstream

from .credentials import credential_source
from .dial import Dialer, OpenTransport
from .settings import Settings, load_settings, settings_path


@dataclass(frozen=True)
class Parts:
    """`warnings` are sentences about the settings file."""

    settings: Settings
    warnings: tuple[str, ...]
    bundle: Bundle
    credential: CredentialSource
    upstream: Upstream

    def dialer(self, transport: Transport, open_transport: OpenTransport) -> tuple[Dialer, AuthProxy]:
        """What dials a session, beginning with `transport`, and the auth proxy of the session, to be entered."""
        proxy = AuthProxy(self.credential, self.upstream)
        return Dialer(open_transport, self.bundle, proxy, transport), proxy


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
