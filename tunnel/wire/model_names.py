"""The short names of models, and what an id of a model can look like."""

from __future__ import annotations

import re

ALIASES = {
    "default": "claude-sonnet-4-5",
    "sonnet": "claude-sonnet-4-5",
    "opus": "claude-opus-4-5",
    "haiku": "claude-haiku-4-5",
}
"""Short names of models, and the ids that they stand for."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]-]{0,199}")
_TELLING = re.compile(r"[0-9/:]")


def may_be_model(name: str) -> bool:
    """Return whether `name` is an alias, or an id that some provider may know. An id names a version, a vendor or a
    tag, so it has a digit, a slash or a colon in it: a plain word is a slip."""
    return name in ALIASES or bool(_ID.fullmatch(name) and _TELLING.search(name))
