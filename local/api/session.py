"""A session of the API, and its prompts.

A task of its own enters and leaves the connection of a session, and reads it. So any task may leave, close and cancel
prompts and sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from ccb.tunnel.errors import CcbError, ConnectionLost, UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import control_protocol as control
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.mcp_messages import ELICITATION, MCP_MESSAGE

from ..command_line.arguments import Arguments
from ..session import session_client as client
from .events import Answer, Connection, Event, Notice, Schema, TurnFailed
from .questions import AgentQuestions, Callbacks
from .session_reader import Found, SessionReader, Taken

if TYPE_CHECKING:
    from ..connect.connect_session import OpenSession
    from ..connect.host_connection import HostConnection
    from ..ports.port_forwards import Forward
    from ..session.remote_session import RemoteSession

log = logging.getLogger(__name__)
D = TypeVar("D")
Json = dict[str, Any]
CLOSE_S = 5.0
"""Seconds for the host to end what is left: a turn, a session. After them the program goes on without its word."""
_AHEAD = 1_000  # events that wait for the program; while there are more, the host is not read
_INITIALIZE: control.RequestKind[Json, Json] = control.client_kind(
    "initialize", lambda fields: fields, lambda payload: payload
)


class Prompt(Generic[D]):
    """One prompt and its turn. Iterate it once: it is sent then, and its events end with the `Answer`. To leave the
    loop early, to cancel it, and `aclose` from any task end the turn on the host."""

    def __init__(self, session: Session, content: client.Content, schema: Schema[D]) -> None:
        self.result: Answer[D] | None = None
        """The answer, once the turn is over."""
        self.content = content
        self.schema = schema
        self.inputs: set[str] = set()
        self.live = False  # its turn runs
        self.closing = False
        self._session = session
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
        await self._session.turn.acquire()
        self._has_turn = True
        try:
            await self._session.begin(self)
            while not self.closing:
                while self._events:
                    event = self._events.popleft()
                    self._session.has_room()
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
            await self._session.request(control.INTERRUPT, None)

    async def steer(self, text: str) -> None:
        """Tell the agent something while it works: it gets that with its next tool results. Raises CcbError."""
        if not self.inputs or self._over.is_set() or self.closing:
            raise UsageError("the turn does not run", do="Send another prompt.")
        await self._session.send(self, text, client.AS_PROMPT)

    async def aclose(self) -> None:
        """End the turn if it runs, and the iteration. Waits at most 5 seconds for the host."""
        self.closing = True
        self._session.has_room()
        self._news.set()
        if self._ending is None or self._ending.done():
            self._ending = self._session.keep(self._end())
        await asyncio.wait({self._ending})

    async def _end(self) -> None:
        """Runs to its end however often the task of the program is cancelled: anyio cancels each `await`."""
        try:
            if self.inputs and not self._over.is_set():
                with suppress(TimeoutError, CcbError):
                    async with asyncio.timeout(CLOSE_S):
                        await self.interrupt()
                        await self._over.wait()
        finally:
            self._over.set()
            if self._has_turn:  # the iteration may stand still in the loop of the program
                self._has_turn = False
                self._session.left(self)
                self._session.turn.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

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


class Session:
    """One conversation on the host. `Host.session` opens it. One prompt at a time runs; the next one waits for it."""

    def __init__(self, host: HostConnection, arguments: Arguments, callbacks: Callbacks) -> None:
        self.turn = asyncio.Lock()
        self._host, self._arguments, self._callbacks = host, arguments, callbacks
        self._ready: asyncio.Future[OpenSession] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._stays = False
        self._owner: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._current: Prompt[Any] | None = None
        self._endings: set[asyncio.Task[None]] = set()  # of prompts
        self._reader = SessionReader()
        self._questions: AgentQuestions | None = None
        self._asking = 0  # requests whose answers must be read, whether or not the program reads its events
        self._room = asyncio.Event()
        self._schema: Json = {}

    # For the program.

    @property
    def id(self) -> str:
        """What `Host.session(resume=…)` and `ccb --resume` take."""
        return self.opened.session.hello.session

    @property
    def directory(self) -> str:
        return self.opened.session.hello.cwd.raw

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the command line prints when the session begins."""
        return self.opened.warnings

    @property
    def cost(self) -> float:
        """Dollars that the session has cost up to its last answer."""
        return self._reader.cost

    @overload
    def prompt(self, content: client.Content) -> Prompt[None]: ...
    @overload
    def prompt(self, content: client.Content, *, schema: type[D]) -> Prompt[D]: ...
    @overload
    def prompt(self, content: client.Content, *, schema: Mapping[str, Any]) -> Prompt[Json]: ...
    def prompt(self, content: client.Content, *, schema: Any = None) -> Prompt[Any]:
        """Return a prompt, which is sent when it is iterated. `content` is text or a list of content blocks; `schema` a
        pydantic model, another type that pydantic knows, or a JSON schema: `Answer.data` is of it."""
        return Prompt(self, content, Schema(schema))

    @overload
    async def run(self, content: client.Content) -> Answer[None]: ...
    @overload
    async def run(self, content: client.Content, *, schema: type[D]) -> Answer[D]: ...
    @overload
    async def run(self, content: client.Content, *, schema: Mapping[str, Any]) -> Answer[Json]: ...
    async def run(self, content: client.Content, *, schema: Any = None) -> Answer[Any]:
        """Send a prompt and return its answer. Raises CcbError: TurnFailed if the exit code of the answer is not 0."""
        prompt = Prompt[Any](self, content, Schema(schema))
        async for _ in prompt:
            pass
        assert prompt.result is not None, "nobody else can close this prompt"
        if not prompt.result.ok:
            raise TurnFailed(prompt.result.text or "the turn failed", prompt.result)
        return prompt.result

    async def set_model(self, model: str) -> None:
        """Let another model answer from the next prompt on. Raises CcbError."""
        await self.request(control.SET_MODEL, model)

    async def set_permission_mode(self, mode: str) -> None:
        """Raises CcbError."""
        await self.request(control.SET_PERMISSION_MODE, mode)

    async def forward(self, port: int, local: int = 0) -> Forward:
        """Let a port of this machine (`.local`, `.url`) lead to one of the host, until the session is closed. Raises
        CcbError."""
        assert self.opened.ports is not None
        return await self.opened.ports.forward(port, local)

    async def close(self, *, stay: bool = False) -> None:
        """End the session: its worker stops, its conversation stays and can be resumed. With `stay` the worker goes on
        with its turn. Takes at most 15 seconds, whatever the host does."""
        self._stays = stay
        self._leave.set()
        self._room.set()
        if self._owner is None or self._owner.done() or self._owner is asyncio.current_task():
            return
        if self._ready.done():
            await asyncio.wait({self._owner}, timeout=2 * CLOSE_S)
        self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=CLOSE_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # For its prompts and its host.

    @property
    def closed(self) -> bool:
        return self._owner is not None and self._owner.done()

    @property
    def opened(self) -> OpenSession:
        return self._ready.result()

    async def open(self) -> Self:
        """Raises CcbError."""
        self._owner = asyncio.create_task(self._own(), name="ccb session")
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self._ready.cancel()
            await cancelled(self._owner)
            raise
        return self

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
        await self.opened.session.prompt(content, uuid=identity, how=how)

    async def request(self, kind: control.RequestKind[control.P, control.A], payload: control.P) -> control.A:
        self._asking += 1
        self._room.set()
        try:
            return await self.opened.session.request(control.Request(kind, payload))
        except control.RequestFailed as failed:
            raise UsageError(f"the session refuses that: {HostText(str(failed))}") from None
        finally:
            self._asking -= 1

    def has_room(self) -> None:
        self._room.set()

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

    # The connection.

    async def _own(self) -> None:
        from ..connect.connect_session import connect_session

        identity = self._arguments.session.session_id or control.new_uuid()
        try:
            async with connect_session(self._host, self._arguments, session_id=identity) as opened:
                remote = opened.session
                if self._callbacks.asks:
                    remote.register(control.CAN_USE_TOOL)
                    remote.register(ELICITATION)
                if self._callbacks.tools is not None:
                    remote.register(MCP_MESSAGE)
                self._reader.pending.foreign_turn = remote.hello.state != "idle"
                self._ready.set_result(opened)
                self._questions = AgentQuestions(remote, self._callbacks, self._callback_failed)
                reading = asyncio.create_task(self._read(remote), name="events of a session")
                leaving = asyncio.create_task(self._leave.wait(), name="end of a session")
                try:
                    await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if not reading.done() and (self._stays or not remote.driving):
                        await remote.close()
                    elif not reading.done():
                        await remote.stopped(CLOSE_S)
                finally:
                    await cancelled(reading, leaving)
                    await self._questions.close()
        except Exception as error:
            if self._ready.done():
                log.exception("leaving a session failed")
            else:
                self._ready.set_exception(error)
        finally:
            closed = UsageError("the session was closed", do="Open it again: host.session(resume=ID).")
            if not self._ready.done():
                self._ready.set_exception(closed)
            self._ended(closed)
            await cancelled(*self._endings)

    def _ended(self, error: Exception) -> None:
        self._failure = self._failure or error
        if self._current is not None:
            self._current.end(self._failure)

    async def _read(self, remote: RemoteSession) -> None:
        again = f"Open it again: host.session(resume={self.id!r})."
        try:
            async for item in remote.events():
                if isinstance(item, client.LinkChange) and item.state is client.LinkState.FENCED:
                    raise ConnectionLost(item.reason, do=again)
                for found in self._reader.read(item):
                    await self._take(found)
            error: Exception = ConnectionLost("the session has ended on the host", do=again)
        except Exception as lost:
            log.info("the session cannot be read any more", exc_info=lost)
            error = lost
        self._ended(error)

    async def _take(self, found: Found) -> None:
        prompt = self._current
        match found:
            case messages.ControlRequest() | messages.ControlCancel():
                assert self._questions is not None
                self._questions.heard(found)
            case Taken(inputs=inputs):
                if prompt is not None:
                    prompt.live = prompt.live or not prompt.inputs.isdisjoint(inputs)
            case Answer():
                if prompt is not None:
                    await self._answered(prompt, found)
            case Notice() | Connection():
                await self._emit(found)
            case _:
                if prompt is not None and prompt.live:
                    await self._emit(found)

    async def _answered(self, prompt: Prompt[Any], answer: Answer[Any]) -> None:
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
            if self._asking or prompt.closing or self._leave.is_set():
                break
            self._room.clear()
            await self._room.wait()
        if prompt is not None:
            prompt.add(event)

    def _callback_failed(self, error: BaseException) -> bool:
        """What a callback raises is raised to who reads the prompt. Return whether somebody does."""
        if self._current is not None:
            self._current.end(error, over=False)
        return self._current is not None
