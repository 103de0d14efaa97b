"""Ids and names within the limits of an API, the same in every request of a conversation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

MAX_NAME = 64
_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def short_id(call_id: str, limit: int) -> str:
    """Return an id of at most `limit` characters for a tool call: the same one for its result."""
    if len(call_id) <= limit and _ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[: min(32, limit - 5)]


def hashed(text: str) -> str:
    """Return 64 characters that stand for a text and say nothing of it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


class ToolNames:
    """The names of the tools of one request, in both directions."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sent: dict[str, str] = {}
        self._known: dict[str, str] = {}
        for name in names:
            self.sent(name)

    def sent(self, name: str) -> str:
        """Return the name under which the provider knows a tool."""
        if name not in self._sent:
            short = name
            if not _NAME.fullmatch(name):
                digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
                short = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: MAX_NAME - 9] + "_" + digest
            self._sent[name] = short
            self._known[short] = name
        return self._sent[name]

    def known(self, name: str) -> str:
        """Return the tool that a provider means."""
        return self._known.get(name, name)

    def is_known(self, name: str, *, begins: bool = False) -> bool:
        """Return whether the provider knows a tool by this name, or with `begins` by one that begins so."""
        return name in self._known or (begins and any(each.startswith(name) for each in self._known))

    def joined(self, name: str, more: str) -> str:
        """Return a name that comes in pieces, or whole and again, or longer each time."""
        if self.is_known(name + more, begins=True):
            return name + more
        if more.startswith(name):
            return more
        return name if self.is_known(name) else name + more
