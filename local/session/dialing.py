"""A connection to the worker, how a session is attached, and when to reconnect. Times are monotonic seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import field
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.link.link import Greeting, Link, new_nonce
from ccb.tunnel.reconnecting import Pace, waits
from ccb.tunnel.wire.channels import ChannelError, ChannelFrame
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import ChannelOpen

if TYPE_CHECKING:
    from ccb.tunnel.proxy.auth_proxy import AuthProxy
    from ccb.tunnel.proxy.link_front import LinkFront


PATIENCE = 24 * 3600.0  # seconds to reconnect: as long as the daemon keeps a session without clients
FIRST_TRIES = 5  # attempts for a first connection that keeps breaking off in the middle


@dataclass(eq=False)
class WorkerConnection:
    """One connection to the worker, which has said hello. `proxy` answers its model calls; `stack` ends that."""

    link: Link
    hello: Greeting
    _proxy: AuthProxy | None = None
    _stack: AsyncExitStack | None = None
    _calls: LinkFront | None = None

    async def attach(
        self, *, role: str, have: int, tail: int, options: Mapping[str, object], channels: Sequence[int]
    ) -> None:
        """Send the attach frame. From now on, if this client drives, model calls over this connection are served."""
        nonce, proxy, stack, epoch = new_nonce(), self._proxy, self._stack, self.hello.epoch + 1
        if proxy is not None and stack is not None and (role == "driver" or proxy.keeps_calls):
            from ccb.tunnel.proxy.link_front import LinkFront

            proxy.driven_at(epoch)
            packs = "packed" in self.hello.capabilities
            self._calls = LinkFront(proxy, self.link.send, nonce, epoch=epoch, packs=packs)
            await stack.enter_async_context(self._calls)
        calls = self._calls.handle if self._calls is not None else None
        await self.link.attach(
            role=role, have=have, nonce=nonce, options=options, calls=calls, tail=tail, channels=channels
        )

    async def send_of_channel(self, frame: ChannelFrame | ChannelOpen) -> None:
        """Raise ChannelError."""
        try:
            await self.link.send(frame)
        except ConnectionLost as error:
            raise ChannelError(error.what) from error

    @property
    def reading(self) -> bool:
        return self._calls is not None and self._calls.open_streams > 0

    @property
    def request_bytes(self) -> tuple[int, int]:
        bodies = self._proxy.bodies if self._proxy is not None else None
        return (bodies.made, bodies.sent) if bodies is not None else (0, 0)

    async def read_out(self) -> None:
        if self._calls is not None:
            await self._calls.read_out()


@dataclass(frozen=True)
class KnownSession:
    """What the connections so far have revealed about a session. `begun` means that the host has granted an attach."""

    hello: Greeting
    begun: bool


# gets what is known of the session, and whether the login may ask; raises CcbError, or Dropped if it broke off
Dial = Callable[[KnownSession | None, bool], AbstractAsyncContextManager[WorkerConnection]]


@dataclass(frozen=True)
class AttachOptions:
    """How a session is attached. `who` is unique. `tail`s are bytes of events to ask for (0: all). `can_ask`: a person
    can log in again. `answers`: as a viewer it answers questions about tools and sends messages. `for_host`
    returns further options of the first attach."""

    options: Mapping[str, object] = field(default_factory=dict)
    who: str = ""
    role: str = "driver"
    tail: int = 0
    later_tail: int = 0
    patience: float = PATIENCE
    resume: Callable[[Greeting], str] | None = None
    can_ask: bool = False
    answers: bool = False
    waits: Callable[[], Iterator[float]] = waits
    for_host: Callable[[Greeting], Awaitable[Mapping[str, object]]] | None = None


ATTEMPT_S = 60.0  # seconds an attempt to reconnect may take when nobody is asked anything
_STUCK_S = 5.0


class RetrySchedule:
    """The reconnect attempts of a session. `failed` and `garbled` count those in a row. Patience starts with a loss."""

    def __init__(self, patience: float, waits: Callable[[], Iterator[float]]) -> None:
        self.failed = 0
        self.garbled = 0
        self._patience = patience
        self._pace = Pace(waits)
        self._lost_at: float | None = None
        self._limit: asyncio.Timeout | None = None
        self._began = 0.0
        self._hurried = False
        self.by_person = False  # the person wants to try now, and may be asked something
        self._nudged = asyncio.Event()

    def begin(self, *, endless: bool) -> asyncio.Timeout:
        """Return the time limit of an attempt that begins now. It is `endless` if the person may be asked something."""
        left = ATTEMPT_S if self._lost_at is None else self._lost_at + self._patience - time.monotonic()
        limit = asyncio.timeout(None if endless else max(0.0, min(ATTEMPT_S, left)))
        self._limit, self._began = None if endless else limit, time.monotonic()
        self.by_person = False
        return limit

    def over(self) -> None:
        """Note that the attempt has succeeded or failed. From now on `retry` and `hurry` only cut waits short."""
        self._limit = None

    def fail(self, *, garbled: bool) -> None:
        self.failed += 1
        self.garbled += garbled

    def granted(self) -> None:
        self.failed, self._lost_at = 0, None
        self._pace.connected()

    def patience_left(self) -> float:
        """Return the seconds until a session whose connection is lost is given up. Forgets earlier nudges."""
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        self._nudged.clear()
        return self._lost_at + self._patience - now

    def exhausted(self, error: CcbError, do: str) -> ConnectionLost:
        return ConnectionLost(
            f"the connection was lost and could not be made again within {self._patience:g} s",
            evidence="\n".join(filter(None, (error.what, error.evidence))),
            do=do,
        )

    def next_wait(self, *, at_once: bool = False) -> float:
        hurried, self._hurried = self._hurried, False
        return 0.0 if at_once or hurried else self._pace.next()

    async def pause(self, seconds: float) -> bool:
        """Wait, or until a nudge. Return whether it was the person's."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        return self.by_person

    def nudge(self, *, by_person: bool = False) -> None:
        self.by_person = self.by_person or by_person
        self._nudged.set()

    def retry(self) -> None:
        """Try now, because the person wants to. Replace an attempt that has been running for a while with a new one."""
        self.nudge(by_person=True)
        if time.monotonic() - self._began > _STUCK_S:
            self._give_up()

    def hurry(self) -> None:
        """Try now, because the network may have changed. Give up a running attempt: it may hang on the old network."""
        self.nudge()
        self._give_up()

    def _give_up(self) -> None:
        if self._limit is not None and not self._limit.expired():
            self._hurried = True
            self._limit.reschedule(asyncio.get_running_loop().time())
