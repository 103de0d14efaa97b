"""Requests to the search program, and the programs of a host that may help it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]


def ripgrep() -> str:
    found = shutil.which("rg")
    assert found, "rg is needed here: `make test` installs it"
    return found


BACKENDS: list[Json] = [{"rg": shutil.which("rg") or ""}, {"rg": ""}]
each_backend = pytest.mark.parametrize("backend", BACKENDS, ids=["rg", "none"])


def glob(root: Path, **more: Any) -> Json:
    return {"op": "glob", "root": str(root), "seconds": 60, "limit": 250, "globs": ["*.py"], "rg": "", **more}


def grep(pattern: str, root: Path, **more: Any) -> Json:
    fixed = {"before": 0, "after": 0, "numbers": True, "ignore_case": False, "multiline": False, "offset": 0}
    return {**glob(root, op="grep", globs=[]), **fixed, "pattern": pattern, "mode": "files_with_matches", **more}
