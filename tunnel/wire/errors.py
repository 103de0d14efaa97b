"""What can be wrong with bytes that arrive on the wire."""

from __future__ import annotations


class FrameError(Exception):
    """A line that is not a frame of this protocol. `reason` names the rule, `sample` shows the start of the line."""

    def __init__(self, reason: str, sample: bytes = b"") -> None:
        shown = sample[:80].decode("utf-8", "backslashreplace")
        super().__init__(f"{reason}: {shown!r}" if sample else reason)
        self.reason = reason
        self.sample = sample[:80]
