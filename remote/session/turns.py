"""The turns of a session, one after the other: each prompt gets its turn, and each turn exactly one result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from enum import Enum
from typing import Any, Callable

from ccb.tunnel.wire.messages import ResultLine, UserLine
from ccb.tunnel.wire.projection import Projection, on
from ccb.tunnel.wire.records import PromptRecord, Record, TakenRecord, TurnEndRecord, TurnStartRecord

from ..agent.agent import Agent
from ..agent.deps import Prompt
from ..agent.usage import zero_usage
from ..journal.journal import JournalError
from .inputs import Inputs
from .log import SessionLog, Watchers

Json = dict[str, Any]

log = logging.getLogger(__name__)


class TurnState(Enum):
    """The state of the running turn."""

    NONE = "none"  # no turn runs
    RUNNING = "running"  # it has no result yet
    ANSWERED = "answered"  # its result is in the journal


class Turns(Projection):
    """Runs the main agent on the prompts that wait in `inputs`. No turn starts before `ready` has returned."""

    def __init__(
        self,
        session_log: SessionLog,
        inputs: Inputs,
        agent: Agent,
        watchers: Watchers,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self.state = TurnState.NONE
        self._log = session_log
        self._inputs = inputs
        self._agent = agent
        self._watchers = watchers
        self._ready = ready
        self._echoes: dict[str, Json] = {}  # prompts that are shown again when a turn takes them, by input id
        self._ends_when_idle = False
        self._alone = asyncio.Lock()  # held by a turn, and by what must not run beside one
        session_log.follow(self)

    def put(self, input_id: str, line: UserLine, *, echo: bool) -> None:
        """Queue the prompt in a user message. `echo`: show the message again when a turn takes it."""
        if echo:
            self._echoes[input_id] = line.body
        self._inputs.put(input_id, line)

    async def run(self) -> None:
        """Run turns. Returns after `finish`, once no prompt waits."""
        await self._ready()
        while True:
            while not self._inputs:
                if self._ends_when_idle:
                    return
                await self._inputs.wait()
            await self._ready()
            async with self._alone:
                if self._inputs:
                    await self._turn(self._inputs.pop())

    @contextlib.asynccontextmanager
    async def idle(self) -> AsyncIterator[bool]:
        """Let no turn begin in this context. Its value is False, and no turn is held back, if a turn runs or waits."""
        if self._alone.locked() or self._inputs:
            yield False
            return
        async with self._alone:
            yield True

    def finish(self) -> None:
        """Let `run` return once no prompt waits."""
        self._ends_when_idle = True
        self._inputs.wake()

    def go_on(self) -> None:
        """Undo `finish`: another client still needs the session."""
        self._ends_when_idle = False

    def interrupt(self) -> None:
        """End the running turn, if there is one."""
        self._agent.interrupt()

    def fail(self, reasons: Sequence[str], *, full: bool = False, unkept: Json | None = None) -> None:
        """Write a result in place of a turn that could not write its own. It is shown even if it cannot be journalled.
        `full`: the host has no room; `unkept` is the result that the turn wanted to write."""
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

    async def _turn(self, prompt: Prompt) -> None:
        self.state = TurnState.RUNNING
        try:
            self._log.emit(TurnStartRecord())
            await self._agent.run_turn([prompt])
        except JournalError as error:
            log.error("the turn ended: %s", error)
            self._fail_running([str(error)], full=error.full, unkept=error.result)
        except Exception as error:
            log.exception("the turn ended in a bug")
            self._fail_running([f"internal error in the worker: {type(error).__name__}: {error}"])
        finally:
            self.state = TurnState.NONE
            self._watchers.changed()
        with contextlib.suppress(JournalError):
            self._log.emit(TurnEndRecord())
            self._log.journal.flush_soon()

    def _fail_running(self, reasons: Sequence[str], *, full: bool = False, unkept: Json | None = None) -> None:
        """Give the running turn a result, unless it has one."""
        if self.state is TurnState.RUNNING:
            self.state = TurnState.ANSWERED
            self.fail(reasons, full=full, unkept=unkept)
        else:
            log.error("after the result: %s", " ".join(reasons))

    @on(ResultLine, main_only=True)
    def _result(self, _: ResultLine, __: Record) -> None:
        if self.state is TurnState.RUNNING:
            self.state = TurnState.ANSWERED

    @on(PromptRecord, main_only=True)
    def _prompt(self, content: PromptRecord, _: Record) -> None:
        """Show the prompts that a turn has taken again, to clients that asked for echoes."""
        self._show_again(content.input_ids)

    @on(TakenRecord, main_only=True)
    def _taken(self, content: TakenRecord, _: Record) -> None:
        self._show_again([content.input_id])

    def _show_again(self, input_ids: Sequence[str]) -> None:
        for input_id in input_ids:
            body = self._echoes.pop(input_id, None)
            if body is not None:
                self._log.say({**body, "isReplay": True})
