"""Count the pages of a PDF. It runs in a process of its own, because a small document can take long:
`python -c SOURCE PATH` prints the number, 0 if it cannot be told, and -1 for a document that unpacks to too much."""

from __future__ import annotations

import re
import sys
import zlib

_PAGE = re.compile(rb"/Type\s{0,100}/Page(?![A-Za-z])")
_OBJECTS, _STREAM, _END = b"/ObjStm", b"stream", b"endstream"
_HEAD = 400  # bytes between the type of a stream and its beginning
_MAX_UNPACKED = 64 << 20
_PIECE = 1 << 20


def count_pages(data: bytes) -> int:
    """Return the number of pages. No byte is unpacked twice, so that the time is limited by the size."""
    count, room = sum(1 for _ in _PAGE.finditer(data)), _MAX_UNPACKED
    view = memoryview(data)
    at = data.find(_OBJECTS)
    while at >= 0:
        begin = data.find(_STREAM, at, at + _HEAD + len(_STREAM))
        end = data.find(_END, begin) if begin >= 0 else at
        if end < 0:
            end = len(data)
        if begin >= 0:
            begin += len(_STREAM) + (2 if data[begin + len(_STREAM) : begin + len(_STREAM) + 1] == b"\r" else 1)
            unpacked, cost = _unpacked(view[begin:end], room)
            room -= cost
            if room <= 0:
                return -1
            count += sum(1 for _ in _PAGE.finditer(unpacked))
        at = data.find(_OBJECTS, max(end, at + len(_OBJECTS)))
    return count


def _unpacked(packed: memoryview, most: int) -> tuple[bytes, int]:
    """Return what a stream holds, or what could be read before a damage, and how many bytes were unpacked at most."""
    unpack, found = zlib.decompressobj(), bytearray()
    left: memoryview | bytes = packed
    try:
        while left and len(found) < most and not unpack.eof:
            found += unpack.decompress(left, _PIECE)
            left = unpack.unconsumed_tail
    except zlib.error:
        return bytes(found), len(found) + _PIECE
    return bytes(found), len(found)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as document:
        sys.stdout.write(str(count_pages(document.read())))  # noqa: TID251 - the answer of a program
