"""What the patterns in a policy of the laptop's owner cover: texts, URLs and directories. Both ends ask."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Optional
from urllib.parse import urlsplit

Patterns = Optional[Sequence[str]]
"""None: no policy is about it."""

NOT_ALLOWED = "the policy of the laptop does not allow the MCP server {}"


def is_allowed(text: str, patterns: Patterns) -> bool:
    """Return whether a pattern covers a command, a name or a URL. No path of a URL can look like its host."""
    return patterns is None or any(_covers(each, text) for each in patterns)


def holds_directory(path: str, patterns: Patterns) -> bool:
    """Return whether a pattern covers a real path or a directory above it. A star stands for a part of one name."""
    parts = posixpath.normpath(path).split("/")
    given = [each.rstrip("/").split("/") for each in patterns or ()]
    return patterns is None or any(len(each) <= len(parts) and all(map(fnmatchcase, parts, each)) for each in given)


def _covers(pattern: str, text: str) -> bool:
    if not text.lower().startswith(("http://", "https://")) or pattern == "*":
        return fnmatchcase(text, pattern)
    try:
        given, wanted = urlsplit(text), urlsplit(pattern)
    except ValueError:
        return False
    if "@" in given.netloc or given.scheme != wanted.scheme or "\\" in text:
        return False
    path, rest = given._replace(scheme="", netloc="").geturl() or "/", wanted._replace(scheme="", netloc="").geturl()
    return fnmatchcase(given.netloc.lower(), wanted.netloc.lower()) and fnmatchcase(path, rest or "/")
