"""The protocol of a copy: messages, pieces of files, and how much may be under way."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

PIECE, MAX_PIECE = 128 * 1024, 1024 * 1024  # bytes of a file at once: each piece wakes up both ends
RESUMABLE = 1024 * 1024  # a file of at least this size goes on after a drop: the receiver first says what it has of it
MAX_DEPTH = 200  # folders inside each other that are copied
SOURCE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not hold it up
_MESSAGE, _DATA, _COUNTED, _TAKEN, _ALIVE = b"m", b"d", b"c", b"t", b"a"
_MAX_TEXT = 1_000  # characters of what was left out
_SPAN_S = 5.0  # of a rate
_HEAD = struct.Struct(">cI")
_COUNT = struct.Struct(">Q")
_LIMITS = {_MESSAGE: 64 * 1024, _DATA: MAX_PIECE, _COUNTED: MAX_PIECE, _TAKEN: _COUNT.size, _ALIVE: 0}


class Message(dict[str, Any]):
    def text(self, key: str) -> str:
        value = self.get(key, "")
        if not isinstance(value, str):
            raise ValueError(f"{key} is no text")
        return value

    def number(self, key: str) -> int:
        value = self.get(key, 0)
        if not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise ValueError(f"{key} is no count")
        return value


class StreamEnded(Exception):
    """The other end has gone."""


class CannotCopy(Exception):
    """This end cannot go on. The text says why, after the path."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class OtherEndFailed(Exception):
    """The other end cannot go on. `code` is an errno, 0 for another reason."""

    def __init__(self, path: str, why: str, code: int) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why
        self.code = code


class CopyProgress:
    """How far a copy is. `size` is 0 until it is known; `copied` counts files, `done` bytes that are there. On the host
    nobody looks at it."""

    def __init__(self, waiting: str = "") -> None:
        self.files = self.size = self.done = self.copied = 0
        self.waiting = waiting
        self.skipped: list[tuple[str, str]] = []
        self._seen: deque[tuple[float, int]] = deque()

    def restart(self) -> None:
        self.done = self.copied = 0
        self.skipped.clear()
        self._seen.clear()

    def begun(self, files: int, size: int) -> None:
        self.files, self.size, self.waiting = files, size, ""

    def moved(self, size: int) -> None:
        self.done += size

    def one_is_there(self) -> None:
        self.copied += 1

    def left_out(self, path: str, why: str) -> None:
        if len(self.skipped) < 1000:
            self.skipped.append((path[:_MAX_TEXT], why[:_MAX_TEXT]))

    def rate(self, now: float) -> float:
        """Return the bytes a second of the last seconds."""
        self._seen.append((now, self.done))
        while len(self._seen) > 2 and self._seen[0][0] < now - _SPAN_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (self.done - before) / (now - began) if now > began else 0.0


