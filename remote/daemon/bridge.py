"""The bridge: it relays bytes between the exec channel and the session's socket, and does nothing else.

It ends when either end closes, so that neither a dead link nor a dead daemon leaves a bridge behind. Bytes that an end
wrote before it closed still reach the other end: the daemon's goodbye, and the inputs of a laptop that left right after
them.

This module is imported before hello, so it imports next to nothing.
"""

from __future__ import annotations

import os
import select
import socket
import time

_CHUNK = 65536
_MAX_HELD = 1024 * 1024  # bytes held for a reader that is slower than its writer
_LAST_BYTES_S = 5.0  # seconds that one end gets to read the last bytes of the other, closed end


class _Flow:
    """One direction: read from the descriptor `source` while there is room, write to `sink` while there is something
    to write."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.held = bytearray()
        self.ended = False  # the source is at its end
        self.gone = False  # the sink is closed

    @property
    def finished(self) -> bool:
        """Whether all bytes of the source have reached the sink, or cannot reach it any more."""
        return self.ended and (self.gone or not self.held)

    @property
    def broken(self) -> bool:
        """Whether the source or the sink is closed."""
        return self.ended or self.gone

    def wants(self, poller: dict[int, int]) -> None:
        """Add the poll events that this direction waits for to `poller`, which maps descriptors to poll masks."""
        if not self.ended and not self.gone and len(self.held) < _MAX_HELD:
            poller[self.source] = poller.get(self.source, 0) | select.POLLIN
        if self.held and not self.gone:
            poller[self.sink] = poller.get(self.sink, 0) | select.POLLOUT

    def step(self, ready: dict[int, int]) -> bool:
        """Move the bytes that can be moved now. Return whether any were moved."""
        if self.gone:
            return False
        before = len(self.held)
        taken = 0
        if not self.ended and ready.get(self.source, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
            try:
                data = os.read(self.source, _CHUNK)
                self.ended = not data
                self.held += data
            except BlockingIOError:
                pass
            except OSError:
                self.ended = True
        if self.held:
            try:
                taken = os.write(self.sink, self.held[:_CHUNK])
                del self.held[:taken]
            except BlockingIOError:
                pass
            except OSError:
                self.gone = True
                self.held.clear()
        return taken > 0 or len(self.held) != before


def run(channel_in: int, channel_out: int, daemon: socket.socket) -> None:
    """Relay until one end has closed and the other has read the last bytes, or has stopped reading."""
    fd = daemon.fileno()
    for each in (channel_in, channel_out, fd):
        os.set_blocking(each, False)
    inward, outward = _Flow(channel_in, fd), _Flow(fd, channel_out)
    give_up: float | None = None
    while not (inward.finished or outward.finished or (inward.gone and outward.gone)):
        if inward.broken or outward.broken:
            now = time.monotonic()
            give_up = give_up or now + _LAST_BYTES_S
            if now > give_up:
                return
        ready = _poll(inward, outward, timeout_ms=None if give_up is None else 100)
        if ready.get(channel_out, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            outward.gone = True
        inward_moved = inward.step(ready)
        if outward.step(ready) or inward_moved:
            give_up = None


def _poll(inward: _Flow, outward: _Flow, timeout_ms: int | None) -> dict[int, int]:
    """Wait until bytes can be moved. Return the poll events by descriptor."""
    wanted: dict[int, int] = {}
    inward.wants(wanted)
    outward.wants(wanted)
    if not (inward.broken or outward.broken):
        wanted.setdefault(outward.sink, 0)  # a closed channel shows as an error on its output
    poller = select.poll()
    for descriptor, mask in wanted.items():
        poller.register(descriptor, mask)
    return dict(poller.poll(timeout_ms))
