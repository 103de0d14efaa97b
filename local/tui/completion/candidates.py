"""The slash commands that fit what is typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One command. `name` is without its slash, `hint` shows its arguments, `does` explains it. `on_host`: the worker
    carries it out. All texts can be shown."""

    name: str
    hint: str
    does: str
    on_host: bool = False


def fitting(typed: str, commands: Iterable[Candidate]) -> Sequence[Candidate]:
    """Return the commands that the text in the composer may become: those that begin with it, then those that contain
    it, each sorted by name. [] if it is not the first word of a command."""
    if not typed.startswith("/") or any(char.isspace() or char == "/" for char in typed[1:]):
        return []
    word = typed[1:].lower()
    ordered = sorted(commands, key=lambda each: each.name)
    begin = [each for each in ordered if each.name.lower().startswith(word)]
    return begin + [each for each in ordered if word in each.name.lower() and each not in begin]
