"""One session over many connections, with a bounded queue of events, and an outbox until the host has the inputs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Self

from ccb.tunnel.errors import CcbError, ConnectionLost, UsageError
from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire.channels import Channel, ChannelError
from ccb.tunnel.wire.frames import CHANNELS, NAMES, OUTPUT, Detach, Fetch, FindNames, Frame, ReadOutput
from ccb.tunnel.wire.journal_records import InputRecord, parse_page
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, PublicMessage, parse_message
from ccb.tunnel.wire.outside_messages import TELL_SESSION

from . import session_client as client
from .answering import RequestResponder
from .dialing import AttachOptions, Dial, RetrySchedule, WorkerConnection
from .link_reader import EventFeed, LinkReader
from .outbox import Outbox, PendingRequests, input_id_of
from .supervisor import Supervisor

_PREFIX = "laptop-"


def is_own(request_id: str) -> bool:
    return request_id.startswith(_PREFIX)


def _may_be_a_viewers(line: PublicMessage) -> bool:
    return isinstance(line, ControlResponse) or (isinstance(line, ControlRequest) and line.subtype == TELL_SESSION.name)


class OwnQuestions:
    """The open questions of this laptop, as few as its services. The reader answers them like the worker's."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._open: dict[str, tuple[client.Json, asyncio.Future[control.Answer]]] = {}

    async def ask(self, request: control.Request[control.P, control.A]) -> control.A:
        """Return the reader's answer. If this is cancelled, the question is withdrawn."""
        request = replace(request, id=f"{_PREFIX}{control.new_uuid()}")
        answer: asyncio.Future[control.Answer] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request.public(), answer
        self._feed.add(client.SessionEvent("progress", request.public(), 0))
        try:
            return request.kind.read_answer(await answer)
        finally:
            if self._open.pop(request.id, None) is not None:
                self._feed.add(client.SessionEvent("progress", control.public_withdrawal(request.id), 0))

    def take(self, line: PublicMessage) -> bool:
        if not isinstance(line, ControlResponse) or line.request_id not in self._open:
            return False
        _, answer = self._open.pop(line.request_id)
        if not answer.done():
            answer.set_result(control.answer_in(line))
        return True

    def is_open(self, line: PublicMessage) -> bool:
        return isinstance(line, ControlRequest) and line.request_id in self._open

    def is_forged(self, line: PublicMessage) -> bool:
        """Return whether a request has an id of this laptop and is not one of its open questions."""
        return isinstance(line, ControlRequest) and is_own(line.request_id) and not self.is_open(line)

    @property
    def bodies(self) -> list[client.Json]:
        return [body for body, _ in self._open.values()]


log = logging.getLogger(__name__)

_REQUESTS = ("control_request", "control_cancel_request")
_LEAVE_S = 2.0
_LAST_INPUTS_S = 1.5  # seconds for the host to confirm the last inputs


