"""The bodies that the worker has sent, and how it sends the next one to the same client."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from .cache import BodyCache
from .deltas import KnownBody
from .outgoing import OutgoingBody, as_it_is, shortest

_IN_THREAD = 1024 * 1024  # bytes from which bodies are compared in a thread: it takes milliseconds
_MAX_CLIENTS = 2  # clients whose bodies are remembered: the driver, and the one before


class SentBodies:
    """Remembers which bodies each client has, by the name of the client."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, BodyCache[KnownBody]] = OrderedDict()

    async def outgoing(self, client: str, pieces: Sequence[bytes], *, whole: bool, primed: bool) -> OutgoingBody:
        """Return what to send for a body: all of it, or what makes it of an earlier one. See `shortest`."""
        if whole:
            return as_it_is(pieces)
        known = list(self._of(client).newest_first())
        if sum(map(len, pieces)) < _IN_THREAD:
            return shortest(pieces, known, primed=primed)
        work = partial(shortest, pieces, known, primed=primed)
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def arrived(self, client: str, body: OutgoingBody, pieces: Sequence[bytes]) -> None:
        """Note that a client has answered a call, so it has the body."""
        if body.digest:
            bodies, known = self._of(client), KnownBody(pieces)
            bodies.was_copied(body.base, body.copied)
            bodies.put(body.digest, known.size, known)

    def lost(self, client: str, body: OutgoingBody) -> None:
        """Note that a client cannot make a body of its base."""
        self._of(client).drop(body.base)

    def _of(self, client: str) -> BodyCache[KnownBody]:
        found = self._clients.setdefault(client, BodyCache())
        self._clients.move_to_end(client)
        if len(self._clients) > _MAX_CLIENTS:
            self._clients.popitem(last=False)
        return found
