"""What a session needs of its connections, and how it is attached."""

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
        """Send the attach. From here on the model calls of a driver are served."""

    @property
    def reading(self) -> bool:
        """Whether an answer of the model is read for the session over this connection."""

    async def read_out(self) -> None:
        """Wait until no answer is read over it any more."""


@dataclass(frozen=True)
class KnownSession:
    """What the connections so far have told of a session. `begun`: the host has granted an attach."""

    hello: Hello
    begun: bool


class Dial(Protocol):
    """Makes a connection. `known` is None for the first one; `ask`: the person may be asked. Raises CcbError:
    ConnectionLost or `Dropped` for a connection that broke off before it was complete."""

    def __call__(self, *, known: KnownSession | None, ask: bool) -> AbstractAsyncContextManager[Connection]: ...


@dataclass(frozen=True)
class AttachOptions:
    """How a session is attached. `options` go with the first attach; `who` is the unique name of this client. `tail` is
    the number of bytes of events that the first attach asks for, `later_tail` that of the others (0: everything).
    `patience`: seconds for which a lost connection is tried again. `resume`: the command that comes back. `can_ask`:
    there is a person who can log in again. `waits`: the seconds before each attempt."""

    options: Mapping[str, object] = field(default_factory=dict)
    who: str = ""
    role: str = "driver"
    tail: int = 0
    later_tail: int = 0
    patience: float = PATIENCE
    resume: str = ""
    can_ask: bool = False
    waits: Callable[[], Iterator[float]] = waits
