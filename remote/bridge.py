"""The bridge: bytes between the exec channel and the session's socket, and nothing else.

It lives as long as both ends do: it leaves on end of file from the channel and from the socket alike, so that neither a dead
link nor a dead daemon keeps it. On the way to hello, so it imports next to nothing.
"""

from __future__ import annotations

import os
import select
import socket

_CHUNK = 65536
_LIMIT = 1024 * 1024  # bytes held for a reader that is slower than its writer


class _Flow:
    """One direction: read from `source` while there is room, write to `sink` while there is something."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.held = bytearray()
        self.ended = False

    def wants(self, poller: dict[int, int]) -> None:
        if not self.ended and len(self.held) < _LIMIT:
            poller[self.source] = poller.get(self.source, 0) | select.POLLIN
        if self.held:
            poller[self.sink] = poller.get(self.sink, 0) | select.POLLOUT

    def step(self, ready: dict[int, int]) -> bool:
        """Move what can be moved; False when the sink is gone."""
        if not self.ended and ready.get(self.source, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
            try:
                data = os.read(self.source, _CHUNK)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data == b"":
                self.ended = True
            elif data:
                self.held += data
        if self.held:
            try:
                done = os.write(self.sink, self.held[:_CHUNK])
                del self.held[:done]
            except BlockingIOError:
                pass
            except OSError:
                return False
        return not (self.ended and not self.held)


def run(channel_in: int, channel_out: int, daemon: socket.socket) -> None:
    """Relay until one end closes. What was read before that is still delivered when its reader takes it."""
    fd = daemon.fileno()
    for each in (channel_in, channel_out, fd):
        os.set_blocking(each, False)
    flows = (_Flow(channel_in, fd), _Flow(fd, channel_out))
    while True:
        wanted: dict[int, int] = {}
        for flow in flows:
            flow.wants(wanted)
        wanted.setdefault(channel_out, 0)  # a closed channel shows as an error on its output
        poller = select.poll()
        for each, mask in wanted.items():
            poller.register(each, mask)
        ready = dict(poller.poll())
        if ready.get(channel_out, 0) & (select.POLLERR | select.POLLNVAL):
            return
        alive = [flow.step(ready) for flow in flows]
        if not all(alive):
            return
