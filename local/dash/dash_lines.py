"""`ccb dash --json`: the rows once, or what changes in them until somebody ends it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable

from ..command_line.exit_codes import ExitCode
from ..terminal.console import print_line
from .dash_model import Dash, DashRow, HostWatch, as_json

_ANSWER_S = 15.0  # seconds in which a host has to answer
_CHANGING = ("age_s", "idle_s", "stale_s")


async def print_once(dash: Dash) -> ExitCode:
    """Print a row for each session, and one with `error` for each host that did not answer. Return AGENT_FAILED if
    there is one."""
    told = [asyncio.create_task(each.told.wait()) for each in dash.hosts]
    _, late = await asyncio.wait(told, timeout=_ANSWER_S)
    for each in late:
        each.cancel()
    async for _ in dash.changes():
        break
    now = time.monotonic()
    print_line(*(json.dumps(as_json(row, now)) for row in dash.rows()))
    silent = [each for each in dash.hosts if not each.up]
    print_line(*map(_of_host, silent))
    return ExitCode.AGENT_FAILED if silent else ExitCode.OK


async def follow(dash: Dash) -> ExitCode:
    """Print rows as they come and change, `gone` for those that go, and hosts that do not answer or do so again."""
    shown: dict[tuple[str, str], object] = {}
    problems: dict[str, str] = {}
    async for _ in dash.changes():
        now, rows = time.monotonic(), {row.key: row for row in dash.rows()}
        print_line(*_changed(rows.values(), shown, now))
        gone = [key for key in shown if key not in rows]
        print_line(*(json.dumps({"host": host, "session": session, "gone": True}) for host, session in gone))
        for key in gone:
            del shown[key]
        print_line(*(_of_host(each) for each in dash.hosts if problems.get(each.name, "") != each.problem))
        problems = {each.name: each.problem for each in dash.hosts}
    return ExitCode.OK


def _changed(rows: Iterable[DashRow], shown: dict[tuple[str, str], object], now: float) -> list[str]:
    lines = []
    for row in rows:
        told = as_json(row, now)
        lasting = {name: value for name, value in told.items() if name not in _CHANGING}
        if shown.get(row.key) != lasting:
            shown[row.key] = lasting
            lines.append(json.dumps(told))
    return lines


def _of_host(host: HostWatch) -> str:
    return json.dumps({"host": host.name, "error": host.problem or ("" if host.up else "it has not answered yet")})
