"""The archive of a session that moves: a ustar archive that both ends write and read in one pass.

An archive is hostile input. Its members are regular files under the names of a closed table, each with a limit on its
size. Whatever else a tar archive can say (links, devices, long names, sparse files) is refused by its header alone. The
last member is the digest of all bytes before it, so an archive that was cut or changed is not taken.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import BinaryIO

from .dataclass import dataclass

FORMAT = 1  # of the archive and of the journal in it. A worker takes no other
MANIFEST, JOURNAL, PLAN, TITLE, TREE, _END = "session.json", "journal.jsonl", "plan.md", "title", "tree.bundle", "end"
OUTPUTS, HISTORY = "outputs", "history"  # directories

_BLOCK, _PIECE = 512, 1 << 20
_MAX_MEMBERS = 100_000
MAX_BYTES = 16 << 30  # of all members
_TABLE = (
    (re.escape(MANIFEST), 64 << 10), (re.escape(JOURNAL), 4 << 30), (re.escape(PLAN), 1 << 20), (TITLE, 64 << 10),
    (re.escape(TREE), 4 << 30), (_END, 64),
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
    version: str = ""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(data: bytes) -> Manifest:
        """Raise BadArchive, also for a format that this version does not know."""
        try:
            given = json.loads(data)
            number = given["format"]
            texts = [given[name] for name in ("session", "root", "outputs", "version")]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadArchive(f"its {MANIFEST} cannot be read") from None
        if number != FORMAT:
            raise BadArchive(f"it has another version of the journal than this ccb ({FORMAT})")
        if not all(isinstance(each, str) and len(each) <= 4096 and "\0" not in each for each in texts):
            raise BadArchive(f"its {MANIFEST} cannot be read")
        if not _SESSION.fullmatch(texts[0]) or not texts[1].startswith("/"):
            raise BadArchive(f"its {MANIFEST} names no session")
        return Manifest(*texts)


def most_bytes(name: str) -> int:
    """Return the limit of a member with this name, -1 if no member may have it."""
    return next((most for pattern, most in _TABLE if re.fullmatch(pattern, name)), -1)


class ArchiveWriter:
    def __init__(self, file: BinaryIO, manifest: Manifest) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.add(MANIFEST, iter([manifest.to_bytes()]), len(manifest.to_bytes()))

    def add(self, name: str, pieces: Iterator[bytes], size: int) -> str:
        """Add a member of exactly `size` bytes. Return its SHA-256. Raise BadArchive, OSError."""
        if not 0 <= size <= most_bytes(name):
            raise BadArchive(f"{name} is larger than what may move")
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        self._put(info.tobuf(tarfile.USTAR_FORMAT))
        digest, left = hashlib.sha256(), size
        for piece in pieces:
            left -= len(piece)
            digest.update(piece)
            self._put(piece)
        if left:
            raise BadArchive(f"{name} has changed meanwhile")
        self._put(bytes(-size % _BLOCK))
        return digest.hexdigest()

    def end(self) -> None:
        digest = self._digest.hexdigest().encode()
        self.add(_END, iter([digest]), len(digest))
        self._file.write(bytes(2 * _BLOCK))

    def _put(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)


def pieces_of(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield `size` bytes of a file in pieces, fewer if it ends before."""
    while size > 0:
        piece = file.read(min(_PIECE, size))
        if not piece:
            return
        size -= len(piece)
        yield piece


def members(file: BinaryIO) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the name and the pieces of each member, the manifest first. Each member must be read before the next one,
    and nothing may be used before the iteration has ended: only then it is known to be whole. Raise BadArchive."""
    digest, names, left = hashlib.sha256(), set[str](), MAX_BYTES
    while True:
        before = digest.hexdigest().encode()
        name, size = _header(_exactly(file, _BLOCK, digest))
        left -= size
        if left < 0 or len(names) >= _MAX_MEMBERS:
            raise BadArchive("it is larger than what may move")
        if name in names or (name == MANIFEST) == bool(names):
            raise BadArchive("it is not in order")
        names.add(name)
        if name == _END:
            if _exactly(file, size, digest) != before:
                raise BadArchive("it was changed: the digest at its end is another one")
            return
        pieces = _pieces(file, size, digest)
        yield name, pieces
        for _ in pieces:  # a reader may leave out the rest
            pass
        _exactly(file, -size % _BLOCK, digest)


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


def _pieces(file: BinaryIO, size: int, digest: hashlib._Hash) -> Iterator[bytes]:
    for piece in pieces_of(file, size):
        digest.update(piece)
        size -= len(piece)
        yield piece
    if size:
        raise BadArchive("it ends too early")


def _exactly(file: BinaryIO, size: int, digest: hashlib._Hash) -> bytes:
    return b"".join(_pieces(file, size, digest))
