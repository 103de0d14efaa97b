"""What the tests of headless runs have in common."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "greet.txt").write_text("hello wrold\n")
    return path