class CopyChannel:
    """Messages and pieces of data over `read`, which returns nothing at the end, and `write`. `window` is what may be
    under way to the other end."""

    def __init__(self, read: Callable[[], bytes], write: Callable[[bytes], None]) -> None:
        self.window = Window()
        self.count_wanted = False
        self._read = read
        self._write = write
        self._buffer = bytearray()
        self._lock = threading.Lock()

    def say(self, kind: str, **fields: object) -> None:
        self._send(_MESSAGE, json.dumps({"is": kind, **fields}).encode())

    def give(self, data: bytes, *, counted: bool) -> None:
        """Send a piece of a file. `counted`: the other end says when it has it."""
        self._send(_COUNTED if counted else _DATA, data)

    def taken(self, total: int) -> None:
        self._send(_TAKEN, _COUNT.pack(total))

    def alive(self) -> None:
        self._send(_ALIVE, b"")

    def next(self) -> Message | bytes | int:
        kind, data = self._frame()
        while kind == _ALIVE:
            kind, data = self._frame()
        if kind in (_DATA, _COUNTED):
            self.count_wanted = kind == _COUNTED
            return data
        if kind == _TAKEN:
            return int(_COUNT.unpack(data)[0]) if len(data) == _COUNT.size else 0
        try:
            read = json.loads(data)
        except RecursionError:
            read = None
        if not isinstance(read, dict):
            raise ValueError("it is no message")
        message = Message(read)
        if message.get("is") == "failed":
            raise OtherEndFailed(message.text("path"), message.text("why"), message.number("code"))
        return message

    def message(self, *kinds: str) -> Message:
        found = self.next()
        while isinstance(found, int):
            self.window.take(found)
            found = self.next()
        if isinstance(found, bytes) or found.get("is") not in kinds:
            raise ValueError(f"it is not the time for this (expected: {', '.join(kinds)})")
        return found

    def _send(self, kind: bytes, payload: bytes) -> None:
        try:
            with self._lock:
                self._write(_HEAD.pack(kind, len(payload)) + payload)
        except ConnectionError:
            raise StreamEnded from None

    def _frame(self) -> tuple[bytes, bytes]:
        kind, length = _HEAD.unpack(self._take(_HEAD.size))
        if length > _LIMITS.get(kind, -1):
            raise ValueError("it is no part of a copy")
        return kind, self._take(length)

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            try:
                data = self._read()
            except ConnectionError:
                raise StreamEnded from None
            if not data:
                raise StreamEnded
            self._buffer += data
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken


def has_controls(name: str) -> bool:
    """Return whether a name holds control characters, which could drive a terminal that lists it."""
    return any(char < " " or "\x7f" <= char < "\xa0" for char in name)


def hash_prefix(fd: int, size: int, digest: hashlib._Hash) -> bool:
    """Add the first `size` bytes of a file to a digest. Return False if there are fewer."""
    at = 0
    while at < size:
        data = os.pread(fd, min(1 << 20, size - at), at)
        if not data:
            return False
        digest.update(data)
        at += len(data)
    return True


def write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


class Window:
    """How many bytes may be under way: it grows while they arrive quickly, and shrinks when they begin to queue up."""

    SMALLEST, FIRST, LARGEST = PIECE, 4 * PIECE, 256 * PIECE
    QUEUE_S = 0.15
    RATE_S = 3.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.size = self.FIRST
        self.sent = 0
        self._clock = clock
        self._taken = self._asked = 0
        self._best_s = float("inf")
        self._shrunk_at = 0
        self._marks: deque[tuple[int, float]] = deque()
        self._seen: deque[tuple[float, int]] = deque()

    @property
    def full(self) -> bool:
        return self.sent - self._taken >= self.size

    @property
    def piece(self) -> int:
        return max(PIECE, min(MAX_PIECE, self.size // 8))

    def send(self, size: int) -> bool:
        """Note a piece that is sent now. Return whether the other end must say when it has it."""
        self.sent += size
        self._marks.append((self.sent, self._clock()))
        if self.sent - self._asked < self.size // 8 and not self.full:
            return False
        self._asked = self.sent
        return True

    def take(self, total: int) -> None:
        arrived, self._taken = max(0, min(total, self.sent) - self._taken), max(self._taken, min(total, self.sent))
        delay_s, now = 0.0, self._clock()
        self._seen.append((now, self._taken))
        while self._seen[0][0] < now - self.RATE_S:
            self._seen.popleft()
        while self._marks and self._marks[0][0] <= self._taken:
            delay_s = now - self._marks.popleft()[1]
        self._best_s = min(self._best_s, delay_s or self._best_s)
        if delay_s <= self._best_s + self.QUEUE_S:
            self.size = min(self.LARGEST, self.size + arrived)
        elif self._taken > self._shrunk_at:  # once for all that is under way now
            self._shrunk_at = self.sent
            if self.size == self.SMALLEST:
                self._best_s = delay_s  # there is no queue of ours: the connection itself has become slower
            self.size = min(self.size, max(self.SMALLEST, int(self._rate() * self.QUEUE_S), self.size * 3 // 4))

    def _rate(self) -> float:
        (began, before), (now, taken) = self._seen[0], self._seen[-1]
        return (taken - before) / (now - began) if now > began else 0.0
