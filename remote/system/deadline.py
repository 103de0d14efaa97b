"""Waits for several things, or for so long, that never lose a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Callable, TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`. Cancel it and raise asyncio.TimeoutError after `seconds`.

    `asyncio.wait_for` of Python 3.11 and older returns the result instead of being cancelled if both happen at once. A
    task that loops would then go on for ever.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def within_while(seconds: float, counts: Callable[[], bool], work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work` like `within`, but let the time run only while `counts` returns True. It is asked
    once a second."""
    task = asyncio.ensure_future(work)
    try:
        while seconds > 0:
            step = min(seconds, 1.0)
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


async def to_its_end(work: asyncio.Future[T]) -> T:
    """Return the result of `work`, which cannot be cancelled. However often this is cancelled meanwhile, wait until the
    work is done before the cancellation goes on, so that its result can still be taken from `work`."""
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


async def first_of(*waits: Coroutine[object, object, object]) -> None:
    """Return when the first of several coroutines is done, and cancel the others."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
