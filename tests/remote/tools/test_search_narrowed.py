"""A clone does not decide in silence what a search sees."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ccb.remote.tools.search.program.main import answer
from ccb.remote.tools.search.run_program import unsearched

BACKENDS = [("rg", "grep"), ("rg",), ("grep",), ()]


def searched(root: Path, backend: tuple[str, ...], **more: Any) -> dict[str, Any]:
    programs = {name: (shutil.which(name) or "") if name in backend else "" for name in ("rg", "grep")}
    fixed = {"before": 0, "after": 0, "numbers": True, "ignore_case": False, "multiline": False, "offset": 0}
    request = {"op": "grep", "root": str(root), "seconds": 60, "limit": 250, "globs": [], "pattern": "needle"}
    return answer({**request, **fixed, "mode": "files_with_matches", **programs, **more})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "clone"
    for name in ("seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("needle\n")
    (root / ".git").mkdir()
    return root


@pytest.mark.parametrize("backend", BACKENDS, ids="-".join)
@pytest.mark.parametrize("name", [".rgignore", ".ignore"])
@pytest.mark.parametrize("where", ["", "lib", ".."])
def test_no_ignore_file_of_a_program_hides_a_file(tree: Path, backend: tuple[str, ...], name: str, where: str) -> None:
    (tree / where / name).write_text("evil.py\n.rgignore\nout\n")
    found = searched(tree, backend)
    assert {"seen.py", "evil.py", "lib/evil.py", "lib/seen.py", "out/made.py"} <= set(found["items"])
    names = searched(tree, backend, op="glob", globs=["**/*.py"])
    assert len(names["items"]) == 5


@pytest.mark.parametrize("backend", BACKENDS, ids="-".join)
@pytest.mark.parametrize("more", [{}, {"globs": ["*.py"]}, {"op": "glob", "globs": ["**/*.py"]}], ids=str)
def test_what_gitignore_leaves_out_is_said(tree: Path, backend: tuple[str, ...], more: dict[str, Any]) -> None:
    (tree / ".gitignore").write_text("evil.py\nout/\n")
    found = searched(tree, backend, **more)
    assert sorted(found["items"]) == ["lib/seen.py", "seen.py"]
    assert unsearched(found) == ["(Not searched, because .gitignore leaves 3 entries out: evil.py, out, lib/evil.py.)"]
    (tree / ".gitignore").write_text("nothing\n")
    assert unsearched(searched(tree, backend, **more)) == []
