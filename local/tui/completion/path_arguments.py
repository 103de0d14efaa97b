"""The paths behind /get, /put, /open and /export: on the host or on the laptop, completed while the person types."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ...terminal.stdio import in_thread
from .file_names import Mention, offer_of
from .offers import Offers

_LOCAL: Mapping[str, tuple[bool, ...]] = {
    "get": (False, True),
    "put": (True, False),
    "open": (False,),
    "export": (True,),
}
"""By command, whether each of its arguments is a path on the laptop."""

_WORD = re.compile(r'"(?P<quoted>[^"]*)(?P<end>"|\Z)|(?P<plain>\S+)')
_MAX_NAMES, _MAX_SHOWN = 20_000, 100


def path_argument_at(text: str, cursor: int) -> Mention | None:
    """Return the path in which the cursor is, if the text is a command that takes paths. Only the end of the text is
    completed; a quote may stand behind the cursor."""
    command, space, _ = text.partition(" ")
    places = _LOCAL.get(command.removeprefix("/"), ()) if command.startswith("/") else ()
    if not places or not space or "\n" in text or text[cursor:] not in ("", '"'):
        return None
    end, text = len(text), text[:cursor]
    words = list(_WORD.finditer(text, len(command) + 1))
    last = words[-1] if words else None
    if last is None or (last.end() == len(text) and last["end"] == '"') or text[last.end() :]:
        number, query, start = len(words), "", len(text)  # the next word
        if not text.endswith(" "):
            return None
    else:
        number, start = len(words) - 1, last.start()
        query = last["quoted"].replace("\\\\", "\\") if last["plain"] is None else last["plain"]
    return Mention(query, start, end, sign="", local=places[number]) if number < len(places) else None


class LaptopNames:
    """Offers the entries of a directory of the laptop. `changed` is called when there is something new to offer."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._folder: str | None = None
        self._names: list[str] = []

    def wanted(self, mention: Mention) -> bool:
        """Return whether the directory must be read anew: it is another one, or its own name has just been typed."""
        folder, name = _split(mention.query)
        return folder != self._folder or not name

    async def ask(self, query: str) -> None:
        """Read the directory of a path."""
        folder, _ = _split(query)
        names = await in_thread(lambda: _entries(folder))
        self._folder, self._names = folder, names
        self._changed()

    def offers(self, mention: Mention) -> Offers | None:
        """Return the entries that begin with what is typed. None if that is nothing, or what is typed already."""
        folder, typed = _split(mention.query)
        if folder != self._folder:
            return None
        fits = [each for each in self._names if each.lower().startswith(typed.lower())]
        shown = [each for each in fits if typed.startswith(".") or not each.startswith(".")][:_MAX_SHOWN]
        if not shown or shown == [typed]:
            return None
        offers = [offer_of(folder + each, mention) for each in shown]
        return Offers(offers, f"laptop {mention.start}")


def _split(path: str) -> tuple[str, str]:
    """Return the directory of a path, with the slash behind it, and the name."""
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


def _entries(folder: str) -> list[str]:
    """Return what a directory holds, those that are directories with a slash. [] if it cannot be read."""
    names: list[str] = []
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            for entry in entries:
                if entry.name.isprintable() and '"' not in entry.name:
                    names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
                if len(names) == _MAX_NAMES:
                    break
    except (OSError, RuntimeError):  # RuntimeError: nobody knows the home of this user
        return []
    return sorted(names)
