"""A login while the person does something else: nobody is asked, and what waits for them is handed to them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ccb.tunnel.errors import AuthFailed
from ccb.tunnel.login.prompter import NobodyToAsk, Prompts
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.transports.pipe import Transport

WORDS_S = 20.0
"""Seconds for a login in which a banner, a jump host or a ProxyCommand has said something: it may be where to log in."""

_MOST_SAID = 160
_MOST_KEPT = 20
_LONGEST_KEPT = 2_000


class _Overheard(NobodyToAsk):
    """Tells of the first words, and keeps the last of them, until the login is `over`: a transport may speak later, too."""

    def __init__(self, prompts: Prompts, first: Callable[[], None]) -> None:
        super().__init__(prompts.memory)
        self.words: deque[str] = deque(maxlen=_MOST_KEPT)
        self.over = False
        self._first = first

    def banner(self, text: str) -> None:
        if text.strip() and not self.over:
            if not self.words:
                self._first()
            self.words.append(text.strip()[:_LONGEST_KEPT])


async def log_in_quietly(
    log_in: Callable[[Prompts], Awaitable[Transport]], prompts: Prompts, host: str, *, words_s: float = WORDS_S
) -> Transport:
    """`log_in` without asking. Raises AuthFailed with the words that were said when they are not followed by a login, and what
    `log_in` raises. Where there is never a person, it may take as long as it takes."""
    if isinstance(prompts, NobodyToAsk):
        return await log_in(prompts)
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    overheard = _Overheard(prompts, lambda: limit.reschedule(loop.time() + words_s))
    try:
        async with limit:
            return await log_in(overheard)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AuthFailed(
            f"the login to {host} waits for you: {one_line(overheard.words[-1])[:_MOST_SAID]}",
            evidence="\n".join(overheard.words),
            do="Log in again with r: what it says is shown there.",
        ) from None
    finally:
        overheard.over = True
