"""How a fleet looks: lines of JSON for programs, and on a terminal the tasks that run, below those that have ended."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import set_cell_size

from ccb.tunnel.errors import ExitCode
from ccb.tunnel.plain_text import HostText, age_text, neutralise

from ..ledger.call_ledger import dollars
from ..terminal.console import print_line, say, write_block
from .fleet_run import FleetRun, TaskRow
from .manifest import Manifest

_EVERY_S = 0.25
_MAX_RUNNING = 20  # rows of the table
_HOST_WIDTH = 28
_MAX_HOSTS = 12  # that are named beside an answer
_MAX_ANSWER = 20_000  # characters


def task_json(fleet: str, row: TaskRow) -> dict[str, Any]:
    """Return a task for scripts. `exit` is null before its end."""
    task, result = row.task, row.result
    about = {"fleet": fleet, "index": task.index, "host": task.host, "place": task.place, "session": task.session}
    if result is None:
        return {**about, "exit": None, "doing": row.doing}
    return {**about, "exit": result.exit_code.name, **result.model_dump(mode="json", exclude={"index"})}


def summary_json(fleet: str, rows: Sequence[TaskRow], usd: float) -> dict[str, Any]:
    groups = [{"hosts": hosts, "text": text, "data": data} for hosts, text, data in equal_answers(rows)]
    return {"fleet": fleet, "summary": True, "exits": _exits(rows), "usd": round(usd, 6), "answers": groups}


def equal_answers(rows: Iterable[TaskRow]) -> list[tuple[list[str], str, Any]]:
    """Return each different answer with the hosts that gave it, the most frequent first."""
    found: dict[str, tuple[list[str], str, Any]] = {}
    for row in rows:
        if (result := row.result) is not None and result.ok:
            given = result.text.strip() if result.data is None else json.dumps(result.data, sort_keys=True)
            found.setdefault(given, ([], result.text.strip(), result.data))[0].append(row.task.host)
    return sorted(found.values(), key=lambda group: -len(group[0]))


def exit_code(run: FleetRun) -> ExitCode:
    """Return OK if every task has its answer, else the exit code that all failed ones share, or AGENT_FAILED."""
    left = ExitCode.INTERRUPTED if run.stopping else ExitCode.LIMIT_REACHED
    codes = {row.result.exit_code if row.result is not None else left for row in run.rows} - {ExitCode.OK}
    return ExitCode.AGENT_FAILED if len(codes) > 1 else codes.pop() if codes else ExitCode.OK


def print_answers(rows: Sequence[TaskRow]) -> None:
    """Print each different answer once, below the hosts that gave it."""
    for hosts, text, data in equal_answers(rows):
        shown = ", ".join(hosts[:_MAX_HOSTS]) + (f" and {len(hosts) - _MAX_HOSTS} more" if hosts[_MAX_HOSTS:] else "")
        said = text if data is None else json.dumps(data, indent=2, ensure_ascii=False)
        print_line("", f"== {len(hosts)} of {len(rows)}: {shown}", *neutralise(said[:_MAX_ANSWER]).split("\n"))


def row_line(row: TaskRow) -> str:
    """Return what a task does, or what came of it."""
    result, name = row.result, row.task.host
    if len(name) > _HOST_WIDTH:  # the ends tell hosts and directories apart
        name = f"{name[: _HOST_WIDTH // 2]}…{name[-(_HOST_WIDTH // 2 - 1) :]}"
    host = set_cell_size(name, _HOST_WIDTH)
    if result is None:
        return f"… {host} {HostText(row.doing).line(60)}"
    facts = f"{age_text(result.duration_s):>5} {dollars(result.usd):>8}"
    if result.ok:
        return f"✓ {host} {facts}  {HostText(result.text).line(200)}"
    why = HostText(result.errors[0] if result.errors else result.text).line(300)
    return f"✗ {host} {facts}  {result.exit_code.name}: {why}"


def _exits(rows: Iterable[TaskRow]) -> dict[str, int]:
    states = ((row.result.exit_code.name if row.result else "running" if row.runs else "left") for row in rows)
    return dict(sorted(Counter(states).items()))


def totals(rows: Sequence[TaskRow], manifest: Manifest, usd: float) -> str:
    exits = ", ".join(f"{count} {name}" for name, count in _exits(rows).items())
    of = f" of {dollars(manifest.budget_usd)}" if manifest.budget_usd is not None else ""
    return f"{manifest.name}: {len(rows)} tasks: {exits}; {dollars(usd)}{of}"


class FleetTable:
    """The table of a fleet on a terminal: `ended` adds a line for good, `show` keeps the running tasks below all."""

    def __init__(self) -> None:
        self._lines = 0  # of the block that is on the screen

    def ended(self, row: TaskRow) -> None:
        self._write((), [row_line(row)])

    def tell(self, sentence: str) -> None:
        self._write((), [f"ccb: {sentence}"])

    async def show(self, run: FleetRun) -> None:
        """Draw until cancelled."""
        try:
            while True:
                self._write(self._block(run))
                await asyncio.sleep(_EVERY_S)
        finally:
            self._write(())

    def _block(self, run: FleetRun) -> list[str]:
        now, height = time.monotonic(), shutil.get_terminal_size((100, 24)).lines
        running = [row for row in run.rows if row.runs]
        room = max(1, min(_MAX_RUNNING, height - 4))
        lines = [f"{row_line(row)} {age_text(now - row.since)}" for row in running[:room]]
        if len(running) > room:
            lines.append(f"… and {len(running) - room} more")
        took = age_text(now - run.began)
        return [*lines, f"{totals(run.rows, run.manifest, run.usd)}; {took}{'; stopping' if run.stopping else ''}"]

    def _write(self, block: Sequence[str], above: Sequence[str] = ()) -> None:
        width = shutil.get_terminal_size((100, 24)).columns - 1
        write_block([set_cell_size(line, width) for line in (*above, *block)], self._lines)
        self._lines = len(block)


def say_end(run: FleetRun) -> None:
    """Say on stderr what is left, and how to go on."""
    left = [row for row in run.rows if row.result is None or not row.result.ok]
    if left and run.used_up:
        say("ccb: the budget of the fleet is used up: give a larger one with --max-budget-usd.")
    if left:
        go_on = f"ccb fleet run --resume-failed {run.manifest.name}"
        say(f"ccb: {len(left)} of {len(run.rows)} tasks have no answer. Go on: {go_on}")
