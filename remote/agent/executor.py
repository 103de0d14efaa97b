"""Runs the tool calls of one model message: reads together, everything else alone and in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Callable

from ..tools.contract import Tool

Json = dict[str, Any]

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 10
_CANCEL_GRACE = 5.0  # seconds a cancelled tool has to clean up before the turn goes on without it


@dataclass(frozen=True)
class ToolCall:
    """One tool_use block. `tool` is None when no such tool is there, `broken` says why the input is unusable."""

    id: str
    name: str
    input: Json
    tool: Tool | None
    broken: str = ""


@dataclass(eq=False)
class _Entry:
    call: ToolCall
    read_only: bool
    task: asyncio.Task[None] | None = field(default=None)


class ToolExecutor:
    """Starts calls as they come. A read-only call starts when no earlier call with effects is left, up to MOST_AT_ONCE; a
    call with effects starts when nothing before it is left, and nothing starts until it is done."""

    def __init__(
        self,
        run: Callable[[ToolCall], Awaitable[None]],
        is_read_only: Callable[[ToolCall], bool],
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        self._run = run
        self._is_read_only = is_read_only
        self._most = most_at_once
        self._entries: list[_Entry] = []  # not finished, in the order of the model
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = asyncio.Event()

    @property
    def busy(self) -> bool:
        return bool(self._entries)

    def submit(self, call: ToolCall) -> None:
        """Take a call; it starts at once or when its turn comes."""
        self._entries.append(_Entry(call, self._is_read_only(call)))
        self._pump()

    async def drain(self) -> None:
        """Returns when all calls are done. Raises what a call raised: that is no tool's failure but ours."""
        while self._entries and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def halt(self) -> None:
        """Start nothing more; what runs goes on until `cancel`."""
        self._stopped = True

    async def cancel(self) -> None:
        """Cancel what runs, forget what waits."""
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
                if running >= self._most or (position and not entry.read_only):
                    return
                entry.task = asyncio.ensure_future(self._call(entry))
                running += 1
            if not entry.read_only:
                return

    async def _call(self, entry: _Entry) -> None:
        try:
            await self._run(entry.call)
        except Exception as error:  # noqa: BLE001 - top of the task: the loop's owner gets it from drain()
            self._error = error
        finally:
            if entry in self._entries:
                self._entries.remove(entry)
            self._changed.set()
            self._pump()
