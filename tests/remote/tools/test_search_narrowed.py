"""A clone does not decide in silence what a search sees."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import open_toolbox

from ccb.remote.search_program.search_main import answer
from ccb.remote.tools.bash import narrowing_note
from ccb.remote.tools.search_process import unsearched

BACKENDS = ["rg", ""]


def searched(root: Path, backend: str, **more: Any) -> dict[str, Any]:
    program = (shutil.which(backend) or "") if backend else ""
    fixed = {"before": 0, "after": 0, "numbers": True, "ignore_case": False, "multiline": False, "offset": 0}
    request = {"op": "grep", "root": str(root), "seconds": 60, "limit": 250, "globs": [], "pattern": "needle"}
    return answer({**request, **fixed, "mode": "files_with_matches", "rg": program, **more})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for name in ("seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")
    (root / ".git").mkdir()
    return root


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [".rgignore", ".ignore"])
@pytest.mark.parametrize("where", ["", "lib", ".."])
def test_no_ignore_file_of_a_program_hides_a_file(tree: Path, backend: str, name: str, where: str) -> None:
    (tree / where / name).write_text("evil.py\n.rgignore\nout\n")
    found = searched(tree, backend)
    assert {"seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"} <= set(found["items"])
    names = searched(tree, backend, op="glob", globs=["**/*.py"])
    assert len(names["items"]) == 5


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("more", [{}, {"globs": ["*.py"]}, {"op": "glob", "globs": ["**/*.py"]}], ids=str)
def test_what_gitignore_leaves_out_is_said(tree: Path, backend: str, more: dict[str, Any]) -> None:
    (tree / ".gitignore").write_text("evil.py\nout/\n")
    found = searched(tree, backend, **more)
    assert sorted(found["items"]) == ["lib/seen.py", "seen.py"]
    assert unsearched(found) == ["(Not searched, because .gitignore leaves 3 entries out: evil.py, out, lib/evil.py.)"]
    (tree / ".gitignore").write_text("nothing\n")
    assert unsearched(searched(tree, backend, **more)) == []


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
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    note = narrowing_note(command, str(tmp_path), [str(tmp_path)])
    told = note.replace(".rgignore, a/b/.ignore", "a/b/.ignore, .rgignore")
    assert named in told and bool(named) is bool(told)


async def test_the_model_is_told_in_the_result_of_the_command(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        box.write(".rgignore", "secret\n")
        box.write("secret", "needle\n")
        said = await box.text("Bash", command="rg needle; true")
        assert said.splitlines()[-1] == "(rg left out what .rgignore of the project names; --no-ignore shows all.)"
        await box.text("Bash", command="rg needle; true", run_in_background=True)
        shell = box.context.shells.get("bash_1")
        assert shell is not None
        await shell.process.wait()
        assert "rg left out what .rgignore" in await box.text("BashOutput", bash_id="bash_1")


@pytest.mark.parametrize("more", [{}, {"op": "glob", "globs": ["**/*.py"]}], ids=["grep", "glob"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("where", "kind"),
    [
        *itertools.product(["", "lib"], ["pipe", "/dev/zero", "/dev/urandom", ".gitignore"]),
        ("", "large"),
        ("", "many lines"),
    ],
)
def test_what_is_no_regular_gitignore_blinds_no_search(
    tree: Path, backend: str, where: str, kind: str, more: dict[str, Any]
) -> None:
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
    assert found["unobeyed"] == {"count": 1, "named": [str(path)]}
    assert any(str(path) in note for note in unsearched(found))


@pytest.mark.parametrize("more", [{}, {"op": "glob", "globs": ["**/*.py"]}], ids=["grep", "glob"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gitignore_above_the_project_counts_only_where_others_cannot_put_it(
    tree: Path, backend: str, more: dict[str, Any]
) -> None:
    (tree / ".gitignore").write_text("*.py\n")
    (tree / "lib").chmod(0o755)
    assert searched(tree / "lib", backend, **more)["items"] == []
    tree.chmod(0o1777)
    assert len(searched(tree / "lib", backend, **more)["items"]) == 2
    assert searched(tree / "lib", backend, **more, project=[str(tree)])["items"] == []
    tree.chmod(0o775)
    os.chown(tree, -1, 4711) if os.geteuid() == 0 else None
    assert len(searched(tree / "lib", backend, **more)["items"]) == (2 if os.geteuid() == 0 else 0)
