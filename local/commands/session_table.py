"""The table of sessions, and the choice of one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from rich.cells import cell_len, set_cell_size

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import age_text

from ..connect.session_rows import SessionRow
from ..terminal.console import say
from ..terminal.terminal_prompts import read_line

MAX_LISTED = 20
_ESCAPE = "\x1b"
_STATES = {"running": "running", "requires_action": "asks", "idle": "idle", "ended": "ended", "moved": "moved"}
_GAP = "  "
_SHORT_ID = 8
_MIN_PROMPT = 12
_MIN_PATH = 14
_MIN_DRIVER = 8
_MIN_AWAY = 10
_NUMBERS = ("AGE", "IDLE", "RSS")


async def choose_session(rows: Sequence[SessionRow]) -> str | None:
    """Return the ID of the session that the person chose, None if they gave up. Raise UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "this run needs the ID of a session: there is no terminal to choose one on",
            evidence="\n".join(session_table(rows[:MAX_LISTED], 100)),
            do="Give its ID.",
        )
    shown = list(rows)
    while True:
        _show(shown)
        answer = await read_line("Session (number, ID, or text to search for; Enter or q to leave): ") or ""
        if answer in ("", "q") or answer.startswith(_ESCAPE):
            return None
        found = matching(rows, shown[:MAX_LISTED], answer)
        if len(found) == 1:
            return found[0].session
        if found:
            shown = found
        else:
            say(f"No session matches {answer!r}.")
            shown = list(rows)


def matching(rows: Sequence[SessionRow], shown: Sequence[SessionRow], answer: str) -> list[SessionRow]:
    """Return the rows that `answer` names: by number, by the start of the ID, or by a part of the path or prompt."""
    if answer.isdigit() and len(answer) < 4:
        return [shown[int(answer) - 1]] if 0 < int(answer) <= len(shown) else []
    wanted = answer.lower()
    by_id = [row for row in rows if row.session.startswith(wanted)] if len(wanted) >= 4 else []
    return by_id or [row for row in rows if wanted in row.cwd.raw.lower() or wanted in row.prompt.raw.lower()]


def _show(rows: Sequence[SessionRow]) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    head, *lines = session_table(rows[:MAX_LISTED], width - 4)
    say(f"    {head}")
    say(*(f"{number:3} {line}" for number, line in enumerate(lines, 1)))
    if len(rows) > MAX_LISTED:
        say(f"    … and {len(rows) - MAX_LISTED} more")


def size_text(size: int) -> str:
    """Return a number of bytes as `26M` or `512K`; "" for 0."""
    if size <= 0:
        return ""
    return f"{round(size / 1048576)}M" if size >= 1048576 else f"{max(1, round(size / 1024))}K"


def cut(text: str, width: int) -> str:
    """Return `text`, cut to at most `width` cells of the terminal."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def aligned(rows: Sequence[Sequence[str]], numbers: int) -> list[str]:
    """Return rows of cells as lines. The `numbers` columns behind the first are numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        sides = (">" if 0 < column <= numbers else "<" for column in range(len(row)))
        cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def short_ids(rows: Sequence[SessionRow]) -> dict[str, str]:
    """Return for each session ID its shortest unique start, of eight or more characters."""
    ids = {row.session for row in rows}
    length = next((size for size in (_SHORT_ID, 13, 18) if len({each[:size] for each in ids}) == len(ids)), None)
    return {each: each[:length] for each in ids}


def session_table(rows: Sequence[SessionRow], width: int) -> list[str]:
    """Return a heading and a line for each session. Where it is narrow, names are cut first, then columns go."""
    columns = _columns(rows, width)
    widths, left = _fitted(columns, width)
    columns["DRIVER"] = [driver_text(row, widths.get("DRIVER", 0)) for row in rows]
    columns["PATH"] = [_path(row.cwd.cell, widths.get("PATH", 0)) for row in rows]
    prompts = [row.prompt.cell or "-" for row in rows]
    lines = [_line({name: name for name in widths}, widths, "TITLE", left)]
    for number, prompt in enumerate(prompts):
        lines.append(_line({name: columns[name][number] for name in widths}, widths, prompt, left))
    return lines


def _columns(rows: Sequence[SessionRow], width: int) -> dict[str, list[str]]:
    ids = short_ids(rows)
    return {
        "ID": [ids[row.session] for row in rows],
        "STATE": [cut(_state(row), 16) for row in rows],
        "AGE": [age_text(row.age_s) for row in rows],
        "IDLE": [age_text(row.idle_s) for row in rows],
        "RSS": [size_text(row.rss) or "-" for row in rows],
        "DRIVER": [driver_text(row, 24) for row in rows],
        "PATH": [_path(row.cwd.cell, max(_MIN_PATH, width // 3)) for row in rows],
    }


def _fitted(columns: Mapping[str, Sequence[str]], width: int) -> tuple[dict[str, int], int]:
    widths = {name: max(map(cell_len, [name, *cells])) for name, cells in columns.items()}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    for name, least in (("DRIVER", _MIN_DRIVER), ("PATH", _MIN_PATH)):
        taken = max(0, min(_MIN_PROMPT - left, widths[name] - least))
        widths[name] -= taken
        left += taken
    for name in ("RSS", "DRIVER", "IDLE", "PATH"):
        if left < _MIN_PROMPT:
            left += widths.pop(name) + len(_GAP)
    return widths, left


def _line(cells: Mapping[str, str], widths: Mapping[str, int], prompt: str, left: int) -> str:
    shown = []
    for name, size in widths.items():
        pad = " " * (size - cell_len(cells[name]))
        shown.append(pad + cells[name] if name in _NUMBERS else cells[name] + pad)
    return _GAP.join([*shown, cut(prompt, max(1, left))]).rstrip()


def _state(row: SessionRow) -> str:
    if row.host:
        state = _STATES.get(row.state, row.state) if row.alive else "not heard"
        return f"{state} on {row.host.cell}"
    return _STATES.get(row.state, row.state) + (" (memory)" if row.storage == "memory" else "")


def driver_text(row: SessionRow, width: int) -> str:
    """Return who drives (without the process ID), whether they are away if there is room, and the number of viewers."""
    watching = f" +{row.viewers}" if row.viewers else ""
    name, room = row.driver.cell.split(" ")[0], width - len(watching)
    if name and row.driver_away and room >= _MIN_AWAY:
        return f"({cut(name, room - len('( away)'))} away){watching}"
    return cut(name, room) + watching or "-"


def _path(path: str, width: int) -> str:
    """Return a path cut at its start, because its end says more."""
    if cell_len(path) <= width:
        return path
    parts = PurePosixPath(path).parts
    kept = parts[-1]
    for part in reversed(parts[:-1]):
        if cell_len(part) + cell_len(kept) + 3 > width:
            break
        kept = f"{part}/{kept}"
    return cut(f"…/{kept}", width)
