"""Threads on hosts that limit them (TasksMax, ulimit -u) or give them little stack (musl, ulimit -s)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

_STACK = 4 * 1024 * 1024  # musl gives 128 KiB, in which Python dies of a recursion that it allows


class Threads(ThreadPoolExecutor):
    """The thread pool of an event loop. Once its first thread runs, work waits for a free thread when the host allows
    no further one."""

    def __init__(self) -> None:
        super().__init__()
        threading.stack_size(_STACK)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
