"""How the agent answers: the settings `outputStyle` and `language`, as a text for the system prompt."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from ..settings.settings_files import read_text
from ..settings.worker_settings import WorkerSettings

DEFAULT = "default"
_BUILT_IN = {
    "Explanatory": "Teach while you work: before and after a change say in two or three sentences why it is done this"
    " way in this code base, and which alternatives there were.",
    "Learning": "Let the user learn by doing: where a decision is instructive and small (2 to 10 lines), prepare the"
    " place, mark it with TODO(human), say what is to be decided, and wait for the user to write it.",
}
_NAME = re.compile(r"[\w][\w .-]{0,99}")
_FRONT = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
_MAX_LANGUAGE = 100  # characters
_MAX_STYLES = 200


def style_name(settings: WorkerSettings) -> str:
    """Return the name of the output style in force."""
    found = settings.value("outputStyle")
    name = found.value if found is not None else None
    return name if isinstance(name, str) and _NAME.fullmatch(name) else DEFAULT


def style_names(settings: WorkerSettings, home: str) -> list[str]:
    """Return the names of the output styles that can be chosen."""
    found = [DEFAULT, *_BUILT_IN]
    for path, _ in _places("*", settings, home):
        with suppress(OSError):
            names = sorted(os.listdir(os.path.dirname(path)))
            found += [name[:-3] for name in names if name.endswith(".md") and _NAME.fullmatch(name[:-3])]
    return list(dict.fromkeys(found))[:_MAX_STYLES]


def style_text(settings: WorkerSettings, home: str) -> str:
    """Return what the system prompt says about style and language, "" for nothing. A style is a Markdown file in
    `.claude/output-styles` of the person's home or of a trusted project, or a built-in one."""
    name, found = style_name(settings), settings.value("language")
    parts = [f"# Output style: {name}\n{text}" for text in (_style(name, settings, home),) if text]
    language = found.value.strip() if found is not None and isinstance(found.value, str) else ""
    if language:
        parts.append(f"# Language\nAnswer the user in this language: {language[:_MAX_LANGUAGE]}. Code stays as it is.")
    return "\n\n".join(parts)


def _style(name: str, settings: WorkerSettings, home: str) -> str:
    if name == DEFAULT:
        return ""
    for path, within in _places(name, settings, home):
        try:
            text = read_text(path, within)
        except (ValueError, OSError):
            continue
        if text is not None:
            return _FRONT.sub("", text.replace("\r\n", "\n")).strip()
    return next((text for known, text in _BUILT_IN.items() if known.lower() == name.lower()), "")


def _places(name: str, settings: WorkerSettings, home: str) -> Iterator[tuple[str, str]]:
    """Yield the files that may hold a style, each with the directory out of which no link may lead, "" for any."""
    top = settings.project_top
    for directory, within in (*((each, top) for each in settings.trusted_directories), (home, "")):
        yield os.path.join(directory, ".claude", "output-styles", f"{name}.md"), within
