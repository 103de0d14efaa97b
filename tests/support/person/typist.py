"""A person who types passphrases."""

from __future__ import annotations

from ccb.tunnel.transports.login_prompts import NobodyToAsk


class Typist(NobodyToAsk):
    """Types these passphrases, one after the other, and then no more."""

    def __init__(self, *typed: str) -> None:
        super().__init__()
        self.typed = list(typed)
        self.asked: list[tuple[str, int]] = []

    async def passphrase(self, path: str, attempt: int) -> str | None:
        self.asked.append((path, attempt))
        return self.typed.pop(0) if self.typed else None
