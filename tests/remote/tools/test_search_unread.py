"""What a search did not look at is said: not to find anything because nothing could be read is no answer."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools.search_kit import BACKENDS, Json, each_backend, glob, grep
from tests.remote.tools.test_bash import in_background
from tests.remote.tools_kit import Toolbox, open_toolbox, write
from tests.support.machine.programs import shell_script

from ccb.remote.search_program import scan
from ccb.remote.search_program.search_main import answer
from ccb.remote.tools import search_tools
from ccb.remote.tools.bash import narrowing_note
from ccb.remote.tools.search_process import search_command

# Root reads everything. Without these two it is held to the modes of its own files, as everybody is.
_AS_ANYBODY = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def _run(asked: Json, most: str = "unlimited") -> Json:
    """Return the answer of the program in a process that modes hold, and that may take only so much memory (KiB)."""
    limited = [*_AS_ANYBODY, "sh", "-c", 'ulimit -d "$0"; exec "$@"', most]
    done = subprocess.run([*limited, *search_command(asked)], stdout=subprocess.PIPE, check=True, timeout=120)
    found: Json = json.loads(done.stdout)
    return found


def _told(request: Json) -> Json:
    """Return the answer of the program, which is the same whatever program helps."""
    with_ripgrep, without = (_run({**request, **backend}) for backend in BACKENDS)
    assert with_ripgrep == without
    return without


def test_files_and_directories_that_cannot_be_read_are_counted(box: Toolbox) -> None:
    for name in ("open.py", "shut.py", "shut.txt", "closed/in.py", "sub/deep/in.py"):
        box.write(name, "needle\n")
    for name in ("shut.py", "shut.txt", "closed"):
        (box.root / name).chmod(0)
    for mode in ("files_with_matches", "content", "count"):
        found = _told(grep("needle", box.root, mode=mode))
        assert (len(found["items"]), found["notes"]) == (2, ["(3 files or directories could not be read.)"])
    for pattern in ("need.*le", "."):
        found = _told(grep(pattern, box.root, globs=["*.py"]))
        assert found["notes"] == ["(2 files or directories could not be read.)"], "what is not wanted is not missed"
    names = _told(glob(box.root))
    assert len(names["items"]) == 3, "the name of a file can be seen without reading it"
    assert names["notes"] == ["(1 file or directory could not be read.)"]
    for name in ("shut.py", "shut.txt", "closed"):
        (box.root / name).chmod(0o755)
    assert _told(grep("needle", box.root))["notes"] == []


@each_backend
def test_what_of_a_line_is_unsearched_is_told(box: Toolbox, monkeypatch: pytest.MonkeyPatch, backend: Json) -> None:
    monkeypatch.setattr(scan, "MAX_LINE", 1 << 20)
    far = "ä" * 700_000 + " needle" + "b" * 700_000
    box.write("far.txt", f"first\n{far}\nshort needle\n")
    box.write("near.txt", "needle" + far)
    box.write("without.txt", "a" * 900_000 + "\n")
    found = answer(grep("needle", box.root, mode="content", **backend))
    *near, short = found["items"][::-1]
    assert short == "far.txt:3:short needle" and near[0].startswith("near.txt:1:needleää")
    assert found["notes"] == ["(1 line over 16 MiB was not searched to the end.)"]
    every = answer(grep("^b|x$", box.root, mode="count", **backend))
    assert every["items"] == [], "neither the start of a part nor its end is that of a line"


async def test_a_match_far_behind_in_a_line_is_named_with_its_file_and_column(box: Toolbox) -> None:
    box.write("late.txt", "first\n" + "ä" * 3_000_000 + " LATENEEDLE" + "b" * 1_500_000 + "\nfirst " + "y" * 1000)
    text, second = (await box.text("Grep", pattern="LATENEEDLE|first ", output_mode="content")).split("\n")
    assert text.startswith("late.txt:2:…ää") and " LATENEEDLEbb" in text and len(text) < 700
    assert text.endswith("… [line cut: 4,500,011 characters; the match is at column 3,000,002]")
    assert second.endswith("y… [line cut: 1,006 characters]")


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
    (box.root / "closed").chmod(0o755)


async def test_a_pattern_that_explodes_in_one_file_loses_nothing_elsewhere_and_names_it(box: Toolbox) -> None:
    for name in ("a.txt", "z.txt"):
        box.write(name, "aaaab needle\n")
    box.write("m\udce9.txt", "aab one\n" + "a" * 60 + "\naab two\n")
    found = "a.txt:1:aaaab needle\nm\\xe9.txt:1:aab one\nz.txt:1:aaaab needle"
    text = await box.text("Grep", pattern="(a+)+b", output_mode="content")
    assert text == f"{found}\n(A pattern takes too long in m\\xe9.txt: the rest was not searched.)"


@pytest.mark.quick_rows(1)
@each_backend
def test_a_pattern_of_names_that_explodes_loses_no_other_name(box: Toolbox, backend: Json) -> None:
    for name in ("ab", "a" * 200, "zab"):
        box.write(name, "needle\n")
    box.write("ignored/.gitignore", f"{'*a' * 9}*b\n")
    box.write(f"ignored/{'a' * 201}", "needle\n")
    (box.root / ".git").mkdir()
    more = {"globs": ["*a" * 8 + "*b", "ab", "zab"], **backend}
    for asked in (glob(box.root, **more), grep("needle", box.root, **more)):
        found = _run(asked)
        assert sorted(found["items"]) == ["ab", "zab"]
        slow = re.findall(r"(\w{3})\w*(?=[,:])", found["notes"][-1].partition(" in ")[2])
        assert set(slow) == {"aaa"}, found["notes"]


@pytest.mark.thorough
async def test_a_filter_that_explodes_gives_what_it_has_found(box: Toolbox) -> None:
    await (await in_background(box, f"echo aab; echo {'a' * 60}")).task.over.wait()
    text = await box.text("BashOutput", bash_id="bash_1", filter="(a+)+b")
    assert "aab\n[The filter takes too long; there may be more lines]" in text


async def test_a_search_that_is_out_of_time_says_in_which_file(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_tools, "SECONDS", 1.0)
    box.write("a.txt", "aab\n")
    box.write("m\udce9.txt", "a" * 60 + "\n")
    text = await box.text("Grep", pattern="(a+)+b", output_mode="content")
    assert text == "a.txt:1:aab\n[The search was stopped after 1 s, in m\\xe9.txt; there may be more matches]"


@pytest.mark.thorough
def test_one_enormous_line_costs_no_program_its_size(box: Toolbox) -> None:
    with box.write("huge.txt", "x" * 10_000).open("r+b") as file:
        file.seek(150_000_000)
        file.write(b"needle\n")
    box.write("small.txt", "needle\n")
    for more in (*BACKENDS, {**BACKENDS[0], "globs": ["*.txt"]}):
        found = _run(grep("needle", box.root, mode="content", **more), most="120000")
        assert (found["items"], len(found["notes"])) == (["small.txt:1:needle"], 1)


def test_what_a_search_starts_is_limited_and_what_it_has_found_counts_when_it_fails(box: Toolbox) -> None:
    box.write("a.py", "needle\n")
    program = shell_script(box.root / "../bin/rg", "cat /proc/$$/limits >../limits\nprintf './a.py\\0'; kill -9 $$")
    found = _run(grep("needle", box.root, rg=str(program)))
    assert found["items"] == ["a.py"]
    limits = (box.root / "../limits").read_text()
    assert re.search(r"Max data size +1073741824 +1073741824", limits)
    assert re.search(r"Max cpu time +300 +300", limits)


def searched(root: Path, backend: Json, **more: Any) -> Json:
    return answer(grep("needle", root, **backend, **more))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for name in ("seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"):
        write(root / name, "needle\n")
    (root / ".git").mkdir()
    return root


@each_backend
@pytest.mark.parametrize("name", [".rgignore", ".ignore"])
@pytest.mark.parametrize("where", ["", "lib", ".."])
def test_no_ignore_file_of_a_program_hides_a_file(tree: Path, backend: Json, name: str, where: str) -> None:
    (tree / where / name).write_text("evil.py\n.rgignore\nout\n")
    found = searched(tree, backend)
    assert {"seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"} <= set(found["items"])
    names = searched(tree, backend, op="glob", globs=["**/*.py"])
    assert len(names["items"]) == 5


@each_backend
@pytest.mark.parametrize("more", [{}, {"globs": ["*.py"]}, {"op": "glob", "globs": ["**/*.py"]}], ids=str)
def test_what_gitignore_leaves_out_is_said(tree: Path, backend: Json, more: Json) -> None:
    (tree / ".gitignore").write_text("evil.py\nout/\n")
    found = searched(tree, backend, **more)
    assert sorted(found["items"]) == ["lib/seen.py", "seen.py"]
    assert found["notes"] == ["(Not searched, because .gitignore leaves 3 entries out: evil.py, out, lib/evil.py.)"]
    (tree / ".gitignore").write_text("nothing\n")
    assert searched(tree, backend, **more)["notes"] == []


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("rg needle", "rg left out what a/b/.ignore, .rgignore"),
        ("cd . && rg needle | head", "rg left out what "),
        ("rg needle a/b", "rg left out what a/b/.ignore, .rgignore"),
        ("rg needle c; echo", "rg left out what "),
        ("fd needle", "fd left out what a/b/.ignore of"),
        ("/usr/bin/rg 'x;y'", "rg left out what "),
        ("rg --no-ignore needle", ""),
        ("rg -uu needle", ""),
        ("grep -r needle .", ""),
        ("cargo build", ""),
    ],
)
def test_a_search_of_a_command_that_the_project_narrows_is_told(command: str, named: str, tmp_path: Path) -> None:
    files = {".rgignore": "a\n", "a/b/.ignore": "*\n", "c/.ignore": "# nothing\n", ".gitignore": "x\n"}
    for path, text in files.items():
        write(tmp_path / path, text)
    note = narrowing_note(command, str(tmp_path), [str(tmp_path)])
    told = note.replace(".rgignore, a/b/.ignore", "a/b/.ignore, .rgignore")
    assert named in told and bool(named) is bool(told)


async def test_the_model_is_told_in_the_result_of_the_command(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        box.write(".rgignore", "secret\n")
        box.write("secret", "needle\n")
        said = await box.text("Bash", command="rg needle; true")
        assert said.splitlines()[-1] == "(rg left out what .rgignore of the project names; --no-ignore shows all.)"
        await (await in_background(box, "rg needle; true")).process.wait()
        assert "rg left out what .rgignore" in await box.text("BashOutput", bash_id="bash_1")


@pytest.mark.parametrize("more", [{}, {"op": "glob", "globs": ["**/*.py"]}], ids=["grep", "glob"])
@each_backend
@pytest.mark.parametrize(
    ("where", "kind"),
    [
        *itertools.product(["", "lib"], ["pipe", "/dev/zero", "/dev/urandom", ".gitignore"]),
        ("", "large"),
        ("", "many lines"),
    ],
)
def test_an_odd_gitignore_blinds_no_search(tree: Path, backend: Json, where: str, kind: str, more: Json) -> None:
    path = tree / where / ".gitignore"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("evil.py\n" * (1 << 18))
    elif kind == "many lines":
        path.write_text("".join(f"*x{number}*y*z*\n" for number in range(80_000)))
    else:
        path.symlink_to(kind)
    started = time.monotonic()
    found = searched(tree, backend, seconds=20, **{"globs": ["*.py"], **more})
    assert time.monotonic() - started < 8
    assert (len(found["items"]), found["partial"]) == (5, False)
    (note,) = found["notes"]
    assert note.startswith("(Not obeyed, being unreadable, ") and note.endswith(f": {path}.)")


@pytest.mark.parametrize("more", [{}, {"op": "glob", "globs": ["**/*.py"]}], ids=["grep", "glob"])
@each_backend
def test_a_gitignore_above_a_project_counts_only_if_others_cannot_put_it(tree: Path, backend: Json, more: Json) -> None:
    (tree / ".gitignore").write_text("*.py\n")
    (tree / "lib").chmod(0o755)
    assert searched(tree / "lib", backend, **more)["items"] == []
    tree.chmod(0o1777)
    assert len(searched(tree / "lib", backend, **more)["items"]) == 2
    assert searched(tree / "lib", backend, **more, project=[str(tree)])["items"] == []
    tree.chmod(0o775)
    os.chown(tree, -1, 4711) if os.geteuid() == 0 else None
    assert len(searched(tree / "lib", backend, **more)["items"]) == (2 if os.geteuid() == 0 else 0)
