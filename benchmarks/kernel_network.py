"""A network between two kernels' TCP stacks with a chosen round-trip time.

Two TUN devices, one in this network namespace and one in a new one; a process carries packets between them and holds
each back for half of the round trip. Slow start, windows and acknowledgements are those of real TCP, which a relay on
loopback hides. It needs root and Linux.

    async with kernel_network(0.1) as network:
        async with sshd(directory, address=network.address, wrapper=network.inside) as server:
            ...  # server.address is 100 ms away
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_TUNGETIFF = 0x800454D2
_CLONE_NEWNET = 0x40000000
_TURN = b"\n"


@dataclass(frozen=True)
class KernelNetwork:
    """A running network. `address` is the far end, seen from here; `inside` is a command that runs another one at the
    far end (a `wrapper` for sshd)."""

    address: str
    inside: tuple[str, ...]
    _namespace: Path
    _carrier: asyncio.subprocess.Process

    async def change(self, rtt_s: float, rate: float = 0.0) -> None:
        """Carry packets with another round-trip time from now on, and at most `rate` bytes a second each way (0: no
        limit)."""
        assert self._carrier.stdin is not None
        assert self._carrier.stdout is not None
        self._carrier.stdin.write(json.dumps([rtt_s / 2, rate]).encode() + _TURN)
        await self._carrier.stdout.readline()

    def listen(self) -> socket.socket:
        """Return a listening socket at the far end, on a free port."""
        found: list[socket.socket] = []

        def enter() -> None:
            with self._namespace.open() as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            found.append(socket.create_server((self.address, 0)))

        thread = threading.Thread(target=enter)  # the namespace of this one thread changes, and the thread ends
        thread.start()
        thread.join()
        return found[0]


def why_not() -> str:
    """Return why such a network cannot be made here, or nothing."""
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    try:
        os.close(_tun("ccb%d"))
    except OSError as error:
        return f"no TUN device can be made: {error.strerror}"
    made = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True, text=True)
    return f"no network namespace can be made: {made.stderr.strip()}" if made.returncode else ""


@asynccontextmanager
async def kernel_network(rtt_s: float, rate: float = 0.0, trace: Path | None = None) -> AsyncIterator[KernelNetwork]:
    """A network whose far end is `rtt_s` away. `trace` gets a line for each packet: seconds, `up` or `down`, and the
    bytes of its TCP payload."""
    with _addresses() as (near, far), _device(near, far) as descriptor:
        carrier = await asyncio.create_subprocess_exec(
            "unshare", "--net", sys.executable, __file__, str(descriptor), far, near, str(trace or ""),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, pass_fds=[descriptor],
        )  # fmt: skip
        try:
            namespace = Path(f"/proc/{carrier.pid}/ns/net")
            network = KernelNetwork(far, ("nsenter", f"--net={namespace}", "--"), namespace, carrier)
            await network.change(rtt_s, rate)
            yield network
        finally:
            assert carrier.stdin is not None
            carrier.stdin.close()
            await carrier.wait()


@contextmanager
def _addresses() -> Iterator[tuple[str, str]]:
    """Return two neighbouring addresses of the range for benchmarks (RFC 2544) that nothing here uses.

    A route keeps them on this machine: without it, a client that outlives the network would look for the far end on the
    internet. The route stays if this process is killed.
    """
    for _ in range(100):
        first = f"198.{random.choice((18, 19))}.{random.randrange(256)}"
        route = ["unreachable", f"{first}.0/30"]
        if subprocess.run(["ip", "route", "add", *route], check=False, capture_output=True).returncode == 0:
            break
    else:
        raise RuntimeError("no address is free for a network")
    try:
        yield f"{first}.1", f"{first}.2"
    finally:
        subprocess.run(["ip", "route", "del", *route], check=True)


@contextmanager
def _device(address: str, peer: str) -> Iterator[int]:
    """Return the descriptor of a new TUN device with this address; the device goes when the last one is closed."""
    descriptor = _tun("ccb%d")
    try:
        name = fcntl.ioctl(descriptor, _TUNGETIFF, bytes(40))[:16].rstrip(b"\0").decode()
        for command in (["address", "add", address, "peer", peer, "dev", name], ["link", "set", name, "up"]):
            subprocess.run(["ip", *command], check=True)
        yield descriptor
    finally:
        os.close(descriptor)


def _tun(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class _Way:
    """The packets on their way in one direction: each with the moment at which it arrives."""

    def __init__(self, source: int, target: int, name: str, trace: TextIO | None) -> None:
        self.source, self.target = source, target
        self._name, self._trace = name, trace
        self._flying: deque[tuple[float, bytes]] = deque()
        self._free = 0.0

    def take(self, delay_s: float, rate: float) -> None:
        """Take what waits at the source."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(self.source, 65536)
                now = time.monotonic()
                self._free = max(now, self._free) + (len(packet) / rate if rate else 0.0)
                self._flying.append((self._free + delay_s, packet))
                if self._trace is not None:
                    self._trace.write(f"{time.time():.6f} {self._name} {_payload(packet)}\n")

    def deliver(self) -> float | None:
        """Hand over what has arrived. Return the seconds until the next packet does; None while none flies."""
        while self._flying:
            wait = self._flying[0][0] - time.monotonic()
            if wait > 0:
                return wait
            with contextlib.suppress(BlockingIOError, OSError):  # a full queue loses packets, as any network
                os.write(self.target, self._flying.popleft()[1])
        return None


def _payload(packet: bytes) -> int:
    """Return how many bytes of TCP payload an IPv4 packet carries; 0 for any other packet."""
    if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return 0
    head = (packet[0] & 15) * 4
    return len(packet) - head - (packet[head + 12] >> 4) * 4


def _carry(near: int, far: int, trace: TextIO | None) -> None:
    """Carry packets until stdin ends. A line of it is the delay each way and the rate; each is answered by a line."""
    ways = (_Way(near, far, "up", trace), _Way(far, near, "down", trace))
    delay_s, rate = 0.0, 0.0
    while True:
        waits = [wait for wait in (way.deliver() for way in ways) if wait is not None]
        ready, _, _ = select.select([near, far, 0], [], [], min(waits, default=None))
        for way in ways:
            if way.source in ready:
                way.take(delay_s, rate)
        if 0 in ready:
            line = _line()
            if not line:
                return
            delay_s, rate = json.loads(line)
            os.write(1, _TURN)


def _line() -> bytes:
    """Return the next line of stdin without reading further; nothing at its end."""
    line = b""
    while not line.endswith(_TURN):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return line


def _main(descriptor: int, address: str, peer: str, trace: str) -> None:
    """Be the process that carries packets, inside the new namespace."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with _device(address, peer) as far, contextlib.ExitStack() as stack:
        # Line-buffered: whoever reads the trace while packets fly sees whole lines.
        written = stack.enter_context(open(trace, "w", buffering=1)) if trace else None
        _carry(descriptor, far, written)


if __name__ == "__main__" and len(sys.argv) == 5:
    _main(int(sys.argv[1]), *sys.argv[2:])
