"""The bridge: bytes between the exec channel and the session's socket, and nothing else.

It lives as long as both ends do: it leaves on end of file from the channel and from the socket alike, so that neither a dead
link nor a dead daemon keeps it. What one end said before it left still reaches the other: the daemon's last words, and
the inputs of a laptop that went right after them. On the way to hello, so it imports next to nothing.
"""

from __future__ import annotations

import os
import select
import socket
import time

_CHUNK = 65536
_LIMIT = 1024 * 1024  # bytes held for a reader that is slower than its writer
_LAST_WORDS_S = 5.0  # how long the bytes of an end that has left are offered to the other


class _Flow:
    """One direction: read from `source` while there is room, write to `sink` while there is something."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.held = bytearray()
        self.ended = False  # the source has no more
        self.gone = False  # the sink takes no more

    @property
    def finished(self) -> bool:
        """Everything the source ever said has reached the sink, or never will."""
        return self.ended and (self.gone or not self.held)

    def wants(self, poller: dict[int, int]) -> None:
        if not self.ended and not self.gone and len(self.held) < _LIMIT:
            poller[self.source] = poller.get(self.source, 0) | select.POLLIN
        if self.held and not self.gone:
            poller[self.sink] = poller.get(self.sink, 0) | select.POLLOUT

    def step(self, ready: dict[int, int]) -> bool:
        """Move what can be moved; whether anything was."""
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
    """Relay until one end has left and the other has taken what it said, or does not take it for a while."""
    fd = daemon.fileno()
    for each in (channel_in, channel_out, fd):
        os.set_blocking(each, False)
    inward, outward = _Flow(channel_in, fd), _Flow(fd, channel_out)
    patience_ends: float | None = None
    while not (inward.finished or outward.finished or (inward.gone and outward.gone)):
        wanted: dict[int, int] = {}
        inward.wants(wanted)
        outward.wants(wanted)
        if inward.ended or inward.gone or outward.ended or outward.gone:
            now = time.monotonic()
            patience_ends = patience_ends or now + _LAST_WORDS_S
            if now > patience_ends:
                return
        else:
            wanted.setdefault(channel_out, 0)  # a closed channel shows as an error on its output
        poller = select.poll()
        for each, mask in wanted.items():
            poller.register(each, mask)
        ready = dict(poller.poll(None if patience_ends is None else 100))
        if ready.get(channel_out, 0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            outward.gone = True
        inward_moved = inward.step(ready)
        if outward.step(ready) or inward_moved:
            patience_ends = None
