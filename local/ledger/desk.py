"""What the person sees and decides of the model calls of one session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..control.server import ControlServer
from ..control.sockets import ProxyState
from .entries import CallPlace

if TYPE_CHECKING:
    from ccb.tunnel.proxy.core import AuthProxy

    from ..session.remote_session import RemoteSession
    from .accounts import SessionAccounts
    from .audit import SessionAudit


class ProxyDesk:
    """The auth proxy of a session with its accounts and its audit, which it does not own."""

    def __init__(self, proxy: AuthProxy, accounts: SessionAccounts, audit: SessionAudit) -> None:
        self.accounts = accounts
        self._proxy = proxy
        self._audit = audit
        self._place = CallPlace()

    def serves(self, place: CallPlace, *, new: bool = False) -> None:
        """Note what the calls are made for from now on. `new`: the session has no history."""
        if new:
            self._audit.begins()
        self._place = self.accounts.place = self._audit.place = place

    def tell(self, session: RemoteSession) -> None:
        """Let the person of this session read what the proxy notices, and the audit see what they say."""
        self._proxy.warn = self.accounts.warn = self._audit.warn = session.warn
        session.watched_by(self._audit)

    def state(self) -> ProxyState:
        """Return what is to be shown of the proxy."""
        grant, place = self._proxy.grant, self._place
        pid, under_way = os.getpid(), self._proxy.under_way
        return ProxyState(pid, place.session, place.host, place.directory, under_way, grant.revoked, grant.left_s())

    def revoke(self) -> None:
        """Let the session call no models any more, until it is connected by another run of ccb."""
        if not self._proxy.grant.revoked:
            self._proxy.revoke()
            self._audit.revoked()
            self._proxy.warn(
                "This session may call no models any more (revoked). Leave, and resume it, to grant it again."
            )

    def control(self, environ: Mapping[str, str]) -> ControlServer:
        """Return the socket over which other programs of this user see the proxy, and revoke."""
        return ControlServer(environ, self.state, self.revoke)
