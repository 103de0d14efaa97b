"""Attempts at tasks: a fresh repository, the agent, and the hidden tests afterwards; several at a time."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.machine import Machine, Unusable
from evaluation.results import Outcome, ResultsFile
from evaluation.task_sets import Task

_SETUP_S = 120.0
_LEAST_USD = 0.01
_SAID = 500
"""Characters of the agent's last words that are kept with a result."""


@dataclass(frozen=True)
class AgentSettings:
    """What is evaluated: a model, and options of ccb."""

    model: str
    options: Sequence[str]

    def arguments(self, budget_usd: float | None) -> list[str]:
        limit = [] if budget_usd is None else ["--max-budget-usd", f"{budget_usd:.4f}"]
        return ["--model", self.model, *limit, *self.options]


async def attempt(
    task: Task, number: int, machine: Machine, settings: AgentSettings, budget_usd: float | None = None
) -> Outcome:
    """Let the agent try a task once, and run its hidden tests. Raises Unusable if the machine does not let it try."""
    async with machine.directory() as top:
        repository = f"{top}/{task.name}"
        await machine.put(task.folder / "environment", f"{top}/image")
        enter = f"cd {shlex.quote(repository)}"
        made = f"mv {top}/image/repo {shlex.quote(repository)} && {enter} && sh ../image/setup.sh && rm -r ../image"
        await machine.shell(made, seconds=_SETUP_S)
        start = time.monotonic()
        result = await machine.ask(task.instruction, repository, settings.arguments(budget_usd), seconds=task.agent_s)
        seconds = time.monotonic() - start
        await machine.put(task.folder / "tests", f"{top}/tests")
        tested = f"{enter} && REWARD_FILE={top}/tests/reward sh {top}/tests/test.sh >/dev/null 2>&1"
        reward = await machine.shell(f"({tested}); cat {top}/tests/reward || echo 0", seconds=task.verifier_s)
    found = result or {"subtype": "timeout"}
    return Outcome(
        task.name,
        number,
        settings.model,
        shlex.join(settings.options),
        machine.name,
        ending=_ending(found),
        score=float(reward) if _says_something(found) else None,
        cost_usd=float(found.get("total_cost_usd", 0)),
        seconds=round(seconds, 1),
        turns=int(found.get("num_turns", 0)),
        session_id=str(found.get("session_id", "")),
        said=str(found.get("result") or found.get("errors") or "")[-_SAID:],
    )


def _ending(result: Mapping[str, Any]) -> str:
    if result["subtype"] == "success" and result.get("is_error"):
        return str(result.get("terminal_reason") or "error")
    return str(result["subtype"])


def _says_something(result: Mapping[str, Any]) -> bool:
    """Whether the turn ended by what the agent did, and not because a provider failed or the budget was used up."""
    if result["subtype"] in ("timeout", "error_max_turns") or result.get("stop_reason") == "refusal":
        return True
    return result["subtype"] == "success" and not result.get("is_error")


class Evaluation:
    """Attempts that are still to be made, and what they may cost together. Several workers take from it."""

    def __init__(
        self,
        pending: Sequence[tuple[Task, int]],
        settings: AgentSettings,
        results: ResultsFile,
        budget_usd: float | None,
        tell: Callable[[str], None],
    ) -> None:
        self._pending = deque(pending)
        self._settings = settings
        self._results = results
        self._budget_usd = budget_usd
        self._tell = tell
        self._reserved_usd = 0.0
        self._running = 0

    async def run(self, machines: Sequence[Machine], jobs: int) -> None:
        """Make the attempts, `jobs` at a time on each machine, until a machine fails or the budget is used up."""
        slots = len(machines) * jobs
        async with asyncio.TaskGroup() as group:
            for machine in machines:
                for _ in range(jobs):
                    group.create_task(self._work(machine, slots))

    async def _work(self, machine: Machine, slots: int) -> None:
        while self._pending:
            share = self._share(slots)
            if share is not None and share < _LEAST_USD:
                return
            task, number = self._pending.popleft()
            self._running += 1
            self._reserved_usd += share or 0
            try:
                outcome = await attempt(task, number, machine, self._settings, share)
            except (Unusable, OSError) as error:
                self._pending.append((task, number))
                self._tell(str(error))
                return
            finally:
                self._running -= 1
                self._reserved_usd -= share or 0
            self._results.add(outcome)
            self._tell(f"{task.name} #{number} on {machine.name}: {_verdict(outcome)}")

    def _share(self, slots: int) -> float | None:
        """What the next attempt may cost: an equal part of what is left, for each slot that is free."""
        if self._budget_usd is None:
            return None
        left = self._budget_usd - self._results.spent_usd - self._reserved_usd
        return left / max(1, slots - self._running)


def _verdict(outcome: Outcome) -> str:
    score = "no score" if outcome.score is None else f"score {outcome.score:g}"
    return f"{score}, {outcome.ending}, ${outcome.cost_usd:.3f}, {outcome.seconds:.0f} s, {outcome.turns} turns"
