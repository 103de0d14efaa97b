"""Log in again while the person does something else: no questions, and a clear error if the login needs the person."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ccb.tunnel.errors import AuthFailed
from ccb.tunnel.login.prompter import NobodyToAsk, Prompts
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.transports.pipe import LogsInLater, Transport

BANNER_LIMIT_S = 20.0
"""Seconds left to a login after a banner, jump host or ProxyCommand printed text: it may be a question."""

_MAX_QUOTED = 160
_MAX_BANNERS = 20
_MAX_BANNER = 2_000


class _BannerWatch(NobodyToAsk):
    """Calls `first` at the first banner, and keeps the last banners until the login is `over`."""

    def __init__(self, prompts: Prompts, first: Callable[[], None]) -> None:
        super().__init__(prompts.memory)
        self.banners: deque[str] = deque(maxlen=_MAX_BANNERS)
        self.over = False
        self._first = first

    def banner(self, text: str) -> None:
        if text.strip() and not self.over:
            if not self.banners:
                self._first()
            self.banners.append(text.strip()[:_MAX_BANNER])


async def log_in_unattended(
    log_in: Callable[[Prompts], Awaitable[Transport]], prompts: Prompts, host: str, *, limit_s: float = BANNER_LIMIT_S
) -> Transport:
    """Call `log_in` with prompts that ask nobody, and return its transport.

    Raises AuthFailed with the banners if the login does not succeed within `limit_s` of the first one, and whatever
    `log_in` raises. A headless run has no limit here.
    """
    if isinstance(prompts, NobodyToAsk):
        return await log_in(prompts)
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    watch = _BannerWatch(prompts, lambda: limit.reschedule(loop.time() + limit_s))
    try:
        async with limit:
            return await _to_the_end(await log_in(watch))
    except TimeoutError:
        if not limit.expired():
            raise
        raise AuthFailed(
            f"the login to {host} waits for you: {one_line(watch.banners[-1])[:_MAX_QUOTED]}",
            evidence="\n".join(watch.banners),
            do="Press r to log in again: its questions appear then.",
        ) from None
    finally:
        watch.over = True


async def _to_the_end(transport: Transport) -> Transport:
    """Return the transport at the end of its login. Raise the CcbError of one that fails."""
    if isinstance(transport, LogsInLater):
        try:
            await transport.logged_in()
        except BaseException:
            await transport.close()
            raise
    return transport
