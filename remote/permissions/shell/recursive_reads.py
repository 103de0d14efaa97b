"""Commands that read whole trees, such as `grep -r`: find the rules about files below the directories they read."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence

from ...system.host import is_under
from ..paths import PathPattern, Places
from ..rules.rules import Rule
from .read_targets import Unknown, is_pathless, operands_read, resolve
from .words import Command, Word, names
from .wrappers import effective, started_by

_ALWAYS = names("diff rg ag ack ugrep tar zip rsync")
_WITH_OPTION = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-[A-Za-z]*[rR]|--(de)?r|--dir|-d")),
    "cp": re.compile(r"-[A-Za-z]*[rRa]|--(rec|arc)"),
}
_SECONDS = 0.1
_MAX_ENTRIES = 20_000


def rule_on_the_way(
    commands: Sequence[Command], bases: Sequence[str], rules: Sequence[Rule], places: Places
) -> Rule | None:
    """Return the first path rule that covers a file below a directory that the command reads recursively. `bases` are
    the directories the shell may be in. If the search takes too long, the rule counts as found."""
    if not rules:
        return None
    deadline = time.monotonic() + _SECONDS
    for command in commands:
        for root in _roots(command, places, bases):
            for rule in rules:
                if _holds(root, PathPattern(rule.content or ""), places, deadline):
                    return rule
    return None


def _roots(command: Command, places: Places, bases: Sequence[str]) -> list[str]:
    """Return the directories that a command reads recursively: all `bases` and those it names if they are unclear, none
    for other commands."""
    inner = effective(command)
    if inner is None or not _reads_through(inner):
        return []
    try:
        found = [path for word in _operands(inner) for path in resolve(word, places, bases)]
    except Unknown:
        return [*bases, *_directories(inner.words[1:], places, bases)]
    directories = [path for path in found if os.path.isdir(path)]
    return directories or ([] if inner.name == "diff" else list(bases))  # diff may compare two files


def _directories(words: Sequence[Word], places: Places, bases: Sequence[str]) -> list[str]:
    """Return the directories that any of the words may name."""
    found: list[str] = []
    for word in words:
        with contextlib.suppress(Unknown):
            found += [path for path in resolve(word, places, bases) if os.path.isdir(path)]
    return found


def _reads_through(command: Command) -> bool:
    texts = [word.text for word in command.words[1:]]
    if command.name == "find":
        return not all(map(is_pathless, started_by(command) or []))
    if command.name == "git":
        return "grep" in texts
    option = _WITH_OPTION.get(command.name)
    return command.name in _ALWAYS or (option is not None and any(map(option.match, texts)))


def _operands(command: Command) -> list[Word]:
    if command.name == "git":
        return []
    found = operands_read(command)
    return [word for word in found if not word.text.startswith("-")]


def _holds(root: str, pattern: PathPattern, places: Places, deadline: float) -> bool:
    below = root.casefold()
    for start, is_whole in pattern.starts(places):
        if is_under(start.casefold(), below):
            if os.path.lexists(start) and (is_whole or _finds(start, pattern, places, deadline)):
                return True
        elif is_under(below, start.casefold()) and not is_whole and _finds(root, pattern, places, deadline):
            return True
    return False


def _finds(top: str, pattern: PathPattern, places: Places, deadline: float) -> bool:
    matches = re.compile("|".join(pattern.expressions(places)), re.DOTALL).fullmatch
    left = _MAX_ENTRIES
    for directory, directories, files in os.walk(top):
        left -= len(directories) + len(files)
        if left < 0 or time.monotonic() > deadline:
            return True
        if any(matches(os.path.join(directory, name).casefold()) for name in (*directories, *files)):
            return True
    return False
