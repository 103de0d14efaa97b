"""The order of a session's events on one link: each arrives once, without a gap, and is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import ProtocolError

ACK_EVENTS = 64
"""After how many events an acknowledgement is sent at the latest."""

ACK_SECONDS = 1.0
"""After how many seconds an event is acknowledged at the latest."""


class EventOrder:
    """Checks the numbers of events and acknowledges them: `send_ack` is called with the number of the last one."""

    def __init__(self, send_ack: Callable[[int], None], ack_seconds: float) -> None:
        self._send_ack = send_ack
        self._ack_seconds = ack_seconds
        self._seq = 0
        self._acked = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def last(self) -> int:
        """The number of the last event that has arrived."""
        return self._seq

    def begin(self, have: int) -> None:
        """Start after event `have`: the client has all events up to it."""
        self._seq = self._acked = have

    def close(self) -> None:
        """Acknowledge nothing more."""
        if self._timer is not None:
            self._timer.cancel()

    def take(self, seq: int) -> bool:
        """Note that event `seq` has arrived.

        Return False if it had arrived before. Raise ProtocolError if events before it are missing.
        """
        if seq <= self._seq:
            return False
        if seq != self._seq + 1:
            raise ProtocolError(
                f"events {self._seq + 1} to {seq - 1} of the session are missing",
                do="Attach again. If it happens again, run with --debug and report it.",
            )
        self._arrived(seq)
        return True

    def skip_to(self, seq: int, host: str) -> None:
        """Count all events up to `seq` as arrived: a snapshot stands for them. Raise ProtocolError if later ones have
        arrived already."""
        if seq < self._seq:
            raise ProtocolError(f"{host} sent a snapshot of events that have already arrived")
        self._arrived(seq)

    def _arrived(self, seq: int) -> None:
        self._seq = seq
        if seq - self._acked >= ACK_EVENTS:
            self._acknowledge()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._ack_seconds, self._acknowledge)

    def _acknowledge(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._acked = self._seq
        self._send_ack(self._seq)
