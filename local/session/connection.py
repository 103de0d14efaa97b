"""What a session needs from its connections, and the options of its attach."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Protocol

from ccb.tunnel.link.backoff import waits
from ccb.tunnel.link.greeting import Greeting
from ccb.tunnel.link.link import Link
from ccb.tunnel.wire.dataclass import dataclass

PATIENCE = 24 * 3600.0
"""Seconds to go on trying to restore a lost connection: as long as the daemon keeps a session that has no client."""

FIRST_TRIES = 5
"""Attempts for a first connection that keeps breaking off in the middle."""


class Connection(Protocol):
    """One connection to the session's worker, which has said hello."""

    @property
    def link(self) -> Link: ...

    @property
    def hello(self) -> Greeting: ...

    async def attach(self, *, role: str, have: int, tail: int, options: Mapping[str, object]) -> None:
        """Send the attach frame. From now on, if this client drives, model calls over this connection are served."""

    @property
    def reading(self) -> bool:
        """Whether a model answer is being read for the session over this connection."""

    @property
    def request_bytes(self) -> tuple[int, int]:
        """The bytes of the requests to the model in this run of ccb, and how many of them crossed the link."""

    async def read_out(self) -> None:
        """Wait until no model answer is being read over this connection."""


@dataclass(frozen=True)
class KnownSession:
    """What the connections so far have revealed about a session. `begun` means that the host has granted an attach."""

    hello: Greeting
    begun: bool


class Dial(Protocol):
    """Makes a connection. `known` is None for the first one. `ask` means that the login may ask the person. Raises
    CcbError; it is ConnectionLost or `Dropped` if the connection broke off before it was complete."""

    def __call__(self, *, known: KnownSession | None, ask: bool) -> AbstractAsyncContextManager[Connection]: ...


@dataclass(frozen=True)
class AttachOptions:
    """How a session is attached. `options` go with the first attach. `who` is the unique name of this client. `tail` is
    the number of bytes of events that the first attach asks for, `later_tail` that of later ones (0: everything).
    `patience` is the number of seconds to go on trying to restore a lost connection. `resume` is the command that
    returns to the session. `can_ask` means that there is a person who can log in again. `waits` yields the seconds
    before each attempt. `for_host` returns further options of the first attach, which depend on the host or on
    the directory of the session; it raises CcbError."""

    options: Mapping[str, object] = field(default_factory=dict)
    who: str = ""
    role: str = "driver"
    tail: int = 0
    later_tail: int = 0
    patience: float = PATIENCE
    resume: str = ""
    can_ask: bool = False
    waits: Callable[[], Iterator[float]] = waits
    for_host: Callable[[Greeting], Awaitable[Mapping[str, object]]] | None = None
