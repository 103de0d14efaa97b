"""Where the compiled copy of the bundle is, one for each kind of Python, and how it is read. No hash of the laptop
vouches for it, so it counts only as a private file of this user in a private directory of this user. The stub compiles
this module at every start, so it is small and imports next to nothing."""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import sys
from _frozen_importlib_external import MAGIC_NUMBER

MISSING = "missing"  # the reason why there is no copy yet

_MAX_BYTES = 16 * 1024 * 1024
_SHA = 32


class Odd(Exception):
    """The copy cannot be used. The text says why."""


def copy_path(bundle_path: str) -> str:
    """Return the path of the copy for this Python of the bundle at `bundle_path`, "" if this Python has no name."""
    tag = sys.implementation.cache_tag
    return "%s.%s.code" % (os.path.splitext(bundle_path)[0], tag) if tag else ""


def load(bundle_path: str, digest: str) -> tuple[dict[str, bytes], str]:
    """Return the marshalled code of every module by its file, and "", or {} and why no copy can be used."""
    try:
        return parse(_read(copy_path(bundle_path)), digest), ""
    except FileNotFoundError:
        return {}, MISSING
    except OSError as error:
        return {}, error.strerror or str(error)
    except Odd as odd:
        return {}, str(odd)


def parse(data: bytes, digest: str) -> dict[str, bytes]:
    """Return the marshalled code of every module from the bytes of a copy. Raise Odd."""
    body = memoryview(data)[_SHA:]
    if hashlib.sha256(body).digest() != data[:_SHA]:
        raise Odd("it is damaged")
    header = header_of(digest)
    if body[: len(header)] != header:
        raise Odd("it is of another version")
    try:
        codes: dict[str, bytes] = marshal.loads(body[len(header) :])  # noqa: S302 - a private file of this user
    except (EOFError, TypeError, ValueError) as error:
        raise Odd("it is damaged") from error
    return codes


def private_directory(path: str) -> int:
    """Return a descriptor of a directory that belongs to this user and is closed to others. Raise Odd or OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if _is_private(os.fstat(directory)):
        return directory
    os.close(directory)
    raise Odd("its directory is not private")


def _read(path: str) -> bytes:
    if not path:
        raise Odd("this Python has no name for compiled files")
    directory = private_directory(os.path.dirname(path))
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(os.path.basename(path), flags, dir_fd=directory)
    finally:
        os.close(directory)
    with os.fdopen(file, "rb") as opened:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or not _is_private(info):
            raise Odd("it is not a private file")
        if info.st_size > _MAX_BYTES:
            raise Odd("it is too large")
        return opened.read(_MAX_BYTES)


def _is_private(info: os.stat_result) -> bool:
    return info.st_uid == os.getuid() and not stat.S_IMODE(info.st_mode) & 0o077


def header_of(digest: str) -> bytes:
    """Return what a copy of the bundle with this hash begins with, behind the hash of the copy itself."""
    return ("ccb 1 %s %s %s\n" % (sys.implementation.cache_tag, MAGIC_NUMBER.hex(), digest)).encode()
