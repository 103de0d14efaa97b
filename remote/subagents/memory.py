"""The memory of an agent: a directory of notes, which it finds again the next time it works."""

from __future__ import annotations

import os

from ..settings.settings_files import read_text
from ..settings.worker_settings import LOCAL, MEMORIES, MEMORY_FILE, PROJECT, USER
from ..tools.agents.definition import AgentDefinition

_MAX_LINES = 200
_MAX_CHARS = 25_000

_TEXT = """\
# Your memory
Your notes from earlier tasks are in {directory}; you may read and write files there without asking. MEMORY.md there \
is shown to you at the start, up to {lines} lines. Before you end, note what will help you next time: what you learned \
of this code, decisions, what went wrong. Keep MEMORY.md short, put details into other files beside it and name them \
there, and correct what is no longer true.

{notes}"""


def memory_directory(definition: AgentDefinition, cwd: str, home: str, *, trusted: bool) -> str:
    """Return where an agent keeps its notes, "" without a memory. A memory in a project does not count before the
    project is `trusted`: whoever wrote the project may have written the notes. Nothing below the project or the home
    directory may be a link on the way there."""
    if not definition.memory or not (trusted or definition.memory == USER):
        return ""
    base = os.path.realpath(home if definition.memory == USER else cwd)
    place = MEMORIES[LOCAL if definition.memory == LOCAL else PROJECT]
    return os.path.join(base, ".claude", place, definition.name.replace(":", "-"))


def memory_text(directory: str) -> str:
    """Return what an agent is told of its memory. Blocks on files."""
    path = os.path.join(directory, MEMORY_FILE)
    try:
        if os.path.realpath(path) != path:
            raise ValueError("a link leads elsewhere")
        text = read_text(path)
    except ValueError as error:
        return _TEXT.format(directory=directory, lines=_MAX_LINES, notes=f"(MEMORY.md does not count: {error}.)")
    notes = "(There is no MEMORY.md yet.)"
    if text is not None:
        lines = text.split("\n")
        shown = "\n".join(lines[:_MAX_LINES])[:_MAX_CHARS]
        cut = "" if len(shown) >= len(text.rstrip("\n")) else "\n(MEMORY.md goes on: shorten it.)"
        notes = f"MEMORY.md:\n\n{shown.strip()}{cut}"
    return _TEXT.format(directory=directory, lines=_MAX_LINES, notes=notes)
