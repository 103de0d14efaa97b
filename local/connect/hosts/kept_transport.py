"""A connection to the host that outlives a session: the next session of the same run needs no login."""

from __future__ import annotations

from ccb.tunnel.transports.pipe import Transport

from ..dial import Dialer


class KeptTransport:
    """Keeps the transport between two sessions. Use with `async with`; it closes what it keeps."""

    def __init__(self) -> None:
        self._transport: Transport | None = None

    async def __aenter__(self) -> KeptTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def keep(self, dialer: Dialer) -> None:
        """Take over the transport of a dialer that has ended."""
        self._transport = dialer.release()

    async def take(self) -> Transport | None:
        """Return the transport if it still works."""
        transport, self._transport = self._transport, None
        if transport is not None and not transport.alive:
            await transport.close()
            return None
        return transport
