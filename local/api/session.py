"""A session of the API, over which headless runs go, too.

A task of its own enters and leaves the connection of a session. So any task may leave, close and cancel sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from ccb.tunnel.errors import ConnectionLost, UsageError
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import control_protocol as control

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_command
from ..session.turn_outcomes import PendingPrompts

if TYPE_CHECKING:
    from ..connect.connect_session import OpenSession
    from ..connect.host_connection import HostConnection
    from ..ports.port_forwards import Forward
    from ..session.remote_session import RemoteSession
    from ..session.session_client import Content
    from .events import Answer
    from .prompts import Prompt, PromptQueue
    from .questions import Callbacks
    from .session_reader import Found, SessionReader

log = logging.getLogger(__name__)
D = TypeVar("D")
Json = dict[str, Any]
CLOSE_S = 5.0
"""Seconds for the host to end a session. After them the program goes on without its word."""


class Session:
    """One conversation on the host. `Host.session` opens it. One prompt at a time runs; the next one waits for it."""

    opened: OpenSession
    reader: SessionReader

    def __init__(
        self,
        host: HostConnection,
        arguments: Arguments,
        callbacks: Callbacks | None = None,
        pending: PendingPrompts | None = None,
        tail: int | None = None,
    ) -> None:
        """`pending` are the prompts that wait, `tail` is that of `connect_session`. With `callbacks`
        None, who opens it follows `found`, and sends prompts and answers to `remote`."""
        self.pending = PendingPrompts() if pending is None else pending
        self._host, self._arguments, self._callbacks = host, arguments, callbacks
        self._tail = tail
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._prompts: PromptQueue | None = None
        self._leave = asyncio.Event()
        self._stays = False
        self._owner: asyncio.Task[None] | None = None

    # For the program.

    @property
    def id(self) -> str:
        """What `Host.session(resume=…)` and `ccb --resume` take."""
        return self.remote.hello.session

    @property
    def directory(self) -> str:
        return self.remote.hello.cwd.raw

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the command line prints when the session begins."""
        return self.opened.warnings

    @property
    def cost(self) -> float:
        """Dollars that the session has cost up to its last answer."""
        return self.reader.cost

    @overload
    def prompt(self, content: Content) -> Prompt[None]: ...
    @overload
    def prompt(self, content: Content, *, schema: type[D]) -> Prompt[D]: ...
    @overload
    def prompt(self, content: Content, *, schema: Mapping[str, Any]) -> Prompt[Json]: ...
    def prompt(self, content: Content, *, schema: Any = None) -> Prompt[Any]:
        """Return a prompt, which is sent when it is iterated. `content` is text or a list of content blocks; `schema` a
        pydantic model, another type that pydantic knows, or a JSON schema: `Answer.data` is of it."""
        from .events import Schema
        from .prompts import Prompt

        return Prompt(self._queue, content, Schema(schema))

    @overload
    async def run(self, content: Content) -> Answer[None]: ...
    @overload
    async def run(self, content: Content, *, schema: type[D]) -> Answer[D]: ...
    @overload
    async def run(self, content: Content, *, schema: Mapping[str, Any]) -> Answer[Json]: ...
    async def run(self, content: Content, *, schema: Any = None) -> Answer[Any]:
        """Send a prompt and return its answer. Raises CcbError: TurnFailed if the exit code of the answer is not 0."""
        from .events import TurnFailed

        prompt: Prompt[Any] = self.prompt(content, schema=schema)
        async for _ in prompt:
            pass
        assert prompt.result is not None, "nobody else can close this prompt"
        if not prompt.result.ok:
            raise TurnFailed(prompt.result.text or "the turn failed", prompt.result)
        return prompt.result

    async def set_model(self, model: str) -> None:
        """Let another model answer from the next prompt on. Raises CcbError."""
        await self._queue.request(control.SET_MODEL, model)

    async def set_permission_mode(self, mode: str) -> None:
        """Raises CcbError."""
        await self._queue.request(control.SET_PERMISSION_MODE, mode)

    async def forward(self, port: int, local: int = 0) -> Forward:
        """Let a port of this machine (`.local`, `.url`) lead to one of the host, until the session is closed. Raises
        CcbError."""
        assert self.opened.ports is not None
        return await self.opened.ports.forward(port, local)

    async def close(self, *, stay: bool = False) -> None:
        """End the session: its worker stops, its conversation stays and can be resumed. With `stay` the worker goes on
        with its turn. Takes at most 15 seconds, whatever the host does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * CLOSE_S if self._ready.done() else 0):
                await self.leave(stay=stay)
        if self._owner is not asyncio.current_task():
            await self.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _queue(self) -> PromptQueue:
        assert self._prompts is not None, "who opens it with callbacks gives it prompts"
        return self._prompts

    # For its host and for headless runs.

    @property
    def closed(self) -> bool:
        return self._owner is not None and self._owner.done()

    @property
    def remote(self) -> RemoteSession:
        return self.opened.session

    @property
    def come_back(self) -> str:
        return f"The session goes on. Come back with: {self.opened.resume}" if self.opened.resume else "Attach again."

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

    async def found(self) -> AsyncIterator[Found]:
        """Yield what happens in the session until the host ends it. One reader at a time. Raises CcbError if it is
        lost, if another client drives it, and if it has ended before a prompt got its answer."""
        from ..session.session_client import LinkChange, LinkState

        reader = self.reader
        async for item in self.remote.events():
            if isinstance(item, LinkChange) and item.state is LinkState.FENCED:
                raise ConnectionLost(item.reason, do=self.come_back)
            for found in reader.read(item):
                yield found
        if self.pending:
            logs = host_command(self.opened.arguments, "logs", self.id)
            in_memory = self.remote.hello.storage == "memory"
            raise ConnectionLost(
                "the host ended the session before the answer was complete",
                evidence=reader.goodbye,
                do="Start a new one: it was in memory only."
                if in_memory
                else f"`{logs}` says more. Go on with: {self.opened.resume}",
            )

    async def leave(self, *, stay: bool) -> None:
        """Do what `close` does, and wait for what is written at the end, however long that takes."""
        self._stays = stay
        self._leave.set()
        if self._prompts is not None:
            self._prompts.room.set()
        if self._owner is not None and self._owner is not asyncio.current_task():
            await asyncio.wait({self._owner})

    async def abandon(self) -> None:
        """Leave at once, without a word to the host."""
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=CLOSE_S)

    # The connection.

    async def _own(self) -> None:
        from ..connect.connect_session import connect_session

        try:
            async with connect_session(self._host, self._arguments, tail=self._tail) as opened:
                from .session_reader import SessionReader  # the worker is still being loaded

                self.opened, self.reader = opened, SessionReader(self.pending)
                self.pending.foreign_turn = opened.session.hello.state != "idle"
                if self._callbacks is not None:
                    from .prompts import PromptQueue

                    self._prompts = PromptQueue(opened.session, self.reader, self._callbacks, self._leave)
                self._ready.set_result(None)
                await self._driven(opened.session)
        except Exception as error:
            if self._ready.done():
                log.exception("leaving a session failed")
            else:
                self._ready.set_exception(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(UsageError("the session was closed", do="Open it again."))

    async def _driven(self, remote: RemoteSession) -> None:
        """Stay in the session until it has ended or is left."""
        from ..session.session_client import LinkState

        waiting: list[asyncio.Task[Any]] = [asyncio.create_task(self._leave.wait(), name="end of a session")]
        if self._prompts is not None:
            waiting.append(asyncio.create_task(self._prompts.follow(self.found()), name="events of a session"))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if remote.state not in (LinkState.CLOSED, LinkState.LOST):
                if self._stays or not remote.driving:
                    await remote.close()
                else:
                    await remote.stopped(CLOSE_S)
        finally:
            await cancelled(*waiting)
            if self._prompts is not None:
                await self._prompts.close()
