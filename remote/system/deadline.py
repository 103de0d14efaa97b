"""Waits that lose no cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of `work`, or cancel it. (`asyncio.wait_for` before Python 3.12 can lose a cancellation.)"""
    return await within_while(seconds, lambda: True, work, every=seconds)


async def within_while(seconds: float, counts: Callable[[], bool], work: Awaitable[T], *, every: float = 1.0) -> T:
    """As `within`, but let the time run only while `counts` returns True. It is asked `every` second."""
    task = asyncio.ensure_future(work)
    try:
        while seconds > 0:
            step = min(seconds, every)
            done, _ = await asyncio.wait({task}, timeout=step)
            if done:
                return task.result()
            if counts():
                seconds -= step
        raise asyncio.TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # taken, so that nobody reports it as lost


async def to_its_end(work: asyncio.Future[T]) -> T:
    """Return the result of `work`. A cancellation goes on only when it is done, so that it can still be taken."""
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        work.exception()  # taken, so that nobody reports it as lost
        raise asyncio.CancelledError
    return work.result()


async def first_of(*waits: Coroutine[object, object, object]) -> list[Exception]:
    """Return when the first of several coroutines is done, and cancel the others. Return what they raised."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in ended if isinstance(each, Exception)]


_STACK = 4 * 1024 * 1024  # musl gives 128 KiB: Python overflows it within its own recursion limit, and crashes


class Threads(ThreadPoolExecutor):
    """A thread pool in which work waits if the host allows no more threads, but for the first (RuntimeError)."""

    def __init__(self) -> None:
        super().__init__()
        threading.stack_size(_STACK)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of work that would stop the loop. It must end by itself: a thread cannot be killed."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


async def in_stoppable_thread(
    seconds: float, stop: Callable[[], None], function: Callable[..., T], *arguments: object
) -> T:
    """Return the result of work in a thread. Call `stop` after `seconds` (asyncio.TimeoutError), or when cancelled."""
    work = asyncio.ensure_future(in_thread(function, *arguments))
    try:
        if not (await asyncio.wait({work}, timeout=seconds))[0]:
            raise asyncio.TimeoutError
        return work.result()
    finally:
        if not work.done():
            stop()
            work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
