"""One attached session over whatever connections it takes: what the REPL and headless runs stand on.

One task supervises: it dials, attaches, reads the link, and dials again when the link is lost. Events go into one bounded
queue, so a slow reader of `events` slows the host down instead of growing memory. Inputs wait in the outbox until the
host has them. Whoever reads sees the connection change only as `LinkChange`s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Self

from ccb.tunnel.errors import (
    AuthFailed,
    CcbError,
    ConnectionLost,
    Dropped,
    EventsLost,
    HostKeyError,
    NoSuchSession,
    ProtocolError,
    SessionStopped,
    UsageError,
)
from ccb.tunnel.link.link import Link
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import (
    Applied,
    Attached,
    Bye,
    Detach,
    Event,
    Fenced,
    Fetch,
    Hello,
    Past,
    Progress,
    Snapshot,
)

from .client import ControlError, Item, Json, LinkChange, LinkState, Received, Skipped, shown_name
from .connection import Connection, Dial, Known, Terms
from .link_state import next_state
from .outbox import Outbox, input_id_of, new_id
from .requests import Requests
from .retry_schedule import Attempts

log = logging.getLogger(__name__)

CONTROL_TIMEOUT = 60.0
"""Connected seconds a control request waits for its answer; what the official clients use."""

QUEUE = 256
"""Most received things that wait for the reader of `events`."""

FIRST_TRIES = 5
"""Attempts for a first connection that keeps breaking off in the middle."""

_LEAVE = 2.0
_LAST_INPUTS = 1.5  # seconds for the host to confirm what was sent just before
_MOST_GARBLED = 3


class Session:
    """Drives (or watches) one session over connections from `dial`. Use as a context: entering makes the first connection and
    raises what hinders it, leaving closes the connection; the session on the host goes on unless it was stopped."""

    def __init__(self, dial: Dial, terms: Terms | None = None) -> None:
        self._dial = dial
        self._terms = terms or Terms()
        self._resume = self._terms.resume
        self._state = LinkState.CONNECTING
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue(QUEUE)
        self._outbox = Outbox()
        self._requests = Requests()
        self._hello: Hello | None = None
        self._begun = False
        self._connection: Connection | None = None
        self._have = 0
        self._replay_ends = 0
        self._driving = False
        self._take = self._terms.role == "driver"
        self._watching = not self._take
        self._garbled = 0
        self._attempts = Attempts(self._terms.patience, self._terms.waits)
        self._asked_person = False
        self._leaving = False
        self._failure: CcbError | None = None
        self._ended = asyncio.Event()
        self._ready: asyncio.Future[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._ready = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(), name="session")
        try:
            await self._ready
        except BaseException:
            await self._end_supervisor()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end_supervisor()
        self._requests.fail("the session was left")

    async def _end_supervisor(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)

    @property
    def hello(self) -> Hello:
        """The newest hello."""
        assert self._hello is not None, "enter the session first"
        return self._hello

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def driving(self) -> bool:
        return self._driving

    @property
    def reading(self) -> bool:
        """Whether this laptop reads an answer of the model for the session."""
        return self._connection is not None and self._connection.reading

    async def read_out(self) -> None:
        """Wait until it does not any more; what happens in the session meanwhile is passed over. Another client that took over
        would have to ask the model, and pay, a second time for what is not read to its end."""
        while (connection := self._connection) is not None and connection.reading:
            passed = asyncio.ensure_future(self._queue.get())
            done = asyncio.ensure_future(connection.read_out())
            await asyncio.wait((passed, done), return_when=asyncio.FIRST_COMPLETED)
            passed.cancel()
            done.cancel()
            await asyncio.gather(passed, done, return_exceptions=True)

    @property
    def unsent(self) -> int:
        """Inputs that the host has not confirmed yet."""
        return len(self._outbox)

    async def events(self) -> AsyncIterator[Item]:
        """Everything that was not read yet, then everything from here on; one reader at a time."""
        while True:
            if self._ended.is_set() and self._queue.empty():
                break
            item = await self._queue.get()
            if item is not None:
                yield item
        if self._failure is not None:
            raise self._failure

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[Received]:
        """See SessionClient."""
        connection = self._connection
        if connection is None:
            raise ConnectionLost("there is no connection to load earlier events over", do="Wait for the reconnect.")
        number, answer = self._requests.open_page()
        try:
            await connection.link.send(Fetch(connection.link.epoch, number, before, most))
            async with asyncio.timeout(CONTROL_TIMEOUT):
                return await answer
        except TimeoutError:
            raise ConnectionLost("the host did not send the earlier events", do="Try again.") from None
        finally:
            self._requests.close_page(number)

    async def prompt(self, content: str | list[Json], *, uuid: str | None = None) -> str:
        """See SessionClient."""
        identity = uuid or new_id()
        await self.send(
            {
                "type": "user",
                "message": {"role": "user", "content": content},
                "parent_tool_use_id": None,
                "session_id": self.hello.session,
                "uuid": identity,
            }
        )
        return identity

    async def send(self, body: Json, *, input_id: str = "") -> str:
        """Send a raw public object; the id under which the journal has it. Waits while too much is unconfirmed."""
        if self._failure is not None:
            raise self._failure
        if self._state is LinkState.CLOSED:
            raise ConnectionLost("the session has ended", do=self._come_back())
        if not self._driving and self._state is LinkState.FENCED:
            raise UsageError("another client drives this session", do="Take it back first.")
        input_id = input_id or input_id_of(body)
        await self._outbox.put(input_id, body)
        return input_id

    async def control(self, subtype: str, **fields: Any) -> Json:
        """See SessionClient. While there is no connection the time-out does not run."""
        request_id = new_id()
        request = {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
        waiting = asyncio.ensure_future(
            self._requests.control(request_id, CONTROL_TIMEOUT, lambda: self._connection is not None)
        )
        try:
            await asyncio.sleep(0)  # the answer is waited for before it can come
            await self.send(request, input_id=request_id)
            return await waiting
        except TimeoutError:
            raise ControlError(f"no answer to {subtype} within {CONTROL_TIMEOUT:g} s") from None
        finally:
            self._outbox.withdraw(request_id)  # what its sender has given up is not to happen after a reconnect
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def interrupt(self) -> None:
        await self.control("interrupt")

    async def answer(self, request_id: str, response: Json) -> None:
        body = {"subtype": "success", "request_id": request_id, "response": response}
        await self.send({"type": "control_response", "response": body})

    async def refuse(self, request_id: str, error: str) -> None:
        """Answer a control request of the worker with an error: nobody decides it."""
        body = {"subtype": "error", "request_id": request_id, "error": error}
        await self.send({"type": "control_response", "response": body})

    async def stop(self, *, finish: bool = False) -> None:
        """Ask the host to end the session, also after a reconnect; `events` ends when it has."""
        if not self._ended.is_set():
            self._outbox.stop(finish=finish)

    async def ended(self) -> None:
        """Wait until the session has ended, for whatever reason."""
        await self._ended.wait()

    @property
    def ended_there(self) -> bool:
        """The session has ended on the host."""
        return self._ended.is_set() and self._failure is None

    def come_back_with(self, command: str) -> None:
        """The command that comes back, for messages about a lost connection."""
        self._resume = command

    def retry(self) -> None:
        """See SessionClient."""
        if self._state is LinkState.NEEDS_PERSON:
            self._asked_person = True
        self._attempts.retry()

    def take_back(self) -> None:
        """See SessionClient."""
        if self._driving:
            return
        self._take, self._watching = True, False
        if self._connection is not None:
            self._connection.link.drop("taking the session back")
        self._attempts.nudge()

    def doubt(self, reason: str) -> None:
        """Something happened to this machine (it slept, its network changed): see at once whether the connection lives."""
        log.info("%s", reason)
        if self._connection is not None:
            self._connection.link.probe()
        elif self._state is LinkState.RECONNECTING:
            self._attempts.hurry()

    async def close(self, *, done: bool = False) -> None:
        """See SessionClient."""
        self._leaving = True
        connection = self._connection
        if connection is not None and not self._ended.is_set():
            try:
                if self._driving:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._outbox.confirmed(), _LAST_INPUTS)
                async with asyncio.timeout(_LEAVE):
                    await connection.link.send(Detach(connection.link.epoch, done))
                    await connection.link.flush()
                    if done:
                        await self._ended.wait()
            except (TimeoutError, ConnectionLost) as error:
                log.info("the host was not told that this client leaves: %s", error)
                connection.link.drop("the host did not answer", silent=True)
        self._end(LinkState.CLOSED)

    async def _supervise(self) -> None:
        try:
            while await self._connect_once():
                pass
        except CcbError as error:
            log.warning("the session ended here: %s", error)
            await self._give_up(error)
        except Exception as error:
            log.exception("reading the session failed")
            await self._give_up(CcbError("reading the session failed", evidence=type(error).__name__))

    async def _give_up(self, error: CcbError) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
            return
        self._failure = error
        self._requests.fail(error.what)
        await self._change(LinkState.LOST, error.what)
        self._end(LinkState.LOST)

    async def _connect_once(self) -> bool:
        """One connection to its end; whether there should be another. Raises CcbError when there cannot be."""
        ask, self._asked_person = self._hello is None or self._asked_person, False
        known = Known(self._hello, self._begun) if self._hello is not None else None
        limit = self._attempts.begin(endless=ask)
        try:
            async with limit, self._dial(known=known, ask=ask) as connection:
                await self._attach(connection)
                limit.reschedule(None)
                self._attempts.over()
                try:
                    reason = await self._pump(connection)
                finally:
                    self._detached()
        except SessionStopped as stopped:  # while nobody was here to take the goodbye
            reason = stopped.what
        except (CcbError, TimeoutError) as error:
            self._attempts.over()
            if isinstance(error, TimeoutError) and not limit.expired():
                raise
            if self._leaving:
                self._end(LinkState.CLOSED)
                return False
            late = ConnectionLost("the host did not answer in time")
            await self._after(error if isinstance(error, CcbError) else late)
            return True
        finally:
            self._attempts.over()
        await self._change(LinkState.CLOSED, reason)
        self._end(LinkState.CLOSED)
        return False

    async def _attach(self, connection: Connection) -> None:
        assert self._ready is not None
        hello, terms = connection.hello, self._terms
        if self._begun and hello.seq < self._have:
            await self._rewound(hello)
        foreign = hello.driver not in ("", terms.who)
        if self._begun and foreign and not self._take:
            self._watching = True  # only the person takes a session from somebody
        role = "viewer" if self._watching else "driver"
        await connection.attach(
            role=role,
            have=self._have,
            tail=terms.later_tail if self._begun else terms.tail,
            options={"client": terms.who} if self._begun else terms.options,
        )
        self._hello, self._connection = hello, connection
        self._driving = role == "driver"  # until the host says otherwise: inputs follow the attach without a round trip
        if not self._ready.done():
            self._state = next_state(self._state, LinkState.CONNECTED)
            self._ready.set_result(None)

    async def _rewound(self, hello: Hello) -> None:
        """Damage has cost the host what came after. Raises EventsLost for who needs every event: it may lack its result."""
        gone, self._hello, self._have = self._have - hello.seq, hello, hello.seq
        lost = EventsLost(f"the host has lost the last {gone} event(s) that were seen here", do=self._come_back())
        if not self._terms.later_tail:
            raise lost
        for item in (Received("damaged", {"what": lost.what}, hello.seq), Skipped(hello.seq, {})):
            await self._queue.put(item)

    def _detached(self) -> None:
        self._connection = None
        self._requests.fail_pages()

    async def _after(self, error: CcbError) -> None:
        """A connection was lost or not made: wait for the next attempt. Raises CcbError when there is none."""
        log.info("no connection: %s", error)
        assert self._ready is not None
        attempts = self._attempts
        attempts.fail()
        if not self._ready.done():
            if not isinstance(error, ConnectionLost | Dropped) or attempts.failed >= FIRST_TRIES:
                raise error
            await asyncio.sleep(attempts.next_wait())
            return
        self._garbled += isinstance(error, ProtocolError)
        if isinstance(error, UsageError | NoSuchSession | EventsLost) or self._garbled >= _MOST_GARBLED:
            raise error
        left = attempts.patience_left()  # before anybody hears of it and nudges
        if left <= 0:
            raise attempts.exhausted(error, self._come_back())
        if isinstance(error, AuthFailed | HostKeyError) and not self._take_now():
            if not self._terms.can_ask:
                raise error
            await self._change(LinkState.NEEDS_PERSON, error.what)
            await attempts.pause(left)
            why = "logging in" if self._asked_person else error.what
            await self._change(LinkState.RECONNECTING, why, attempts.failed)
            return
        wait = min(attempts.next_wait(at_once=self._take_now()), left)
        await self._change(LinkState.RECONNECTING, error.what, attempts.failed, time.monotonic() + wait)
        if wait > 0:
            await attempts.pause(wait)
            await self._change(LinkState.RECONNECTING, error.what, attempts.failed)

    def _take_now(self) -> bool:
        """The person has just asked to drive, so there is nothing to wait for."""
        return self._take and self._begun and self._attempts.failed == 1

    def _come_back(self) -> str:
        return f"The session goes on. Come back with: {self._resume}" if self._resume else "Connect again."

    async def _pump(self, connection: Connection) -> str:
        """Read one link to the goodbye of the host, which is returned. Raises ConnectionLost, ProtocolError."""
        sending = asyncio.create_task(self._send(connection.link), name="session outbox")
        goodbye = ""
        try:
            async for frame in connection.link.frames():
                match frame:
                    case Attached():
                        await self._granted(frame)
                    case Event():
                        if not self._requests.take_answer(frame):
                            replayed = frame.seq <= self._replay_ends
                            await self._queue.put(Received(frame.kind, frame.body, frame.seq, replayed))
                        self._have = frame.seq
                        self._garbled = 0
                    case Progress():
                        await self._queue.put(Received("progress", frame.body, frame.seq))
                    case Snapshot():
                        await self._queue.put(Skipped(frame.seq, frame.body))
                        self._have = frame.seq
                    case Applied():
                        self._outbox.confirm(frame.id)
                    case Past():
                        self._requests.take_page(frame)
                    case Fenced():
                        if frame.by and frame.by == self._terms.who:
                            raise ConnectionLost("an earlier connection of this ccb reached the host late")
                        if self._take:  # whom the person asked for comes after who came at the same moment
                            raise ConnectionLost("another client attached at the same moment")
                        await self._fenced(frame.by)
                    case Bye():
                        goodbye = neutralise(frame.reason)
            return goodbye
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, link: Link) -> None:
        """Everything that the host has not confirmed, then what comes, as long as this client drives."""
        self._outbox.rewind()
        try:
            while self._driving:
                await link.send(await self._outbox.next(link.epoch))
        except ConnectionLost as error:
            log.debug("sending ended: %s", error.what)

    async def _granted(self, frame: Attached) -> None:
        self._replay_ends = frame.seq
        log.info("attached as %s; events %d to %d are replayed", frame.role, self._have + 1, frame.seq)
        first, self._begun = not self._begun, True
        self._attempts.granted()
        self._take = False
        if frame.role != "driver":
            await self._fenced(frame.driver)
            return
        if not first or self._state is not LinkState.CONNECTED:
            await self._change(LinkState.CONNECTED)

    async def _fenced(self, by: str) -> None:
        self._driving = False
        self._watching = True
        name = shown_name(by)
        for request_id in self._requests.waiting:
            if self._outbox.withdraw(request_id):  # an interrupt that waited for a take-back would hit another turn
                self._requests.refuse(request_id, f"{name or 'another client'} drives this session now")
        await self._change(
            LinkState.FENCED, f"{name} drives this session now" if name else "nobody drives this session"
        )

    async def _change(
        self, state: LinkState, reason: str = "", attempt: int = 0, retry_at: float | None = None
    ) -> None:
        now = next_state(self._state, state)
        if now is state:
            self._state = now
            await self._queue.put(LinkChange(state, reason, attempt, retry_at))

    def _end(self, state: LinkState) -> None:
        self._state = next_state(self._state, state)
        self._driving = False
        self._ended.set()
        self._requests.fail("the connection ended before the answer")
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes the reader of events
