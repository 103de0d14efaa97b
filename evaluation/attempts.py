"""Attempts at tasks: a fresh repository, the agent, and the hidden tests afterwards; several at a time."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from evaluation.results import Outcome, ResultsFile
from evaluation.task_sets import Task

import ccb

_SETUP_S = 120.0
_LEAST_USD = 0.01
_SAID = 500
"""Characters of the agent's last words that are kept with a result."""


@dataclass(frozen=True)
class AgentSettings:
    """What is evaluated: a model, and options as `ccb.connect` names them: `NAME=VALUE` or `NAME`, with blanks between
    them. One that is there several times has several values."""

    model: str
    options: str

    def connect(self, host: str, directory: str, budget_usd: float | None = None) -> ccb.Host:
        """Return a directory of a host, "" for this machine."""
        given: dict[str, list[str]] = defaultdict(list)
        for word in shlex.split(self.options):
            name, is_value, value = word.partition("=")
            given[name] += [value] if is_value else []
        several = {name: values for name, values in given.items() if values[1:]}
        keywords: dict[str, Any] = {name: values[0] if values else True for name, values in given.items()} | several
        if budget_usd is not None:
            keywords["max_budget_usd"] = budget_usd
        return ccb.connect(f"{host}:{directory}" if host else directory, model=self.model, **keywords)


async def attempt(
    task: Task, number: int, host: str, settings: AgentSettings, budget_usd: float | None = None
) -> Outcome:
    """Let the agent try a task once, and run its hidden tests. Raises CcbError if it could not try."""
    async with settings.connect(host, "~") as there, _directory(there) as top:
        repository = f"{top}/{task.name}"
        await there.copy(task.folder / "environment", f":{top}/image")
        await _run(there, f"mv image/repo {task.name} && cd {task.name} && sh ../image/setup.sh && rm -r ../image", top)
        start = time.monotonic()
        async with settings.connect(host, repository, budget_usd) as agent, await agent.session() as session:
            prompt = session.prompt(task.instruction)
            try:
                async with asyncio.timeout(task.agent_s):
                    async for _ in prompt:
                        pass
                ending = ""
            except TimeoutError:
                ending = "timeout"
        seconds = time.monotonic() - start
        await there.copy(task.folder / "tests", f":{top}/tests")
        tested = f"cd {task.name} && REWARD_FILE=../tests/reward sh ../tests/test.sh"
        reward = await _run(there, f"({tested}) >/dev/null 2>&1; cat tests/reward || echo 0", top, task.verifier_s)
    result = prompt.result.raw if prompt.result else {}
    ending = ending or _ending(result)
    return Outcome(
        task.name,
        number,
        settings.model,
        settings.options,
        host or "local",
        ending,
        score=float(reward) if ending in _OF_AGENT else None,
        cost_usd=prompt.result.cost if prompt.result else 0.0,
        seconds=round(seconds, 1),
        turns=prompt.result.turns if prompt.result else 0,
        session_id=session.id,
        said=prompt.result.text[-_SAID:] if prompt.result else "",
    )


@asynccontextmanager
async def _directory(host: ccb.Host) -> AsyncIterator[str]:
    """A new directory, for this user alone, until the context ends."""
    made = (await _run(host, "mktemp -d")).strip()
    try:
        yield made
    finally:
        await host.run(f"rm -rf {shlex.quote(made)}", timeout=_SETUP_S)


async def _run(host: ccb.Host, script: str, directory: str = "", seconds: float = _SETUP_S) -> str:
    done = await host.run(script, directory=directory, timeout=seconds)
    if done.code != 0:
        raise ccb.errors.UsageError(f"{script} ended with code {done.code}: {done.stderr}")
    return done.text


_OF_AGENT = ("success", "error_max_turns", "refusal", "timeout")
"""How a turn ends by what the agent did. In all other ways a provider failed, or the budget was used up."""


def _ending(result: dict[str, Any]) -> str:
    if result.get("stop_reason") == "refusal":
        return "refusal"
    if result.get("subtype") == "success" and result.get("is_error"):
        return str(result.get("terminal_reason") or "error")
    return str(result.get("subtype"))


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

    async def run(self, hosts: Sequence[str], jobs: int) -> None:
        """Make the attempts, `jobs` at a time on each host, until a host fails or the budget is used up."""
        slots = len(hosts) * jobs
        async with asyncio.TaskGroup() as group:
            for host in hosts:
                for _ in range(jobs):
                    group.create_task(self._work(host, slots))

    async def _work(self, host: str, slots: int) -> None:
        while self._pending:
            share = self._share(slots)
            if share is not None and share < _LEAST_USD:
                return
            task, number = self._pending.popleft()
            self._running += 1
            self._reserved_usd += share or 0
            try:
                outcome = await attempt(task, number, host, self._settings, share)
            except (ccb.CcbError, TimeoutError) as error:
                self._pending.append((task, number))
                self._tell(f"{task.name} #{number} on {host or 'this machine'}: {error or 'took too long'}")
                return
            finally:
                self._running -= 1
                self._reserved_usd -= share or 0
            self._results.add(outcome)
            self._tell(f"{task.name} #{number} on {outcome.host}: {_verdict(outcome)}")

    def _share(self, slots: int) -> float | None:
        """What the next attempt may cost: an equal part of what is left, for each slot that is free."""
        if self._budget_usd is None:
            return None
        left = self._budget_usd - self._results.spent_usd - self._reserved_usd
        return left / max(1, slots - self._running)


def _verdict(outcome: Outcome) -> str:
    score = "no score" if outcome.score is None else f"score {outcome.score:g}"
    return f"{score}, {outcome.ending}, ${outcome.cost_usd:.3f}, {outcome.seconds:.0f} s, {outcome.turns} turns"
