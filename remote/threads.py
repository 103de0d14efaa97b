"""Threads on hosts that limit them (TasksMax, ulimit -u)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """The threads of an event loop. From the first one on that could be started, work that would like another and gets none waits
    for those that are there."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
