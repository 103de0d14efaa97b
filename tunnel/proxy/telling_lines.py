"""Find the few events of a stream that say something, and let the others pass at almost no cost."""

from __future__ import annotations

from collections.abc import Sequence


class TellingLines:
    """Cuts a stream into lines, and gives those that hold one of `words`. A line longer than `limit` is dropped."""

    def __init__(self, words: Sequence[bytes], limit: int) -> None:
        self._words = words
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    @property
    def rest(self) -> bytes:
        """What has come since the last whole line."""
        return bytes(self._rest)

    def take(self, chunk: bytes) -> list[bytes]:
        """Return what follows `data:` in the telling lines that end with this chunk."""
        end = chunk.rfind(b"\n") + 1
        whole = b""
        if end:  # lines are looked at one by one only if one of them tells something
            start = chunk.index(b"\n") + 1 if self._skipping else 0
            whole = chunk[start:end]
            if self._rest:
                whole = bytes(self._rest) + whole
                self._rest.clear()
            self._skipping = False
        if not self._skipping:
            self._rest += chunk[end:]
        if len(self._rest) > self._limit:
            self._rest.clear()
            self._skipping = True
        if not self._tells(whole):
            return []
        return [line[5:] for line in whole.split(b"\n") if line.startswith(b"data:") and self._tells(line)]

    def _tells(self, text: bytes) -> bool:
        return any(word in text for word in self._words)
