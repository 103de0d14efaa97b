"""`ccb.sync`: the API for programs without asyncio. A thread with a loop does the work; every call waits for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from ..session.session_client import Content
from . import host as asynchronous
from .events import Answer, Event
from .host import Completed, SessionInfo
from .options import HostOptions, SessionOptions
from .questions import Permissions, Questions
from .session import Prompt as AsyncPrompt
from .session import Session as AsyncSession

if TYPE_CHECKING:
    from ..files.both_ends.copy_channel import CopyProgress
    from ..ports.port_forwards import Forward
    from .tools import Tool

D = TypeVar("D")
T = TypeVar("T")
Json = dict[str, Any]


class _Loop:
    """One background loop in a daemon thread, until `close`. A fork of the process has none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ccb", daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self.runs or threading.current_thread() is self._thread:
            work.close()
            if self.runs:
                raise RuntimeError("ccb.sync is called from its own loop: a callback there is a plain function")
            raise RuntimeError("the host was closed, or another process has opened it: open it again, here")

        async def outcome() -> T | SystemExit:
            try:
                return await work
            except SystemExit as left:  # of a callback; a task that raises it ends the loop
                return left

        future = asyncio.run_coroutine_threadsafe(outcome(), self._loop)
        try:
            found = future.result()
        except BaseException:  # also Ctrl+C, while the work goes on
            future.cancel()
            raise
        if isinstance(found, SystemExit):
            raise found
        return found

    def close(self) -> None:
        if self.runs:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # which ends the tasks and the threads
            runner.get_loop().run_forever()


class Prompt(Generic[D]):
    """See `ccb.Prompt`. To leave the loop early ends the turn."""

    def __init__(self, loop: _Loop, prompt: AsyncPrompt[D]) -> None:
        self._loop = loop
        self._prompt = prompt

    @property
    def result(self) -> Answer[D] | None:
        return self._prompt.result

    def __iter__(self) -> Iterator[Event]:
        events = aiter(self._prompt)

        async def following() -> Event | None:
            return await anext(events, None)

        try:
            while (event := self._loop.call(following())) is not None:
                yield event
        finally:
            self.close()

    def interrupt(self) -> None:
        self._loop.call(self._prompt.interrupt())

    def steer(self, text: str) -> None:
        self._loop.call(self._prompt.steer(text))

    def close(self) -> None:
        if self._loop.runs:
            self._loop.call(self._prompt.aclose())


class Session:
    """See `ccb.Session`."""

    def __init__(self, loop: _Loop, session: AsyncSession) -> None:
        self._loop = loop
        self._session = session

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def directory(self) -> str:
        return self._session.directory

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._session.warnings

    @property
    def cost(self) -> float:
        return self._session.cost

    @overload
    def prompt(self, content: Content) -> Prompt[None]: ...
    @overload
    def prompt(self, content: Content, *, schema: type[D]) -> Prompt[D]: ...
    @overload
    def prompt(self, content: Content, *, schema: Mapping[str, Any]) -> Prompt[Json]: ...
    def prompt(self, content: Content, *, schema: Any = None) -> Prompt[Any]:
        async def made() -> AsyncPrompt[Any]:
            return self._session.prompt(content, schema=schema)

        return Prompt(self._loop, self._loop.call(made()))

    @overload
    def run(self, content: Content) -> Answer[None]: ...
    @overload
    def run(self, content: Content, *, schema: type[D]) -> Answer[D]: ...
    @overload
    def run(self, content: Content, *, schema: Mapping[str, Any]) -> Answer[Json]: ...
    def run(self, content: Content, *, schema: Any = None) -> Answer[Any]:
        return self._loop.call(self._session.run(content, schema=schema))

    def set_model(self, model: str) -> None:
        self._loop.call(self._session.set_model(model))

    def set_permission_mode(self, mode: str) -> None:
        self._loop.call(self._session.set_permission_mode(mode))

    def forward(self, port: int, local: int = 0) -> Forward:
        return self._loop.call(self._session.forward(port, local))

    def close(self, *, stay: bool = False) -> None:
        if self._loop.runs:
            self._loop.call(self._session.close(stay=stay))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    target: str | os.PathLike[str] = ".",
    *,
    permissions: Permissions | None = None,
    questions: Questions | None = None,
    own_tools: Sequence[Tool] = (),
    **options: Unpack[HostOptions],
) -> Host:
    """See `ccb.connect`. The host is entered with `with`. Callbacks and tools may be plain functions."""
    made = asynchronous.connect(target, permissions=permissions, questions=questions, own_tools=own_tools, **options)
    return Host(made)


class Host:
    """See `ccb.Host`."""

    def __init__(self, host: asynchronous.Host) -> None:
        self._host = host
        self._background: _Loop | None = None

    @property
    def _loop(self) -> _Loop:
        if self._background is None:
            raise RuntimeError("enter the host first: with ccb.sync.connect(…) as host")
        return self._background

    def __enter__(self) -> Self:
        self._background = _Loop()
        try:
            self._loop.call(self._host.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._background is not None:
            try:
                if self._loop.runs:
                    self._loop.call(self._host.close())
            finally:
                self._loop.close()
                self._background = None

    def session(
        self,
        *,
        resume: str | None = None,
        continue_latest: bool = False,
        fork_session: bool = False,
        session_id: str | None = None,
        worktree: str | bool = False,
        **options: Unpack[SessionOptions],
    ) -> Session:
        opening = self._host.session(
            resume=resume,
            continue_latest=continue_latest,
            fork_session=fork_session,
            session_id=session_id,
            worktree=worktree,
            **options,
        )
        return Session(self._loop, self._loop.call(opening))

    def sessions(self) -> list[SessionInfo]:
        return self._loop.call(self._host.sessions())

    def run(
        self, command: str, *, directory: str = "", input: bytes | str = b"", timeout: float | None = None
    ) -> Completed:
        return self._loop.call(self._host.run(command, directory=directory, input=input, timeout=timeout))

    def read(self, path: str, *, most: int = asynchronous.MAX_BYTES) -> bytes:
        return self._loop.call(self._host.read(path, most=most))

    def write(self, path: str, data: bytes | str) -> None:
        self._loop.call(self._host.write(path, data))

    def copy(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> CopyProgress:
        return self._loop.call(self._host.copy(source, target))

    def forward(self, port: int, local: int = 0) -> Forward:
        return self._loop.call(self._host.forward(port, local))
