"""The prompts of a session of the API, one at a time, and what each of them gets."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ccb.tunnel.errors import CcbError, ConnectionLost, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.journal_records import DamagedRecord
from ccb.tunnel.wire.mcp_messages import ELICITATION, MCP_MESSAGE

from ..session import session_client as client
from .events import Answer, Connection, Event, Notice, Schema, TurnFailed, answer_of, events_of
from .questions import AgentQuestions, Callbacks, answer_to
from .session_reader import Found, Line, SessionReader, Taken

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession

log = logging.getLogger(__name__)
D = TypeVar("D")
Json = dict[str, Any]
INTERRUPT_S = 5.0
"""Seconds for the host to end a turn. After them the program goes on without its answer."""
OPEN_AGAIN = "Open it again: host.session(resume=ID)."
_AHEAD = 1_000  # events that wait for the program; while there are more, the host is not read
_INITIALIZE: control.RequestKind[Json, Json] = control.client_kind(
    "initialize", lambda fields: fields, lambda payload: payload
)


class Prompt(Generic[D]):
    """One prompt and its turn. Iterate it once: it is sent then, and its events end with the `Answer`. To leave the
    loop early, to cancel it, and `aclose` from any task end the turn on the host."""

    def __init__(self, queue: PromptQueue, content: client.Content, schema: Schema[D]) -> None:
        self.result: Answer[D] | None = None
        """The answer, once the turn is over."""
        self.content = content
        self.schema = schema
        self.inputs: set[str] = set()
        self.live = False  # its turn runs
        self.closing = False
        self._queue = queue
        self._begun = self._has_turn = False
        self._ending: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    def __aiter__(self) -> AsyncIterator[Event]:
        if self._begun:
            raise RuntimeError("a prompt is iterated once: give the text to session.prompt again")
        self._begun = True
        return self._iterate()

    async def _iterate(self) -> AsyncGenerator[Event, None]:
        await self._queue.turn.acquire()
        self._has_turn = True
        try:
            await self._queue.begin(self)
            while not self.closing:
                while self._events:
                    event = self._events.popleft()
                    self._queue.room.set()
                    yield event
                if self._failure is not None:
                    raise self._failure
                if self._over.is_set():
                    break
                self._news.clear()
                await self._news.wait()
        finally:
            await self.aclose()

    async def interrupt(self) -> None:
        """Stop the turn; the last events and the answer follow. Raises CcbError."""
        if self.inputs and not self._over.is_set():
            await self._queue.request(control.INTERRUPT, None)

    async def steer(self, text: str) -> None:
        """Tell the agent something while it works: it gets that with its next tool results. Raises CcbError."""
        if not self.inputs or self._over.is_set() or self.closing:
            raise UsageError("the turn does not run", do="Send another prompt.")
        await self._queue.send(self, text, client.AS_PROMPT)

    async def aclose(self) -> None:
        """End the turn if it runs, and the iteration. Waits at most 5 seconds for the host."""
        self.closing = True
        self._queue.room.set()
        self._news.set()
        if self._ending is None or self._ending.done():
            self._ending = self._queue.keep(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        """Runs to its end however often the task of the program is cancelled: anyio cancels each `await`."""
        try:
            if self.inputs and not self._over.is_set():
                with suppress(TimeoutError, CcbError):
                    async with asyncio.timeout(INTERRUPT_S):
                        await self.interrupt()
                        await self._over.wait()
        finally:
            self._over.set()
            if self._has_turn:  # the iteration may stand still in the loop of the program
                self._has_turn = False
                self._queue.left(self)
                self._queue.turn.release()

    @property
    def waiting(self) -> int:
        return len(self._events)

    def add(self, event: Event) -> None:
        if not self.closing:
            self._events.append(event)
            self._news.set()

    def end(self, failure: BaseException | None = None, *, over: bool = True) -> None:
        """The turn is over, or with `failure` the iteration ends with it."""
        self._failure = self._failure or failure
        if over:
            self._over.set()
        self._news.set()


class PromptQueue:
    """Gives what `reader` finds to the prompts, and lets the callbacks of the program answer the agent. It waits for
    the program until `leaving` is set, and looks again when there may be `room`."""

    def __init__(
        self, remote: RemoteSession, reader: SessionReader, callbacks: Callbacks, leaving: asyncio.Event
    ) -> None:
        self.turn = asyncio.Lock()
        self._remote, self._reader, self._leaving = remote, reader, leaving
        self._failure: Exception | None = None
        self._current: Prompt[Any] | None = None
        self._endings: set[asyncio.Task[None]] = set()  # of prompts
        self._asking = 0  # requests whose answers must be read, whether or not the program reads its events
        self.room = asyncio.Event()
        self._schema: Json = {}
        if callbacks.asks:
            remote.register(control.CAN_USE_TOOL)
            remote.register(ELICITATION)
        if callbacks.tools:
            remote.register(MCP_MESSAGE)
        self._questions = AgentQuestions(remote, partial(answer_to, callbacks), self._callback_failed)

    async def begin(self, prompt: Prompt[Any]) -> None:
        """Raises CcbError."""
        if prompt.closing:
            return
        if self._failure is not None:
            raise self._failure
        if prompt.schema.json != self._schema:
            await self.request(_INITIALIZE, {"jsonSchema": prompt.schema.json})
            self._schema = prompt.schema.json
            if prompt.closing:
                return
        self._current = prompt
        await self.send(prompt, prompt.content, client.PromptDelivery(waits=True))

    async def send(self, prompt: Prompt[Any], content: client.Content, how: client.PromptDelivery) -> None:
        identity = control.new_uuid()
        prompt.inputs.add(identity)
        self._reader.pending.sent(identity)
        await self._remote.prompt(content, uuid=identity, how=how)

    async def request(self, kind: control.RequestKind[control.P, control.A], payload: control.P) -> control.A:
        """Raises CcbError."""
        self._asking += 1
        self.room.set()
        try:
            return await self._remote.request(control.Request(kind, payload))
        except control.RequestFailed as failed:
            raise UsageError(f"the session refuses that: {HostText(str(failed))}") from None
        finally:
            self._asking -= 1

    def keep(self, ending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the end of a prompt, until the session ends."""
        task = asyncio.create_task(ending, name="end of a prompt")
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return task

    def left(self, prompt: Prompt[Any]) -> None:
        for each in prompt.inputs:
            self._reader.pending.taken_back(each)
        if self._current is prompt:
            self._current = None

    async def follow(self, session: AsyncIterator[Found]) -> None:
        """Give what happens to the prompt whose turn runs, until the session ends or is lost."""
        try:
            async for found in session:
                await self._take(found)
            error: Exception = ConnectionLost("the session has ended on the host", do=OPEN_AGAIN)
        except Exception as lost:
            log.info("the session cannot be read any more", exc_info=lost)
            error = lost
        self.end(error)

    def end(self, error: Exception) -> None:
        """No prompt gets anything from now on."""
        self._failure = self._failure or error
        if self._current is not None:
            self._current.end(self._failure)

    async def close(self) -> None:
        self.end(UsageError("the session was closed", do=OPEN_AGAIN))
        await self._questions.close()
        await cancelled(*self._endings)

    async def _take(self, found: Found) -> None:
        prompt = self._current
        match found:
            case Line(public=messages.ControlRequest() as asked):
                self._questions.heard(asked)
            case Line(public=messages.ControlCancel(request_id=number)):
                self._questions.closed(number)
            case Line(public=messages.ResultMessage() as result, ours=True) if prompt is not None:
                await self._answered(prompt, result)
            case Line(public=messages.ResultMessage() | messages.ControlResponse()):
                pass
            case Line(public=public) if prompt is not None and prompt.live:
                for event in events_of(public):
                    await self._emit(event)
            case Taken(inputs=inputs) if prompt is not None:
                prompt.live = prompt.live or not prompt.inputs.isdisjoint(inputs)
            case client.LinkChange(state=state, reason=reason, attempt=attempt):
                if state is client.LinkState.CONNECTED or (state is client.LinkState.RECONNECTING and attempt == 1):
                    await self._emit(Connection(state.value, reason))
            case client.LaptopNotice(text=text):
                await self._emit(Notice(text))
            case DamagedRecord(what=what) if what:
                await self._emit(Notice(f"the session's journal is damaged: {what}"))

    async def _answered(self, prompt: Prompt[Any], result: messages.ResultMessage) -> None:
        answer = answer_of(result, self._reader.turn_cost, denied_unasked=self._reader.denied_unasked)
        failure: TurnFailed | None = None
        if answer.ok:
            try:
                answer = replace(answer, data=prompt.schema.read(answer.data))
            except ValueError as error:
                failure = TurnFailed(f"the answer does not fit the schema: {error}", answer)
        prompt.result = answer
        await self._emit(answer)
        if not self._reader.pending or failure is not None:
            prompt.end(failure)

    async def _emit(self, event: Event) -> None:
        while (prompt := self._current) is not None and prompt.waiting >= _AHEAD:
            if self._asking or prompt.closing or self._leaving.is_set():
                break
            self.room.clear()
            await self.room.wait()
        if prompt is not None:
            prompt.add(event)

    def _callback_failed(self, error: BaseException) -> bool:
        """What a callback raises is raised to who reads the prompt. Return whether somebody does."""
        if self._current is not None:
            self._current.end(error, over=False)
        return self._current is not None
