"""The nonce of one connection, and how many wrong ones were tried on it."""

from __future__ import annotations

from ...secret import Secret

MAX_WRONG = 10
"""Wrong nonces after which a front answers nothing any more, not even a request with the right one."""


class NonceGuard:
    """Compares what requests bring with the nonce of their connection. An empty nonce matches nothing."""

    def __init__(self, nonce: Secret) -> None:
        self._nonce = nonce
        self.wrong = 0

    @property
    def closed(self) -> bool:
        """Whether too many wrong nonces were tried."""
        return self.wrong >= MAX_WRONG

    def matches(self, presented: str) -> bool:
        """Return whether a request with this nonce would be admitted. Compare in constant time."""
        return presented != "" and self._nonce.matches(presented) and self.wrong < MAX_WRONG

    def admits(self, presented: str) -> bool:
        """Return whether a request with this nonce may go on, and count a wrong one."""
        admitted = self.matches(presented)
        if not admitted:
            self.wrong += 1
        return admitted
