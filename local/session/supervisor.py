"""Keep a session connected: dial, attach, read the link to its end, and dial again while that makes sense."""

from __future__ import annotations

import asyncio
import logging
import time

from ccb.tunnel import errors
from ccb.tunnel.link.link import Greeting, Link
from ccb.tunnel.tasks import cancelled

from .dialing import FIRST_TRIES, Dial, KnownSession, WorkerConnection
from .link_reader import LinkReader
from .session_client import EventGap, LinkChangeKind, SessionEvent

log = logging.getLogger(__name__)

_MAX_GARBLED = 3
AS_VIEWER = 0  # the epoch of what a viewer answers


class Supervisor:
    """Makes the connections of a session. `ready`: after the first attach, or the error that prevented it."""

    def __init__(self, dial: Dial, reader: LinkReader) -> None:
        self.hello: Greeting | None = None
        self.connection: WorkerConnection | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked_epoch = 0  # by the newest attach
        self._dial = dial
        self._reader = reader
        self._options, self._schedule = reader.options, reader.schedule
        self._feed, self._outbox, self._requests = reader.feed, reader.outbox, reader.requests

    async def run(self) -> None:
        try:
            may_ask = True
            while self._feed.standing.goes_on:
                error = await self._connect_once(may_ask=may_ask)
                if error is None:
                    return
                may_ask = await self._wait_for_next(error)
        except errors.CcbError as error:
            log.warning("the session ended here: %s", error)
            await self._give_up(error)
        except Exception as error:
            log.exception("reading the session failed")
            await self._give_up(errors.CcbError("reading the session failed", evidence=type(error).__name__))

    def come_back(self) -> str:
        if self.hello is None or self._options.resume is None:
            return "Connect again."
        return f"The session goes on. Come back with: {self._options.resume(self.hello)}"

    async def _give_up(self, error: errors.CcbError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            return
        self._requests.fail(error.what)
        self._feed.failure = error
        await self._feed.change(LinkChangeKind.GIVE_UP, error.what)
        self.end(LinkChangeKind.GIVE_UP)

    def end(self, change: LinkChangeKind) -> None:
        self._feed.end(change)
        self._reader.channels.end("the session has ended")
        self._requests.fail("the connection ended before the answer")

    async def _connect_once(self, *, may_ask: bool) -> errors.CcbError | None:
        """Make a connection, and read it to its end. Return why it was lost, None if the session is over."""
        known = KnownSession(self.hello, self._reader.begun) if self.hello is not None else None
        limit = self._schedule.begin(endless=may_ask)
        try:
            async with limit, self._dial(known, may_ask) as connection:
                await self._attach(connection)
                limit.reschedule(None)
                self._schedule.over()
                reason = await self._serve(connection)
        except errors.SessionStopped as stopped:  # the session was stopped while this client was away
            if not self.ready.done():
                raise
            reason = stopped.what
        except (errors.CcbError, TimeoutError) as error:
            if isinstance(error, TimeoutError) and not limit.expired():
                raise
            if self._feed.standing.goes_on:
                late = errors.ConnectionLost("the host did not answer in time")
                return error if isinstance(error, errors.CcbError) else late
            self.end(LinkChangeKind.END)
            return None
        finally:
            self._schedule.over()
        await self._feed.change(LinkChangeKind.END, reason)
        self.end(LinkChangeKind.END)
        return None

    async def _attach(self, connection: WorkerConnection) -> None:
        hello, options, reader = connection.hello, self._options, self._reader
        first = dict(options.options)
        if not reader.begun and options.for_host is not None:
            first |= await options.for_host(hello)
        if reader.begun and hello.seq < reader.have:
            await self._rewind(hello)
        if hello.driver == options.who:
            self._feed.shift(LinkChangeKind.HOLDS)
        elif reader.begun and hello.driver and not self._still_claims(hello):
            self._feed.shift(LinkChangeKind.YIELD)  # only the person may take a session from another client
        self._feed.shift(LinkChangeKind.ATTACH)  # inputs follow the attach without a round trip
        reader.attaching(others_drove=hello.driver != options.who or hello.epoch > self._asked_epoch)
        role = "driver" if self._feed.standing.driving else "viewer"
        tail, given = (options.later_tail, {"client": options.who}) if reader.begun else (options.tail, first)
        channels = reader.channels
        await connection.attach(role=role, have=reader.have, tail=tail, options=given, channels=channels.numbers)
        channels.back(connection.send_of_channel)
        self.hello, self.connection, self._asked_epoch = hello, connection, connection.link.epoch
        if not self.ready.done():
            self.ready.set_result(None)

    def _still_claims(self, hello: Greeting) -> bool:
        """Whether the wish to drive is open. If others attached after us, it was granted, and that was lost."""
        standing = self._feed.standing
        return standing.claims and not (standing.driving and hello.epoch > self._asked_epoch)

    async def _rewind(self, hello: Greeting) -> None:
        """Go on from the last event that a damaged host has. Raises EventsLost if this client needs every event."""
        gone, self._reader.have = self._reader.have - hello.seq, hello.seq
        self.hello = hello
        what = f"the host has lost the last {gone} event(s) that this ccb had received"
        if not self._options.later_tail:
            raise errors.EventsLost(what, do=self.come_back())
        await self._feed.put(SessionEvent("damaged", {"what": what}, hello.seq))
        await self._feed.put(EventGap(hello.seq, {}))

    async def _serve(self, connection: WorkerConnection) -> str:
        sending = asyncio.create_task(self._send(connection.link), name="session outbox")
        try:
            return await self._reader.read(connection.link)
        finally:
            self.connection = None
            self._reader.channels.lost()
            self._requests.connection_lost()
            await cancelled(sending)

    async def _send(self, link: Link) -> None:
        self._outbox.rewind()
        try:
            while (driving := self._feed.standing.driving) or self._options.answers:
                await link.send(await self._outbox.next(link.epoch if driving else AS_VIEWER))
                link.liveness.expect()
        except errors.ConnectionLost as error:
            log.debug("sending ended: %s", error.what)

    async def _wait_for_next(self, error: errors.CcbError) -> bool:
        """Wait for the next attempt. Return whether it may ask the person. Raises CcbError if there will be none."""
        log.info("no connection: %s", error)
        schedule = self._schedule
        connected_before = self.ready.done()
        schedule.fail(garbled=connected_before and isinstance(error, errors.ProtocolError))
        if not connected_before:
            if not isinstance(error, errors.ConnectionLost | errors.Dropped) or schedule.failed >= FIRST_TRIES:
                raise error
            await asyncio.sleep(schedule.next_wait())
            return self.hello is None
        final = errors.UsageError | errors.NoSuchSession | errors.EventsLost
        if isinstance(error, final) or schedule.garbled >= _MAX_GARBLED:
            raise error
        left = schedule.patience_left()  # before anyone learns of the loss and nudges
        if left <= 0:
            raise schedule.exhausted(error, self.come_back())
        if isinstance(error, errors.AuthFailed | errors.HostKeyError) and not self._asked_to_drive():
            return await self._wait_for_person(error, left)
        wait = min(schedule.next_wait(at_once=schedule.by_person or self._asked_to_drive()), left)
        await self._feed.change(LinkChangeKind.LOST_LINK, error.what, schedule.failed, time.monotonic() + wait)
        if wait > 0:
            await schedule.pause(wait)
            await self._feed.change(LinkChangeKind.LOST_LINK, error.what, schedule.failed)
        return schedule.by_person and self._options.can_ask and isinstance(error, errors.NodeGone)

    async def _wait_for_person(self, error: errors.CcbError, left: float) -> bool:
        """Wait until the person is ready to answer the login. Raises `error` if there is no person."""
        if not self._options.can_ask:
            raise error
        await self._feed.change(LinkChangeKind.LOGIN_ASKS, error.what)
        may_ask = await self._schedule.pause(left)
        why = "logging in" if may_ask else error.what
        await self._feed.change(LinkChangeKind.LOST_LINK, why, self._schedule.failed)
        return may_ask

    def _asked_to_drive(self) -> bool:
        return self._feed.standing.claims and self._reader.begun and self._schedule.failed == 1