class RemoteSession:
    """Drives or watches a session over connections from `dial`. Entering makes the first one; leaving ends nothing."""

    def __init__(self, dial: Dial, options: AttachOptions | None = None) -> None:
        options = options or AttachOptions()
        self._answers = options.answers
        self._feed = EventFeed(client.DriverRole.WANTS if options.role == "driver" else client.DriverRole.WATCHES)
        self._outbox = Outbox()
        self._requests = PendingRequests()
        self._responder = RequestResponder(self._outbox, self.warn)
        self._own = OwnQuestions(self._feed)
        self._witnesses: list[client.Witness] = []
        self._schedule = RetrySchedule(options.patience, options.waits)
        self._reader = LinkReader(options, self._feed, self._outbox, self._requests, self._responder, self._schedule)
        self._supervisor = Supervisor(dial, self._reader)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._supervisor.run(), name="session")
        try:
            await self._supervisor.ready
        except BaseException:
            await cancelled(self._task)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancelled(self._task)
        await self._responder.close()
        self._requests.fail("the session was left")

    @property
    def _connection(self) -> WorkerConnection | None:
        return self._supervisor.connection

    @property
    def hello(self) -> Greeting:
        hello = self._supervisor.hello
        assert hello is not None, "enter the session first"
        return hello

    @property
    def state(self) -> client.LinkState:
        return self._feed.standing.link

    @property
    def driving(self) -> bool:
        return self._feed.standing.driving

    @property
    def unsent(self) -> int:
        return len(self._outbox)

    @property
    def unanswered_s(self) -> float:
        return self._connection.link.liveness.unanswered_s if self._connection is not None else 0.0

    @property
    def round_trip_s(self) -> float | None:
        return self._connection.link.liveness.round_trip_s if self._connection is not None else None

    @property
    def request_bytes(self) -> tuple[int, int]:
        return self._connection.request_bytes if self._connection is not None else (0, 0)

    # What comes from the host.

    async def events(self) -> AsyncIterator[client.Item]:
        """One reader at a time."""
        self._responder.begin()
        self._reader.answer_requests()
        async for item in self._feed.items():
            if isinstance(item, client.EventGap):
                yield self._with_open_questions(item)
            elif not (isinstance(item, client.SessionEvent) and self._is_answered_here(item)):
                yield item

    def _is_answered_here(self, item: client.SessionEvent) -> bool:
        content = item.record.content if item.kind == "input" else None
        if isinstance(content, InputRecord) and isinstance(content.public, ControlResponse):
            for witness in self._witnesses:  # another client has answered: ours told them when it did
                witness.withdrawn(content.public.request_id)
        if item.kind not in ("message", "progress") or item.body.get("type") not in _REQUESTS:
            return False
        line = item.public
        hidden = not self._own.is_open(line) and (self._responder.hides(line) or self._own.is_forged(line))
        if not hidden:
            self._witnessed(line)
        return hidden

    def _with_open_questions(self, item: client.EventGap) -> client.EventGap:
        questions = client.parse_snapshot(item.body).questions
        kept = []
        for line in questions:
            if self._responder.is_open(line) and not self._own.is_forged(line):
                self._witnessed(line)
                kept.append(line.body)
        if len(kept) == len(questions) and not self._own.bodies:
            return item
        return client.EventGap(item.seq, {**item.body, "asks": [*kept, *self._own.bodies]})

    def _witnessed(self, line: PublicMessage) -> None:
        for witness in self._witnesses:
            if isinstance(line, ControlRequest):
                witness.asked(line)
            elif isinstance(line, ControlCancel):
                witness.withdrawn(line.request_id)

    def watched_by(self, witness: client.Witness) -> None:
        """Let `witness` see, too, what the reader is asked, and what this client says."""
        self._witnesses.append(witness)

    def tell_items(self, told: Callable[[client.Item], object]) -> None:
        """Call `told` with all that comes for the reader, before the reader has it."""
        self._feed.watchers.append(told)

    async def ask_reader(self, request: control.Request[control.P, control.A]) -> control.A:
        """Put a question of this laptop to the reader. Raises RequestFailed if nobody answers."""
        if not self._responder.leaves_to_reader(request.kind):
            raise control.RequestFailed(f"nobody answers {request.kind.name} here")
        return await self._own.ask(request)

    def warn(self, text: str) -> None:
        self._feed.add(client.LaptopNotice(text))

    def offer_port(self, port: int, text: str) -> None:
        self._feed.add(client.PortOffer(text, port))

    def show(self, body: client.Json) -> None:
        self._feed.add(client.SessionEvent("progress", body, 0))

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[client.SessionEvent]:
        try:
            page = await self._numbered(lambda epoch, number: Fetch(epoch, number, before, most))
        except TimeoutError:
            raise ConnectionLost("the host did not send the earlier events", do="Try again.") from None
        return [client.SessionEvent(each.kind, each.body, each.seq, True) for each in parse_page(page)]

    async def had_before(self, input_id: str) -> int | None:
        """Wait until the host has an input. Return the last skipped event if the host had it before, else None."""
        await self._outbox.confirmed(input_id)
        if input_id not in self._reader.inputs:
            await self.earlier(1, 1)  # a page comes after all events so far
        return None if input_id in self._reader.inputs else self._reader.skipped

    async def names(self, query: str) -> client.FoundNames | None:
        if NAMES not in self.hello.capabilities:
            return None
        try:
            return client.parse_names(await self._numbered(lambda epoch, number: FindNames(epoch, number, query)))
        except TimeoutError:
            return None

    async def open_channel(self, kind: str, body: client.Json) -> Channel:
        """Open a channel, which survives lost connections. The host may refuse it later. Raises ChannelError."""
        if CHANNELS not in self.hello.capabilities:
            raise ChannelError("the worker of this session is of an older version")
        return self._reader.channels.open(kind, body)

    def tell_ports(self, told: Callable[[Mapping[int, HostText]], None]) -> None:
        """Call `told` with the ports on which programs of the session listen, now and after each change."""
        self._reader.ports_told.append(told)
        told(self._reader.listening)

    async def output(self, task_id: str, after: int, most: int, before: int | None = None) -> client.OutputPiece | None:
        if OUTPUT not in self.hello.capabilities:
            what = "the worker of this session is too old to show the output of a task live"
            raise UsageError(what, do=f"/tasks {task_id} shows its end.")
        return client.parse_output(
            await self._numbered(lambda epoch, number: ReadOutput(epoch, number, task_id, after, most, before))
        )

    def tell_state(self, told: Callable[[], object]) -> Callable[[], None]:
        """Call `told` whenever `state` may have changed, until the result is called."""
        self._feed.told.append(told)
        return lambda: self._feed.told.remove(told)

    async def _numbered(self, ask: Callable[[int, int], Frame]) -> client.Json:
        """Return the answer to the frame that `ask` makes of epoch and number. Raises ConnectionLost, TimeoutError."""
        if self._connection is None:
            raise ConnectionLost("the host cannot be asked without a connection", do="Wait for the reconnect.")
        link = self._connection.link
        return await self._requests.numbered(lambda number: link.send(ask(link.epoch, number)))

    @property
    def reading(self) -> bool:
        return self._connection is not None and self._connection.reading

    async def read_out(self) -> None:
        """Read the model's answer to its end, and drop events: a client that took over would pay a second time."""
        self._feed.drop()
        while (connection := self._connection) is not None and connection.reading:
            await connection.read_out()

    # What goes to the host.

    async def prompt(
        self, content: client.Content, *, uuid: str | None = None, how: client.PromptDelivery = client.AS_PROMPT
    ) -> str:
        identity = uuid or control.new_uuid()
        body = {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}
        await self.send({**body, "session_id": self.hello.session, "uuid": identity, **how.fields})
        return identity

    async def send(self, body: client.Json, *, input_id: str = "") -> str:
        """Waits while too much is unconfirmed."""
        line = parse_message(body)
        if self._own.take(line):
            return ""
        if self._feed.failure is not None:
            raise self._feed.failure
        if self.state is client.LinkState.CLOSED:
            raise ConnectionLost("the session has ended", do=self._supervisor.come_back())
        if self.state is client.LinkState.FENCED and not (self._answers and _may_be_a_viewers(line)):
            raise UsageError("another client drives this session", do="Take it back first.")
        input_id = input_id or input_id_of(body)
        for witness in self._witnesses:
            witness.said(line)
        await self._outbox.put(input_id, body)
        self._responder.answered(line)
        return input_id

    async def request(self, request: control.Request[control.P, control.A]) -> control.A:
        """While there is no connection the deadline does not run."""
        deadline_s = request.kind.deadline_s or control.CLIENT_DEADLINE_S
        answer = self._requests.answer_to(request, deadline_s, lambda: self._connection is not None)
        waiting = asyncio.ensure_future(answer)
        try:
            await asyncio.sleep(0)  # register for the answer before it can arrive
            await self.send(request.public(), input_id=request.id)
            return await waiting
        finally:
            self._outbox.withdraw(request.id)  # what its sender has given up must not happen after a reconnect
            await cancelled(waiting)

    async def interrupt(self) -> None:
        await self.request(control.Request(control.INTERRUPT, None))

    def register(
        self,
        kind: control.RequestKind[control.P, control.A],
        service: Callable[[control.P], Awaitable[client.Json]] | None = None,
        runs_once: Callable[[control.P], bool] = lambda _: False,
    ) -> None:
        self._responder.register(kind, service, runs_once)

    async def answer(self, request_id: str, response: client.Json) -> None:
        await self.send(control.public_answer(control.Success(request_id, response)))

    async def refuse(self, request_id: str, error: str) -> None:
        await self.send(control.public_answer(control.Failure(request_id, error)))

    # The connection.

    async def stop(self, *, finish: bool = False) -> None:
        """The request to stop survives a lost connection. `events` ends when the session has ended."""
        if not self._feed.ended.is_set():
            self._outbox.stop(finish=finish)

    async def ended(self) -> None:
        await self._feed.ended.wait()

    async def stopped(self, limit_s: float) -> bool:
        """Stop the session, and return whether the host has ended it within the time."""
        with contextlib.suppress(TimeoutError, CcbError):
            async with asyncio.timeout(limit_s):
                await self.stop()
                await self.ended()
                return True
        return self.ended_on_host

    @property
    def ended_on_host(self) -> bool:
        return self._feed.ended.is_set() and self._feed.failure is None

    def retry(self) -> None:
        self._schedule.retry()

    def take_back(self) -> None:
        if self.driving:
            return
        self._feed.shift(client.LinkChangeKind.TAKE_BACK)
        if self._connection is not None:
            self._connection.link.drop("taking the session back")
        self._schedule.nudge()

    def doubt(self, reason: str) -> None:
        """Test the connection at once: this machine slept, or its network changed."""
        log.info("%s", reason)
        if self._connection is not None:
            self._connection.link.liveness.probe()
        elif self.state is client.LinkState.RECONNECTING:
            self._schedule.hurry()

    async def close(self, *, done: bool = False) -> None:
        self._feed.shift(client.LinkChangeKind.LEAVE)
        connection = self._connection
        if connection is not None and not self._feed.ended.is_set():
            try:
                if self.driving:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_INPUTS_S):
                            await self._outbox.confirmed()
                async with asyncio.timeout(_LEAVE_S):
                    await connection.link.send(Detach(connection.link.epoch, done))
                    await connection.link.flush()
                    if done:
                        await self._feed.ended.wait()
            except (TimeoutError, ConnectionLost) as error:
                log.info("the host was not told that this client leaves: %s", error)
                connection.link.drop("the host did not answer", silent=True)
        self._supervisor.end(client.LinkChangeKind.END)
