"""The archive of a session that moves: a ustar archive that both ends write and read in one pass.

An archive is hostile input. Its members are regular files under the names of a closed table, each with a limit on its
size. Whatever else a tar archive can say (links, devices, long names, sparse files) is refused by its header alone.
Without the empty block at its end an archive was cut, and is not taken.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO

from .dataclass import dataclass

FORMAT = 1  # of the archive and of the journal in it. A worker takes no other
MANIFEST, JOURNAL, PLAN, TITLE, TREE = "session.json", "journal.jsonl", "plan.md", "title", "tree/bundle"
OUTPUTS, HISTORY = "outputs", "history"  # directories

_BLOCK, _PIECE = 512, 1 << 20
_MAX_MEMBERS = 100_000
MAX_BYTES = 16 << 30  # of all members
_TABLE = (
    (re.escape(MANIFEST), 64 << 10), (re.escape(JOURNAL), 4 << 30), (re.escape(PLAN), 1 << 20), (TITLE, 64 << 10),
    (re.escape(TREE), 4 << 30),
    (OUTPUTS + r"/[0-9A-Za-z][0-9A-Za-z._-]{0,89}", 1 << 30), (HISTORY + r"/[0-9a-f]{64}", 128 << 20),
)  # fmt: skip
"""The names that a member may have, as patterns, each with the most bytes of such a member."""

_SESSION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class BadArchive(Exception):
    """The bytes are no archive of a session, or not a whole one. The text says why, without words of the archive."""


@dataclass(frozen=True)
class Manifest:
    """What comes first. `root` is the directory of the session there, `outputs` that of its outputs."""

    session: str
    root: str
    outputs: str = ""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(data: bytes) -> Manifest:
        """Raise BadArchive, also for a format that this version does not know."""
        try:
            given = json.loads(data)
            number, *texts = (given[name] for name in ("format", "session", "root", "outputs"))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadArchive(f"its {MANIFEST} cannot be read") from None
        if number != FORMAT:
            raise BadArchive(f"it has another version of the journal than this ccb ({FORMAT})")
        are_texts = all(isinstance(each, str) and len(each) <= 4096 and "\0" not in each for each in texts)
        if not (are_texts and _SESSION.fullmatch(texts[0]) and texts[1].startswith("/")):
            raise BadArchive(f"its {MANIFEST} names no session")
        return Manifest(*texts)


def most_bytes(name: str) -> int:
    """Return the limit of a member with this name, -1 if no member may have it."""
    return next((most for pattern, most in _TABLE if re.fullmatch(pattern, name)), -1)


def begin(file: BinaryIO, manifest: Manifest) -> None:
    data = manifest.to_bytes()
    add_member(file, MANIFEST, io.BytesIO(data), len(data))


def add_member(file: BinaryIO, name: str, source: BinaryIO, size: int) -> None:
    """Add the next `size` bytes of `source` to an archive. Raise BadArchive, OSError."""
    if not 0 <= size <= most_bytes(name):
        raise BadArchive(f"{name} is larger than what may move")
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    file.write(info.tobuf(tarfile.USTAR_FORMAT))
    for piece in _pieces(source, size):
        file.write(piece)
    file.write(bytes(-size % _BLOCK))


def end(file: BinaryIO) -> None:
    file.write(bytes(2 * _BLOCK))


def members(file: BinaryIO) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name and the pieces of each member, the manifest first. Each member must be read before the next one,
    and nothing may be used before the iteration has ended: only then it is known to be whole. Raise BadArchive."""
    names, left = set[str](), MAX_BYTES
    while any(block := _exactly(file, _BLOCK)):
        name, size = _header(block)
        left -= size
        if left < 0 or len(names) >= _MAX_MEMBERS:
            raise BadArchive("it is larger than what may move")
        if name in names or (name == MANIFEST) == bool(names):
            raise BadArchive("it is not in order")
        names.add(name)
        pieces = _pieces(file, size)
        yield name, pieces
        for _ in pieces:  # a reader may leave out the rest
            pass
        _exactly(file, -size % _BLOCK)


def check_archive(file: BinaryIO) -> tuple[Manifest, list[str]]:
    """Read a whole archive, and return its manifest and the names of its members. Raise BadArchive."""
    names: list[str] = []
    first = b""
    for name, pieces in members(file):
        first = first if names else b"".join(pieces)
        names.append(name)
    return Manifest.read(first), names


def _header(block: bytes) -> tuple[str, int]:
    try:
        info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.TarError, ValueError):
        raise BadArchive("it is no archive of a session, or not a whole one") from None
    if info.type != tarfile.REGTYPE:
        raise BadArchive("it holds something else than files")
    most = most_bytes(info.name)
    if most < 0:
        raise BadArchive("it holds a file that no session has")
    if not 0 <= info.size <= most:
        raise BadArchive("it holds a file that is larger than what may move")
    return info.name, info.size


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0:
        piece = file.read(min(_PIECE, size))
        if not piece:
            raise BadArchive("it ends too early")
        size -= len(piece)
        yield piece


def _exactly(file: BinaryIO, size: int) -> bytes:
    return b"".join(_pieces(file, size))
