"""What crosses on a channel to a shell. The laptop sends pieces of what the person types, and the sizes of their
terminal: each is its kind, a length, and so many bytes. The shell's output comes back as it is."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .dataclass import dataclass

_HEAD = struct.Struct(">cI")
_SIZE = struct.Struct(">HH")
_TYPED, _RESIZED = b"t", b"s"
_MAX_PIECE = 1 << 20


@dataclass(frozen=True)
class TerminalSize:
    rows: int
    columns: int


def encode_typed(data: bytes) -> bytes:
    return _HEAD.pack(_TYPED, len(data)) + data


def encode_size(size: TerminalSize) -> bytes:
    return _HEAD.pack(_RESIZED, _SIZE.size) + _SIZE.pack(size.rows, size.columns)


class ShellInputDecoder:
    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes | TerminalSize]:
        """Yield what is complete. Raise ValueError for what the laptop does not send."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(self._rest)
            if kind not in (_TYPED, _RESIZED) or size > _MAX_PIECE or (kind == _RESIZED and size != _SIZE.size):
                raise ValueError("the laptop sent something that is no input of a shell")
            if len(self._rest) < _HEAD.size + size:
                return
            piece = bytes(self._rest[_HEAD.size : _HEAD.size + size])
            del self._rest[: _HEAD.size + size]
            yield piece if kind == _TYPED else TerminalSize(*_SIZE.unpack(piece))
