"""The corpus: command lines in families, each with its expected judgement, in the files of `corpus/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remote.permissions.corpus.rows import FILES, make_project, rows
from tests.support.worker.permission_desk import Desk, bash


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return make_project(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
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
    every = [(row.family, row.command) for file in FILES for row in rows(file)]
    assert len(every) >= 500
    assert len(every) == len(set(every))
