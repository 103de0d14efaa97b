"""Sessions as lines for people: fitted to the width of the terminal, nothing of the host shown as it came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from rich.cells import cell_len, set_cell_size

from ccb.tunnel.plain_text import one_line

from ..connect.session_list import SessionRow

_STATES = {"running": "running", "requires_action": "asks", "idle": "idle", "ended": "ended"}
_GAP = "  "
_SHORT_ID = 8
_LEAST_PROMPT = 12
_LEAST_PATH = 14
_LEAST_DRIVER = 8
_LEAST_AWAY = 10
_NUMBERS = ("AGE", "USED", "RSS")


def age_text(seconds: float) -> str:
    """`12s`, `5m`, `3h`, `2d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(max(0, seconds))}s"


def size_text(size: int) -> str:
    """`26M`, `512K`; nothing for 0."""
    if size <= 0:
        return ""
    return f"{round(size / 1048576)}M" if size >= 1048576 else f"{max(1, round(size / 1024))}K"


def cut(text: str, width: int) -> str:
    """At most `width` cells of the terminal."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def short_ids(rows: Sequence[SessionRow]) -> dict[str, str]:
    """The shortest beginnings, of at least eight characters, that tell the sessions apart."""
    for length in (_SHORT_ID, 13, 18, 36):
        found = {row.session: one_line(row.session[:length]) for row in rows}
        if len(set(found.values())) == len(found):
            return found
    return {row.session: one_line(row.session) for row in rows}


def session_table(rows: Sequence[SessionRow], width: int) -> list[str]:
    """A head line and a line for each session, at most `width` cells (from 36 on): where it is narrow, names are cut first,
    then columns are left out."""
    ids = short_ids(rows)
    columns = {
        "ID": [ids[row.session] for row in rows],
        "STATE": [cut(_state(row), 16) for row in rows],
        "AGE": [age_text(row.age_s) for row in rows],
        "USED": [age_text(row.idle_s) for row in rows],
        "RSS": [size_text(row.rss) or "-" for row in rows],
        "DRIVER": [_driver(row, 24) for row in rows],
        "PATH": [_path(row.cwd, max(_LEAST_PATH, width // 3)) for row in rows],
    }
    widths = {name: max(map(cell_len, [name, *cells])) for name, cells in columns.items()}
    left = width - sum(widths.values()) - len(_GAP) * len(widths)
    for name, least in (("DRIVER", _LEAST_DRIVER), ("PATH", _LEAST_PATH)):
        taken = max(0, min(_LEAST_PROMPT - left, widths[name] - least))
        widths[name] -= taken
        left += taken
    for name in ("RSS", "DRIVER", "USED", "PATH"):
        if left < _LEAST_PROMPT:
            left += widths.pop(name) + len(_GAP)
    columns["DRIVER"] = [_driver(row, widths.get("DRIVER", 0)) for row in rows]
    columns["PATH"] = [_path(row.cwd, widths.get("PATH", 0)) for row in rows]
    lines = []
    for number in range(-1, len(rows)):
        cells = []
        for name, size in widths.items():
            text = columns[name][number] if number >= 0 else name
            pad = " " * (size - cell_len(text))
            cells.append(pad + text if name in _NUMBERS else text + pad)
        last = (one_line(rows[number].prompt) or "-") if number >= 0 else "LAST PROMPT"
        lines.append(_GAP.join([*cells, cut(last, max(1, left))]).rstrip())
    return lines


def _state(row: SessionRow) -> str:
    if row.host:
        return f"on {one_line(row.host)}"
    return _STATES.get(row.state, one_line(row.state)) + (" (memory)" if row.storage == "memory" else "")


def _driver(row: SessionRow, width: int) -> str:
    """Who drives, without the process, whether they are connected if there is room to say so, and how many watch."""
    watching = f" +{row.viewers}" if row.viewers else ""
    name, room = one_line(row.driver).split(" ")[0], width - len(watching)
    if name and row.driver_away and room >= _LEAST_AWAY:
        return f"({cut(name, room - len('( away)'))} away){watching}"
    return cut(name, room) + watching or "-"


def _path(path: str, width: int) -> str:
    """The end of a path says more than its start."""
    text = one_line(path)
    if cell_len(text) <= width:
        return text
    parts = PurePosixPath(text).parts
    kept = parts[-1]
    for part in reversed(parts[:-1]):
        if cell_len(part) + cell_len(kept) + 3 > width:
            break
        kept = f"{part}/{kept}"
    return cut(f"…/{kept}", width)
