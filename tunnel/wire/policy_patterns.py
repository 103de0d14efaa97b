"""What the patterns in a policy of the laptop's owner cover: texts, URLs and directories. Both ends ask."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Optional

Patterns = Optional[Sequence[str]]
"""None: no policy is about it."""

_LEADS_ON = re.compile(r"\.\.|[;&|<>`$()\n\\]")  # to another file or, in a shell, to another command
NOT_ALLOWED = "the policy of the laptop does not allow the MCP server {}"


def is_allowed(text: str, patterns: Patterns) -> bool:
    """Return whether a pattern covers a command, a name or a URL. No path of a URL can look like its host, and no star
    stands for what leads a command on to another one."""
    odd = {*_LEADS_ON.findall(text)}
    return patterns is None or any(
        each == "*" or (odd <= {*_LEADS_ON.findall(each)} and _covers(each, text)) for each in patterns
    )


def holds_directory(path: str, patterns: Patterns) -> bool:
    """Return whether a pattern covers a real path or a directory above it. A star stands for a part of one name."""
    parts = posixpath.normpath(path).split("/")
    given = [each.rstrip("/").split("/") for each in patterns or ()]
    return patterns is None or any(len(each) <= len(parts) and all(map(fnmatchcase, parts, each)) for each in given)


def _covers(pattern: str, text: str) -> bool:
    if not text.lower().startswith(("http://", "https://")):
        return fnmatchcase(text, pattern)
    scheme, _, rest = text.partition("//")
    wanted_scheme, _, wanted = pattern.partition("//")
    host, _, path = rest.partition("/")
    wanted_host, _, wanted_path = wanted.partition("/")
    if scheme != wanted_scheme or any(each in host for each in "@?#\\"):  # the host would be another part of it
        return False
    return fnmatchcase(host.lower(), wanted_host.lower()) and fnmatchcase(path, wanted_path)
