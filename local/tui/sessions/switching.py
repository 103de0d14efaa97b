"""What the person wants next: to leave, or another session on the screen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True)
class NextSession:
    """The session that comes next: an existing one, or a new one if `session` is "". A new one begins with `model` and
    `mode`, where they are not ""."""

    session: str = ""
    model: str = ""
    mode: str = ""


class Switching:
    """Tells whoever holds the connection which session the person wants next."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[NextSession] = asyncio.Queue()

    def go_to(self, following: NextSession) -> None:
        """Show another session in place of this one."""
        self._next.put_nowait(following)

    async def wait(self, left: asyncio.Event) -> NextSession | None:
        """Return the next session, None once the person has `left`."""
        leaving, going = asyncio.ensure_future(left.wait()), asyncio.ensure_future(self._next.get())
        try:
            await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
            return going.result() if going.done() and not leaving.done() else None
        finally:
            for each in (leaving, going):
                each.cancel()
            await asyncio.gather(leaving, going, return_exceptions=True)
