"""Finds and reads instruction files (CLAUDE.md and AGENTS.md): what the owners of a directory want an agent to know."""

from __future__ import annotations

import os
import stat

from ccb.tunnel.wire.dataclass import dataclass

NAMES = ("CLAUDE.md", "AGENTS.md")
_USER_FILES = (".claude/CLAUDE.md", ".config/ccb/AGENTS.md")
_ENDINGS = (".md", ".mdc", ".markdown", ".txt")
_MAX_BYTES = 40 * 1024
_MAX_TOTAL_BYTES = 100 * 1024
_MAX_FILES = 40


@dataclass(frozen=True)
class InstructionFile:
    """An instruction file. `scope` is `user` or `project`. A text that was cut says so in its last line."""

    path: str
    text: str
    scope: str


def find_instructions(cwd: str, home: str) -> list[InstructionFile]:
    """Return the user's own files, then those from the root down to `cwd`: the nearest one comes last and counts most.
    Files with the same text as an earlier one are left out."""
    candidates = [(os.path.join(home, name), "user") for name in _USER_FILES]
    for directory in _from_root(os.path.realpath(cwd)):
        candidates += [(os.path.join(directory, name), "project") for name in NAMES]
    found: list[InstructionFile] = []
    seen: set[tuple[int, int]] = set()
    texts: set[str] = set()
    left = _MAX_TOTAL_BYTES
    for path, scope in candidates:
        read = _read(path, min(_MAX_BYTES, left), seen)
        if read is None:
            continue
        text, size = read
        if text.strip() in texts or not text.strip():
            continue
        if len(found) >= _MAX_FILES or left <= 0:
            found.append(InstructionFile(path, "(left out: the instruction files are too long together)", scope))
            break
        texts.add(text.strip())
        left -= size
        found.append(InstructionFile(path, text, scope))
    return found


def _from_root(directory: str) -> list[str]:
    found = [directory]
    while directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
        found.append(directory)
    return found[::-1]


def _read(path: str, limit: int, seen: set[tuple[int, int]]) -> tuple[str, int] | None:
    """Return (text, bytes used), or None when the path is not a readable regular file, or is a file that was read
    before under another name. Does not block on a FIFO."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or (info.st_dev, info.st_ino) in seen or not _is_meant(path, info):
            return None
        seen.add((info.st_dev, info.st_ino))
        pieces: list[bytes] = []
        size = 0
        while size <= limit:
            piece = os.read(handle, min(65536, limit + 1 - size))
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    except OSError:
        return None
    finally:
        os.close(handle)
    data = b"".join(pieces)
    if b"\0" in data[:8192]:
        return None
    text = data[:limit].decode("utf-8-sig", "ignore").replace("\r\n", "\n")
    if len(data) > limit:
        whole_lines = text.rpartition("\n")[0] or text
        text = f"{whole_lines}\n(cut here: the file is longer than {limit} bytes; read it for the rest)"
    return text, min(len(data), limit)


def _is_meant(path: str, info: os.stat_result) -> bool:
    """Return whether the file was put there by the owner of the directory and is an instruction text. Return False for
    another user's file in a directory that everybody may write to, and for a link to a file with another extension:
    such a link in a clone could bring a private key into the conversation."""
    directory = os.stat(os.path.dirname(path))
    if directory.st_mode & stat.S_IWOTH and info.st_uid not in (0, os.geteuid()):
        return False
    return os.path.splitext(os.path.realpath(path))[1].lower() in _ENDINGS
