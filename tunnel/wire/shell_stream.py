"""What crosses on a channel to a shell. The laptop sends pieces of what the person types, and the sizes of their
terminal: each is its kind, a length, and so many bytes. The shell's output comes back as one deflated stream."""

from __future__ import annotations

import struct
import zlib
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


_RAW = -15  # a deflate stream without head and checksum
_MAX_OUTPUT = 1 << 16
_FLOOD = 1 << 11  # bytes at once. A terminal gives at most 4 KiB
_MAX_RATIO = 4
_EMPTY_BLOCK = b"\0\0\0\xff\xff"  # of a deflate stream


class OutputPacker:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(1, zlib.DEFLATED, _RAW)

    def pack(self, data: bytes) -> bytes:
        """Return what carries all of `data`: the other end need not wait for more. A flood is not made small: what is
        under way on the channel is all shown before the effect of Ctrl+C."""
        packed = self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        lacking = len(data) // _MAX_RATIO - len(packed) if len(data) >= _FLOOD else 0
        return packed + _EMPTY_BLOCK * max(0, lacking // len(_EMPTY_BLOCK))


class OutputUnpacker:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_RAW)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what has come, in pieces of bounded size. Raise ValueError for what no worker sends."""
        while data:
            try:
                piece = self._inflate.decompress(data, _MAX_OUTPUT)
            except zlib.error as error:
                raise ValueError("the host sent an output that is damaged") from error
            data = self._inflate.unconsumed_tail
            if piece:
                yield piece
