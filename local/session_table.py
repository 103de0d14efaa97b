"""Sessions as lines for people: fitted to the width of the terminal, nothing of the host shown as it came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from ccb.tunnel.plain_text import neutralise

from .session_list import SessionRow

_STATES = {"running": "running", "requires_action": "asks", "idle": "idle", "ended": "ended"}
_GAP = "  "
_SHORT_ID = 8
_LEAST_PROMPT = 12
_RIGHT = (2, 3, 4)  # columns of numbers


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


def one_line(text: str) -> str:
    """Without control characters and line breaks."""
    return " ".join(neutralise(text).split())


def cut(text: str, width: int) -> str:
    """At most `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def short_ids(rows: Sequence[SessionRow]) -> dict[str, str]:
    """The shortest beginnings, of at least eight characters, that tell the sessions apart."""
    for length in (_SHORT_ID, 13, 18, 36):
        found = {row.session: one_line(row.session[:length]) for row in rows}
        if len(set(found.values())) == len(found):
            return found
    return {row.session: one_line(row.session) for row in rows}


def session_table(rows: Sequence[SessionRow], width: int) -> list[str]:
    """A head line and a line for each session."""
    ids = short_ids(rows)
    cells = [("ID", "STATE", "AGE", "USED", "MEM", "DRIVER", "PATH", "LAST PROMPT")]
    for row in rows:
        state = f"on {one_line(row.host)}" if row.host else _STATES.get(row.state, one_line(row.state))
        driver = one_line(row.driver).split(" ")[0] + (f" +{row.viewers}" if row.viewers else "")
        cells.append(
            (
                ids[row.session],
                cut(state, 16),
                age_text(row.age_s),
                age_text(row.idle_s),
                size_text(row.rss) or "-",
                cut(driver, 24) or "-",
                _path(row.cwd, max(16, width // 4)),
                one_line(row.prompt) or "-",
            )
        )
    widths = [max(len(line[column]) for line in cells) for column in range(7)]
    left = max(_LEAST_PROMPT, width - sum(widths) - len(_GAP) * 7)
    lines = []
    for line in cells:
        fixed = [
            text.rjust(size) if column in _RIGHT else text.ljust(size)
            for column, (text, size) in enumerate(zip(line[:-1], widths, strict=True))
        ]
        lines.append(_GAP.join([*fixed, cut(line[-1], left)]).rstrip())
    return lines


def _path(path: str, width: int) -> str:
    """The end of a path says more than its start."""
    text = one_line(path)
    if len(text) <= width:
        return text
    parts = PurePosixPath(text).parts
    kept = parts[-1]
    for part in reversed(parts[:-1]):
        if len(part) + len(kept) + 3 > width:
            break
        kept = f"{part}/{kept}"
    return cut(f"…/{kept}", width)
