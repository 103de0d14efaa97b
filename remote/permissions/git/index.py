"""Reads git's index as far as it names submodules, in which `git status` starts another git."""

from __future__ import annotations

import struct

_GITLINK = 0o160000
_MODE = struct.Struct(">I")
_FLAGS = struct.Struct(">H")


class NotAnIndex(Exception):
    """The data is not an index that this reader follows."""


def submodules(data: bytes, hash_bytes: int) -> list[bytes]:
    """Return the paths of the submodules in an index. Raise NotAnIndex."""
    if _MODE.pack(_GITLINK) not in data:
        return []
    try:
        return _submodules(data, hash_bytes)
    except (struct.error, IndexError, ValueError):
        raise NotAnIndex from None


def _submodules(data: bytes, hash_bytes: int) -> list[bytes]:
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise NotAnIndex
    found: list[bytes] = []
    at, path = 12, b""
    for _ in range(count):
        mode = _MODE.unpack_from(data, at + 24)[0]
        flags = _FLAGS.unpack_from(data, at + 40 + hash_bytes)[0]
        start = at + 42 + hash_bytes + (2 if version > 2 and flags & 0x4000 else 0)
        kept = b""
        if version == 4:
            dropped, start = _varint(data, start)
            kept = path[: len(path) - dropped]
        end = data.index(b"\0", start)
        path = kept + data[start:end]
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
        if mode == _GITLINK:
            found.append(path)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an index, in git's encoding of offsets, and the index after it."""
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
