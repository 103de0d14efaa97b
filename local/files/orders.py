"""What a person types behind /get, /put and /open."""

from __future__ import annotations

import posixpath
import shlex

from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.spelling import unspelled

from .copy import CopyOrder

_QUOTE = "Put a path with blanks in quotes."


def get_order(argument: str, cwd: str) -> CopyOrder:
    """Return what `/get REMOTE [LOCAL]` asks for; `cwd` is the directory of the session. Raise UsageError."""
    words = _words(argument, "/get REMOTE [LOCAL]", most=2)
    return CopyOrder(False, words[1] if len(words) == 2 else ".", remote_path(words[0], cwd))


def put_order(argument: str, cwd: str) -> CopyOrder:
    """Return what `/put LOCAL [REMOTE]` asks for. Raise UsageError."""
    words = _words(argument, "/put LOCAL [REMOTE]", most=2)
    return CopyOrder(True, words[0], remote_path(words[1] if len(words) == 2 else "", cwd))


def open_path(argument: str, cwd: str) -> str:
    """Return the path on the host that `/open PATH` names. Raise UsageError."""
    return remote_path(_words(argument, "/open PATH", most=1)[0], cwd)


def remote_path(path: str, cwd: str) -> str:
    """Return the path on the host that a person spells, as one that means the same everywhere there. A slash at its end
    stays."""
    path = unspelled(path)
    if path.startswith("~"):
        return path
    whole = posixpath.normpath(posixpath.join(cwd, path))
    return whole + "/" if path.endswith("/") and whole != "/" else whole


def _words(argument: str, usage: str, *, most: int) -> list[str]:
    try:
        words = shlex.split(argument)
    except ValueError:  # a quote without its end
        words = []
    if not 0 < len(words) <= most or "" in words or any("\0" in word for word in words):
        raise UsageError(f"this command is {usage}", do=_QUOTE)
    return words
