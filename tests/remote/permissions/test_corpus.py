"""The corpus: command lines in families, each with its expected judgement, in the files of `corpus/`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.permission_desk import Desk, bash

from ccb.remote.permissions.decision import Behavior

_FILES = sorted((Path(__file__).parent / "corpus").glob("*.txt"))
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


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A project with links: `link`, `-link`, `-`, `é` and `sub/same` lead to ../other/c, `out` to ../other, `l` to
    sub/inner/deep, `way` to secrets."""
    desk = Desk(tmp_path_factory.mktemp("corpus"))
    for directory in ("sub/inner/deep", "secrets"):
        (desk.cwd / directory).mkdir(parents=True)
    for file in ("c", "secrets/key", "src/same", "sub/inner/deep/x", "all"):
        (desk.cwd / file).write_text("x\n")
    for link in ("link", "-link", "-", "é", "sub/same"):
        os.symlink(desk.root / "other/c", desk.cwd / link)
    os.symlink("../other", desk.cwd / "out")
    os.symlink("sub/inner/deep", desk.cwd / "l")
    os.symlink("secrets", desk.cwd / "way")
    return desk


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_each_line_is_judged_as_expected(desk: Desk, file: Path) -> None:
    wrong = []
    for row in rows(file):
        for mode in row.settings.get("modes", "default").split(","):
            rules = row.settings.get("allowed", ""), row.settings.get("disallowed", "")
            start = row.settings.get("start", "")
            found = bash(desk.engine(mode, *rules), row.command, shell_cwd=str(desk.cwd / start) if start else "")
            if found.behavior is not row.expected:
                wrong.append(
                    f"{row.place} ({row.family}, {mode}): {row.command!r} is {found.behavior.value}, not "
                    f"{row.expected.value}: {found.reason}"
                )
    assert wrong == [], "\n".join(wrong)


def test_the_corpus_is_large_and_every_line_is_in_it_once() -> None:
    every = [(row.family, row.command) for file in _FILES for row in rows(file)]
    assert len(every) >= 500
    assert len(every) == len(set(every))
