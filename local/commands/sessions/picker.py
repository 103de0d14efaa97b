"""Let the person choose one of a host's sessions: a numbered list on the terminal, narrowed by what they type."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from ccb.tunnel.errors import UsageError

from ...connect.session_list import SessionRow
from ...login.prompts import ask_line
from ...terminal.guarded_streams import say
from .table import session_table

_MAX_LISTED = 20
_ESCAPE = "\x1b"


async def choose_session(rows: Sequence[SessionRow]) -> str | None:
    """Return the ID of the session that the person chose from `rows` (not empty), or None if they gave up.

    Raises UsageError where there is no terminal to ask on.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        listed = "\n".join(session_table(rows[:_MAX_LISTED], 100))
        raise UsageError(
            "this run needs the ID of a session: there is no terminal to choose one on",
            evidence=listed,
            do="Give its ID.",
        )
    shown = list(rows)
    while True:
        _show(shown)
        answer = await ask_line("Session (number, ID, or text to search for; Enter or q to leave): ")
        if answer in ("", "q") or answer.startswith(_ESCAPE):
            return None
        found = matching(rows, shown[:_MAX_LISTED], answer)
        if len(found) == 1:
            return found[0].session
        if found:
            shown = found
        else:
            say(f"No session matches {answer!r}.")
            shown = list(rows)


def matching(rows: Sequence[SessionRow], shown: Sequence[SessionRow], answer: str) -> list[SessionRow]:
    """Return the rows that `answer` names: by number in the list, by the start of the ID, or by a part of the path or
    prompt."""
    if answer.isdigit() and len(answer) < 4:
        return [shown[int(answer) - 1]] if 0 < int(answer) <= len(shown) else []
    wanted = answer.lower()
    by_id = [row for row in rows if row.session.startswith(wanted)] if len(wanted) >= 4 else []
    return by_id or [row for row in rows if wanted in row.cwd.raw.lower() or wanted in row.prompt.raw.lower()]


def _show(rows: Sequence[SessionRow]) -> None:
    width = shutil.get_terminal_size((100, 24)).columns
    head, *lines = session_table(rows[:_MAX_LISTED], width - 4)
    say(f"    {head}")
    for number, line in enumerate(lines, 1):
        say(f"{number:3} {line}")
    if len(rows) > _MAX_LISTED:
        say(f"    … and {len(rows) - _MAX_LISTED} more")
