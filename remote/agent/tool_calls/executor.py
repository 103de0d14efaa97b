"""Schedules the tool calls of a turn: reads run in parallel, everything else alone and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import field
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass

from ...tools.contract import Tool

Json = dict[str, Any]

_log = logging.getLogger(__name__)

MAX_AT_ONCE = 10
"""Read-only calls that may run at the same time."""

_CANCEL_GRACE = 5.0  # seconds a cancelled tool has to clean up before the turn goes on without it


@dataclass(frozen=True)
class ToolCall:
    """One tool_use block of the model. `tool` is None when there is no tool of that name. `broken` says why the input
    is not a JSON object, "" when it is one."""

    id: str
    name: str
    input: Json
    tool: Tool | None
    broken: str = ""


@dataclass(eq=False)
class _Entry:
    call: ToolCall
    parallel: bool
    task: asyncio.Task[None] | None = field(default=None)


class ToolExecutor:
    """Starts tool calls in the order of the model. A call that may run in parallel starts when no earlier call that
    must run alone is left, up to MAX_AT_ONCE of them. A call that must run alone starts when every call before it is
    done, and no later one starts until it is done itself."""

    def __init__(
        self,
        run: Callable[[ToolCall], Awaitable[None]],
        may_run_in_parallel: Callable[[ToolCall], bool],
        max_at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._run = run
        self._may_run_in_parallel = may_run_in_parallel
        self._max = max_at_once
        self._entries: list[_Entry] = []  # not finished, in the order of the model
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = asyncio.Event()

    def submit(self, call: ToolCall) -> None:
        """Take a call. It starts at once, or when the calls before it allow it."""
        self._entries.append(_Entry(call, self._may_run_in_parallel(call)))
        self._pump()

    async def drain(self) -> None:
        """Return when all calls are done. Raise what a call raised: that is a fault of the worker, not of a tool."""
        while self._entries and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def halt(self) -> None:
        """Start no more calls. Running calls go on until `cancel`."""
        self._stopped = True

    async def cancel(self) -> None:
        """Cancel the running calls, and drop the waiting ones."""
        self.halt()
        tasks = {entry.task for entry in self._entries if entry.task is not None}
        self._entries = [entry for entry in self._entries if entry.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=_CANCEL_GRACE)
            if stubborn:
                _log.error("%d cancelled tool calls have not ended in %s s", len(stubborn), _CANCEL_GRACE)

    def _pump(self) -> None:
        if self._stopped or self._error is not None:
            return
        running = sum(1 for entry in self._entries if entry.task is not None)
        for position, entry in enumerate(self._entries):
            if entry.task is None:
                if running >= self._max or (position and not entry.parallel):
                    return
                entry.task = asyncio.ensure_future(self._call(entry))
                running += 1
            if not entry.parallel:
                return

    async def _call(self, entry: _Entry) -> None:
        try:
            await self._run(entry.call)
        except Exception as error:  # noqa: BLE001 - top of the task: the turn gets it from drain()
            self._error = error
        finally:
            if entry in self._entries:
                self._entries.remove(entry)
            self._changed.set()
            self._pump()
