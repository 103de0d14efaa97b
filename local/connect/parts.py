"""What a session needs on this machine and what takes long to import: loaded while the network is busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ccb.tunnel.proxy.core import AuthProxy
from ccb.tunnel.proxy.credential import CredentialSource
from ccb.tunnel.proxy.upstream import Upstream
from ccb.tunnel.transports.pipe import Transport

from ..config.credentials import credential_source
from .basics import Basics, load_basics
from .dial import Dialer, OpenTransport


@dataclass(frozen=True)
class Parts(Basics):
    """With the way to the model."""

    credential: CredentialSource
    upstream: Upstream

    def dialer(self, transport: Transport, open_transport: OpenTransport) -> tuple[Dialer, AuthProxy]:
        """What dials a session, beginning with `transport`, and the auth proxy of the session, to be entered."""
        proxy = AuthProxy(self.credential, self.upstream)
        return Dialer(open_transport, self.bundle, proxy, transport), proxy


def load_parts(environ: Mapping[str, str]) -> Parts:
    """The basics, and the credential's source. Raises ConfigError, CredentialError."""
    basics = load_basics(environ)
    upstream = Upstream.from_environ(environ)
    credential = credential_source(environ, basics.settings, upstream.host)
    return Parts(basics.settings, basics.warnings, basics.bundle, credential, upstream)
