"""Paths of files in a text that was pasted: terminals paste one when a file is dropped on them."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit

_MAX_CHARS = 8_000
_MAX_PATHS = 20
_STARTS = ("/", "~/", "'/", '"/', "file://", "'file://", '"file://')


def dropped_paths(text: str) -> list[Path]:
    """Return the files and directories of this machine that `text` names, if it holds nothing else; else []. A path is
    quoted, escaped or plain, or a file:// URI."""
    if not may_name_files(text):
        return []
    text = text.strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [_path(line) for line in lines]  # a path with blanks, as some terminals paste it
    found = plain if None not in plain else [_path(word) for word in _words(text)]
    paths = [path for path in found if path is not None]
    return paths if len(paths) == len(found) <= _MAX_PATHS else []


def may_name_files(text: str) -> bool:
    """Return whether it is worth looking for files that `text` names. Does not block."""
    return text.lstrip().startswith(_STARTS) and len(text) <= _MAX_CHARS


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return [""]


def _path(word: str) -> Path | None:
    """Return what a word names, None if that does not exist."""
    if word.startswith("file://"):
        try:
            parts = urlsplit(word)
            if parts.netloc not in ("", "localhost", socket.gethostname()):
                return None
        except ValueError:
            return None
        word = unquote(parts.path)
    try:
        path = Path(word).expanduser()
        return path if path.is_absolute() and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # RuntimeError: nobody knows the home of this user
        return None
