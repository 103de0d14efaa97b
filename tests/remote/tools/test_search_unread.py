"""What a search did not look at is said: not to find anything because nothing could be read is no answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox

from ccb.remote.tools.search.program.main import answer

Json = dict[str, Any]

_PROGRAM = """
import json, sys
from ccb.remote.tools.search.program.main import BadRequest, answer
for request in json.loads(sys.argv[1]):
    try:
        print(json.dumps(answer(request)))
    except BadRequest as error:
        print(json.dumps({"error": str(error)}))
"""
# Root reads everything. Without these two it is held to the modes of its own files, as everybody is.
_AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def _backends() -> list[Json]:
    """Every program of the host that helps, and none."""
    found = {name: shutil.which(name) or "" for name in ("rg", "grep")}
    assert all(found.values()), "`make test` installs them"
    return [{**found, "grep": ""}, {**found, "rg": ""}, {"rg": "", "grep": ""}, found]


def _glob(root: Path, **more: Any) -> Json:
    return {"op": "glob", "root": str(root), "seconds": 60, "limit": 250, "globs": ["*.py"], **more}


def _grep(pattern: str, root: Path, **more: Any) -> Json:
    fixed = {"before": 0, "after": 0, "numbers": True, "ignore_case": False, "multiline": False, "offset": 0}
    return {**_glob(root, op="grep", globs=[]), **fixed, "pattern": pattern, "mode": "files_with_matches", **more}


def _told(*requests: Json) -> list[Json]:
    """The one answer that somebody whom modes hold gets to each request, whatever program helps."""
    asked = [{**request, **backend} for request in requests for backend in _backends()]
    command = [*_AS_ANYBODY, sys.executable, "-c", _PROGRAM, json.dumps(asked)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120, env=env)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    count = len(_backends())
    for start in range(0, len(answers), count):
        assert all(each == answers[start] for each in answers[start : start + count]), asked[start]
    return answers[::count]


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with open_toolbox(tmp_path) as toolbox:
        yield toolbox
        if (toolbox.root / "closed").exists():
            (toolbox.root / "closed").chmod(0o755)


def test_files_and_directories_that_cannot_be_read_are_counted(box: Toolbox) -> None:
    for name in ("open.py", "shut.py", "shut.txt", "closed/in.py", "sub/deep/in.py"):
        box.write(name, "needle\n")
    for name in ("shut.py", "shut.txt", "closed"):
        (box.root / name).chmod(0)
    modes = ("files_with_matches", "content", "count")
    for found in _told(*(_grep("needle", box.root, mode=mode) for mode in modes)):
        assert (len(found["items"]), found["unread"]) == (2, 3)
    among, every, names = _told(
        _grep("need.*le", box.root, globs=["*.py"]), _grep(".", box.root, globs=["*.py"]), _glob(box.root)
    )
    assert (among["unread"], every["unread"]) == (2, 2), "what is not wanted is not missed"
    assert (len(names["items"]), names["unread"]) == (3, 1), "the name of a file can be seen without reading it"
    for name in ("shut.py", "shut.txt", "closed"):
        (box.root / name).chmod(0o755)
    assert _told(_grep("needle", box.root))[0]["unread"] == 0


def test_what_the_search_is_about_must_be_readable(box: Toolbox) -> None:
    box.write("shut.py", "needle\n").chmod(0)
    box.write("closed/in.py", "needle\n")
    (box.root / "closed").chmod(0)
    inside, one, names = _told(
        _grep("needle", box.root / "closed"), _grep("needle", box.root, file="shut.py"), _glob(box.root / "closed")
    )
    assert inside == names == {"error": f"{box.root}/closed: Permission denied"}
    assert one == {"error": f"{box.root}/shut.py: Permission denied"}


def test_what_goes_away_meanwhile_is_not_missed(box: Toolbox, tmp_path: Path) -> None:
    box.write("a.py", "needle\n")
    ghost = tmp_path / "rg"
    ghost.write_text("#!/bin/sh\nprintf './a.py\\0./gone.py\\0'\n")
    ghost.chmod(0o755)
    found = answer(_grep("needle", box.root, rg=str(ghost), grep=""))
    assert (found["items"], found["unread"]) == (["a.py"], 0)


LONG = 1_500_000


@pytest.mark.parametrize("mode", ["count", "content"])
async def test_a_line_that_is_not_searched_to_its_end_is_told(box: Toolbox, mode: str) -> None:
    box.write("late.txt", "a" * 2 * LONG + " LATENEEDLE\nshort LATENEEDLE\n")
    text = await box.text("Grep", pattern="LATENEEDLE", output_mode=mode)
    assert text.startswith("late.txt:1\n" if mode == "count" else "late.txt:2:short LATENEEDLE\n")
    assert text.endswith("\n(1 line over 1 MiB was searched only in the first MiB.)")
    text = await box.text("Grep", pattern="LATENEEDLE|nothing", output_mode="files_with_matches")
    assert text == "Found 1 file\nlate.txt", "that there is a match is sure"


async def test_no_line_is_told_of_that_cannot_hide_a_match(box: Toolbox) -> None:
    box.write("min.js", "needle" + "a" * 3 * LONG + "\n" + "a" * 3 * LONG + "\nend\n")
    assert await box.text("Grep", pattern="nowhere", output_mode="content") == "No matches found"
    text = await box.text("Grep", pattern="needle", output_mode="count")
    assert text == "min.js:1\n\nFound 1 matching lines in 1 files."


def test_lines_cut_are_counted_alike_by_every_backend(box: Toolbox) -> None:
    across = "a" * ((1 << 20) - 3) + "needle" + "a" * LONG
    box.write("across.txt", f"{across}\n")
    box.write("later.txt", "a" * 2 * LONG + "needle" + "a" * LONG)
    box.write("twice.txt", f"{'a' * 2 * LONG}\n{'a' * 2 * LONG}needle\nneedle\n")
    box.write("without.txt", "a" * 2 * LONG)
    found, every = _told(_grep("needle", box.root, mode="count"), _grep("x|y", box.root, mode="count"))
    assert (found["items"], found["cut"]) == (["twice.txt:1"], 3)
    assert every["cut"] == 5, "no text that a match must hold"


async def test_the_length_of_a_line_is_not_made_up(box: Toolbox) -> None:
    box.write("wide", "x" * 2 * LONG + "\nneedle " + "y" * 1000 + "\n")
    first, second = (await box.text("Grep", pattern="xx|needle", output_mode="content")).split("\n")[:2]
    assert first.endswith("… [line cut: 1,048,576 characters or more]")
    assert second.endswith("… [line cut: 1,007 characters]")


async def test_a_file_too_large_for_several_lines_at_once_is_told(box: Toolbox) -> None:
    with open(box.write("large", "needle\n"), "r+b") as file:
        file.truncate(33 << 20)
    text = await box.text("Grep", pattern="needle.", multiline=True)
    assert text == "No files found\n(1 file over 32 MiB was not searched: multiline is on.)"


async def test_the_model_reads_it_below_the_result(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("open.py", "needle\n")
    for name in ("shut.py", "closed/in.py"):
        box.write(name, "needle\n")
    (box.root / "shut.py").chmod(0)
    (box.root / "closed").chmod(0)
    start = box.context.host.start
    monkeypatch.setattr(box.context.host, "start", lambda argv, *rest, cage: start([*_AS_ANYBODY, *argv], *rest))
    note = "(2 files or directories could not be read.)"
    assert await box.text("Grep", pattern="needle") == f"Found 1 file\nopen.py\n{note}"
    assert await box.text("Grep", pattern="nothing") == f"No files found\n{note}"
    names = await box.text("Glob", pattern="*.py", path=str(box.root))
    assert names.endswith("\n(1 file or directory could not be read.)")
    assert "closed: Permission denied" in await box.error("Grep", pattern="needle", path="closed")
    assert "shut.py: Permission denied" in await box.error("Grep", pattern="needle", path="shut.py")
    assert "closed: Permission denied" in await box.error("Glob", pattern="*", path="closed")
