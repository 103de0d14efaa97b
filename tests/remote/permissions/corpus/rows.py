"""Reads the corpus, and makes the project that its lines are about."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.remote.tools_kit import plant
from tests.support.worker.permission_desk import Desk

from ccb.remote.permissions.rules import Behavior

FILES = sorted(Path(__file__).parent.glob("*.txt"))
_SIGNS = str.maketrans({"␊": "\n", "␉": "\t", "␍": "\r", "␛": "\x1b"})
_SETTING = re.compile(r"(\w+)=")


@dataclass(frozen=True)
class Row:
    """One line of the corpus. `settings` are the words of its family: modes, allowed, disallowed, start."""

    place: str
    family: str
    settings: dict[str, str]
    expected: Behavior
    command: str


def rows(file: Path) -> Iterator[Row]:
    family, settings = "", {}
    for number, text in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if text.startswith("["):
            family, _, words = text[1:].partition("]")
            pieces = _SETTING.split(words.strip())[1:]
            settings = {name: value.strip() for name, value in zip(pieces[::2], pieces[1::2])}
        elif text.strip() and not text.startswith("#"):
            expected, _, command = text.partition(" ")
            line = command.lstrip(" ").translate(_SIGNS)
            yield Row(f"{file.name}:{number}", family, settings, Behavior(expected), line)


@functools.lru_cache(maxsize=1)
def _families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parents[1].glob("cases/*.txt")):
        for family in file.read_text(encoding="utf-8").split("== ")[1:]:
            name, _, lines = family.partition("\n")
            assert name not in found, name
            found[name] = [line.translate(_SIGNS) for line in lines.split("\n") if line]
    return found


def cases(family: str) -> list[str]:
    """Return the lines of a family in the files of `cases/`, where `== ` begins a family."""
    return list(_families()[family])


def pairs(family: str) -> list[tuple[str, str]]:
    """Return the lines of a family as what stands before and behind ` => `."""
    return [(line.split(" => ")[0], line.split(" => ")[1]) for line in cases(family)]


def make_project(root: Path) -> Desk:
    """Make a project with links: `link`, `-link`, `-`, `é` and `sub/same` lead to ../other/c, `out` to ../other, `l` to
    sub/inner/deep, `way` to secrets."""
    desk = Desk(root)
    plant(desk.cwd, *(f"{file}: x" for file in ("c", "secrets/key", "src/same", "sub/inner/deep/x", "all")))
    plant(desk.cwd, *(f"{link} -> {desk.root}/other/c" for link in ("link", "-link", "-", "é", "sub/same")))
    plant(desk.cwd, "out -> ../other", "l -> sub/inner/deep", "way -> secrets")
    return desk
