"""What a session needs of its connections, and on which terms it is attached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from ccb.tunnel.link.backoff import waits
from ccb.tunnel.link.link import Link
from ccb.tunnel.wire import Hello

PATIENCE = 24 * 3600.0
"""Seconds a lost connection is tried again: as long as the daemon keeps a session without a client."""


class Connection(Protocol):
    """One connection to the session's worker, which has said hello."""

    @property
    def link(self) -> Link: ...

    @property
    def hello(self) -> Hello: ...

    async def attach(self, *, role: str, have: int, tail: int, options: Mapping[str, object]) -> None:
        """Ask for the session; a driver's model calls are served from here on."""

    @property
    def reading(self) -> bool:
        """Whether an answer of the model is read for the session over this connection."""

    async def read_out(self) -> None:
        """Wait until none is."""


@dataclass(frozen=True)
class Known:
    """What is known of a session from its connections so far. `begun`: the host has confirmed an attach."""

    hello: Hello
    begun: bool


class Dial(Protocol):
    """Makes a connection. `known` is None for the first one; `ask`: the person may be asked. Raises CcbError. A connection that
    dropped before it was complete is a ConnectionLost or a `Dropped`."""

    def __call__(self, *, known: Known | None, ask: bool) -> AbstractAsyncContextManager[Connection]: ...


@dataclass(frozen=True)
class Terms:
    """How a session is attached. `options` go with the first attach, `who` is this client's unique name. `tail` is that of
    the first attach, `later_tail` of the others (bytes, 0: everything). `patience` in seconds; `resume` is the command
    that comes back. `can_ask`: there is a person who can log in again. `waits` are the seconds before each attempt."""

    options: Mapping[str, object] = field(default_factory=dict)
    who: str = ""
    role: str = "driver"
    tail: int = 0
    later_tail: int = 0
    patience: float = PATIENCE
    resume: str = ""
    can_ask: bool = False
    waits: Callable[[], Iterator[float]] = waits
