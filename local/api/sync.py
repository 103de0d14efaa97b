"""`ccb.sync`: the API for programs without asyncio. A thread with a loop does the work; every call waits for it."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from . import host as asynchronous
from .events import Answer, Event
from .options import HostOptions, OpeningOptions
from .prompts import Prompt as AsyncPrompt
from .questions import Permissions, Questions
from .session import Session as AsyncSession

if TYPE_CHECKING:
    from .tools import Tool

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")


class _Loop:
    """A background loop in a daemon thread, from `start` to `close`. A fork of the process has none."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ccb", daemon=True)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self.runs or threading.current_thread() is self._thread:
            work.close()
            if self.runs:
                raise RuntimeError("ccb.sync is called from its own loop: a callback there is a plain function")
            raise RuntimeError("enter the host first, once and in this process: with ccb.sync.connect(…) as host")

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


def _waiting(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the method that waits for this one of the asynchronous object."""

    @functools.wraps(method)
    def waits(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._loop.call(method(self._own, *args, **kwargs))
        return found

    return waits


class Prompt(Generic[D]):
    """See `ccb.Prompt`. To leave the loop early ends the turn."""

    def __init__(self, loop: _Loop, prompt: AsyncPrompt[D]) -> None:
        self._loop = loop
        self._own = prompt

    @property
    def result(self) -> Answer[D] | None:
        return self._own.result

    def __iter__(self) -> Iterator[Event]:
        events = aiter(self._own)

        async def following() -> Event | None:
            return await anext(events, None)

        try:
            while (event := self._loop.call(following())) is not None:
                yield event
        finally:
            self.close()

    interrupt = _waiting(AsyncPrompt.interrupt)
    steer = _waiting(AsyncPrompt.steer)

    def close(self) -> None:
        if self._loop.runs:
            self._loop.call(self._own.aclose())


def _prompting(method: Callable[Concatenate[Any, P], AsyncPrompt[D]]) -> Callable[Concatenate[Any, P], Prompt[D]]:
    @functools.wraps(method)
    def makes(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Prompt[D]:
        return Prompt(self._loop, method(self._own, *args, **kwargs))

    return makes


class Session:
    """See `ccb.Session`."""

    def __init__(self, loop: _Loop, session: AsyncSession) -> None:
        self._loop = loop
        self._own = session

    @property
    def id(self) -> str:
        return self._own.id

    @property
    def directory(self) -> str:
        return self._own.directory

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._own.warnings

    @property
    def cost(self) -> float:
        return self._own.cost

    prompt = _prompting(AsyncSession.prompt)
    run = _waiting(AsyncSession.run)
    set_model = _waiting(AsyncSession.set_model)
    set_permission_mode = _waiting(AsyncSession.set_permission_mode)
    forward = _waiting(AsyncSession.forward)

    def close(self, *, stay: bool = False) -> None:
        if self._loop.runs:
            self._loop.call(self._own.close(stay=stay))

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
        self._own = host
        self._loop = _Loop()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.call(self._own.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            if self._loop.runs:
                self._loop.call(self._own.close())
        finally:
            self._loop.close()

    def session(self, **options: Unpack[OpeningOptions]) -> Session:
        return Session(self._loop, self._loop.call(self._own.session(**options)))

    sessions = _waiting(asynchronous.Host.sessions)
    run = _waiting(asynchronous.Host.run)
    read = _waiting(asynchronous.Host.read)
    write = _waiting(asynchronous.Host.write)
    copy = _waiting(asynchronous.Host.copy)
    forward = _waiting(asynchronous.Host.forward)
