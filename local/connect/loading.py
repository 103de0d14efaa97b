"""What is loaded while a connection is made. Imports and the first steps to a host compete for one interpreter: those steps go
first, since a network has its round trips to fill."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .basics import Basics

T = TypeVar("T", bound="Basics", covariant=True)


class Loading(Generic[T]):
    """The run of `work` from `begin` on; left before its end it is cancelled."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._begun = asyncio.Event()
        self._task = asyncio.create_task(self._run(work), name="load")

    async def __aenter__(self) -> Loading[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        await self._begun.wait()
        return await work()

    def begin(self) -> None:
        """The network is busy, or there is none. It may be said again."""
        self._begun.set()

    async def loaded(self) -> T:
        """What was loaded, once it was begun. Raises what the work raises."""
        await asyncio.wait((self._task,))
        return self._task.result()
