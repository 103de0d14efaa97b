"""Threads on hosts that limit them (TasksMax, ulimit -u) or give them little stack (musl, ulimit -s)."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, TypeVar

T = TypeVar("T")

_STACK = 4 * 1024 * 1024  # musl gives 128 KiB: Python overflows it within its own recursion limit, and crashes


class Threads(ThreadPoolExecutor):
    """The thread pool of an event loop. When the host allows no more threads, work waits for one of those that run;
    only the first thread is required (RuntimeError)."""

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
    """Return the result of work that would stop the event loop. It must end soon by itself: a thread cannot be
    killed."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
