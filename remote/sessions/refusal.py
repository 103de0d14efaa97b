"""Why a session cannot be had.

On the way to hello, so it imports nothing.
"""

from __future__ import annotations


class Refusal(Exception):
    """The session cannot be had; becomes a `refused` frame."""

    def __init__(self, code: str, message: str, data: dict[str, object]) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def unusable(what: str, error: OSError) -> Refusal:
    """A file of a session that this user may not use, or that the disk does not give."""
    text = ": ".join(str(part) for part in (what, error.filename, error.strerror) if part)
    return Refusal("no_storage", text, {"file": error.filename})
