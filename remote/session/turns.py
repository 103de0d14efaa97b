"""The turns of a session, one after the other: each prompt gets its turn, and each turn exactly one result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from enum import Enum
from typing import Any, Callable

from ccb.tunnel.wire.journal_records import (
    PromptRecord,
    Record,
    TakenRecord,
    TurnEndRecord,
    TurnStartRecord,
)
from ccb.tunnel.wire.messages import ResultMessage
from ccb.tunnel.wire.projection import Projection, on

from ..agent.agent import Agent
from ..agent.agent_histories import zero_usage
from ..agent.turn_state import Prompt
from ..session_store.journal import JournalError
from ..session_store.session_log import SessionLog
from ..system.deadline import within
from ..tools.tasks import TaskRegistry
from .input_queue import InputQueue
from .task_notices import TaskNotices

Json = dict[str, Any]

log = logging.getLogger(__name__)


class TurnState(Enum):
    NONE = "none"  # no turn runs
    RUNNING = "running"  # it has no result yet
    ANSWERED = "answered"  # its result is in the journal


class Turns(Projection):
    """Runs the main agent on waiting prompts and notices. Notices start no turn while `holds_notices`: a question is
    open, or nobody is there."""

    def __init__(
        self,
        session_log: SessionLog,
        inputs: InputQueue,
        agent: Agent,
        ready: Callable[[], Awaitable[None]],
        tasks: TaskRegistry,
        notices: TaskNotices,
        holds_notices: Callable[[], bool],
    ) -> None:
        self.state = TurnState.NONE
        self._log = session_log
        self._inputs = inputs
        self._agent = agent
        self._ready = ready
        self._alone = asyncio.Lock()  # held by a turn, and by what must not run beside one
        self._tasks = tasks
        self._notices = notices
        self._holds_notices = holds_notices
        self._finish_by: float | None = None  # end when idle; wait for tasks until this monotonic time
        session_log.follow(self)

    @contextlib.asynccontextmanager
    async def idle(self) -> AsyncIterator[bool]:
        """Let no turn begin in this context. Its value is False if a turn runs or waits."""
        if self._alone.locked() or self._inputs:
            yield False
            return
        async with self._alone:
            yield True

    async def run(self) -> None:
        while True:
            await self._ready()
            self._notices.flush()
            async with self._alone:
                prompts = self._inputs.next_turn(notices=not self._holds_notices())
                if prompts:
                    await self._turn(prompts)
            if prompts:
                continue
            if self._finish_by is None:
                await self._inputs.wait()
            elif not (self._tasks.awaited or self._inputs) or self._finish_by <= time.monotonic():
                return
            else:
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(self._finish_by - time.monotonic(), self._inputs.wait())

    @property
    def due(self) -> bool:
        return self._inputs.any_waiting or (bool(self._inputs) and not self._holds_notices())

    def finish(self, wait_s: float = 600.0) -> None:
        """Let `run` return once no prompt waits and no task runs, or after `wait_s`."""
        self._finish_by = time.monotonic() + wait_s
        self._inputs.wake()

    def go_on(self) -> None:
        self._finish_by = None

    def interrupt(self) -> None:
        self._agent.interrupt()

    def fail(self, reasons: Sequence[str], *, full: bool = False, unkept: Json | None = None) -> None:
        """Write a result for a turn that could not write its own (`unkept`). It is shown even if not journalled."""
        result: Json = {
            "type": "result",
            "subtype": "error_during_execution",
            "is_error": True,
            "duration_ms": 0,
            "duration_api_ms": 0,
            "num_turns": 0,
            "stop_reason": None,
            **self._log.usage.spent,
            "usage": zero_usage(),
            "permission_denials": [],
            "terminal_reason": "storage_full" if full else "model_error",
            "errors": [*reasons],
            **(unkept or {}),
        }
        try:
            self._log.say(result)
        except JournalError:
            self._log.progress("", result)

    async def _turn(self, prompts: Sequence[Prompt]) -> None:
        self.state = TurnState.RUNNING
        try:
            self._log.emit(TurnStartRecord())
            await self._agent.run_turn(prompts)
        except JournalError as error:
            log.error("the turn ended: %s", error)
            if self.state is TurnState.RUNNING:
                self.fail([str(error)], full=error.full, unkept=error.result)
        except Exception as error:
            log.exception("the turn ended in a bug")
            if self.state is TurnState.RUNNING:
                self.fail([f"internal error in the worker: {type(error).__name__}: {error}"])
        finally:
            self.state = TurnState.NONE
            self._log.changed()
        with contextlib.suppress(JournalError):
            self._log.emit(TurnEndRecord())
            self._log.journal.flush_soon()

    @on(ResultMessage, main_only=True)
    def _result(self, _: ResultMessage, __: Record) -> None:
        if self.state is TurnState.RUNNING:
            self.state = TurnState.ANSWERED

    @on(PromptRecord, TakenRecord, main_only=True)
    def _taken(self, content: PromptRecord | TakenRecord, _: Record) -> None:
        """Show the prompts that a turn has taken again, to clients that asked for echoes."""
        for input_id in content.input_ids if isinstance(content, PromptRecord) else [content.input_id]:
            body = self._inputs.echo_of(input_id)
            if body is not None:
                # Without a uuid of its client a prompt is known by its input: rewind_files takes what is shown here.
                self._log.say({**body, "uuid": body.get("uuid") or input_id, "isReplay": True})
