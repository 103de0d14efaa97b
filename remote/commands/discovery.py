"""Finds the command and skill files of the person and of a trusted project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Callable

from ..settings.text_files import markdown_below, skills_in
from ..settings.worker_settings import PROJECT, USER, WorkerSettings
from .definition import COMMAND, SKILL, CommandFile, read_definition

_MAX_FILES = 500


def discover(settings: WorkerSettings, homes: Sequence[str], report: Callable[[str], None]) -> list[CommandFile]:
    """Return what the directories `.claude/commands` and `.claude/skills` hold. Of several files with one name, that of
    the nearest directory of the project counts, and the person's own, below `homes`, last. What cannot be used is
    reported in words. The files of a project count only if it is trusted. Names of a plugin begin with its own."""
    roots = []
    if settings.trusted and PROJECT in settings.sources:
        roots += [(each, PROJECT) for each in settings.trusted_directories]
    if USER in settings.sources:
        roots += [(each, USER) for each in homes]
    found: dict[str, CommandFile] = {}
    seen: set[str] = set()
    places = [(each.path, USER, f"{each.name}:") for each in settings.plugins]
    places += [(os.path.join(root, ".claude"), source, "") for root, source in roots]
    for top, source, prefix in places:
        for kind, name, path in _listed(top):
            name = prefix + name
            real = os.path.realpath(path)
            if real in seen or name in found:
                continue
            seen.add(real)
            if len(found) >= _MAX_FILES:
                report(f"{path}: more than {_MAX_FILES} commands and skills; the others do not count")
                return list(found.values())
            try:
                found[name] = read_definition(
                    name, kind, path, source, settings.project_top if source == PROJECT else ""
                )
            except ValueError as error:
                report(f"{path}: {error}")
    return list(found.values())


def _listed(top: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the path of each file below a `.claude` directory."""
    commands = os.path.join(top, "commands")
    for path in markdown_below(commands):
        yield COMMAND, os.path.relpath(path, commands)[: -len(".md")].replace(os.sep, ":"), path
    for name, path in skills_in(os.path.join(top, "skills")):
        yield SKILL, name, path
