"""A key that a test leaves behind is found, wherever it stands, and fails that test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.model import canaries
from tests.support.model.canaries import KEY, keys_in, keys_left_by_workers

LEAVES_IT = """
from tests.support.model.fake_model import API_KEY

def test_file(tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "journal.jsonl").write_text("x" * 3_000_000 + API_KEY)

def test_output():
    print(API_KEY)

def test_none(tmp_path):
    (tmp_path / "keyring.json").write_text(API_KEY)
"""


def test_a_key_is_found_across_the_pieces_in_which_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canaries, "_PIECE", 110)
    (tmp_path / "log").write_bytes(b"x" * 100 + KEY + b"y" * 300)
    (tmp_path / "other").write_bytes(KEY[:-1])
    (found,) = keys_in(tmp_path)
    assert found.startswith("log: ")


def test_what_a_worker_leaves_outside_of_a_test_is_searched(tmp_path: Path) -> None:
    for name in ("ccb-7/sessions", "ccb-7-0011", "ccb-8"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "log").write_bytes(KEY)
    first, second = keys_left_by_workers(tmp_path, 7)
    assert first.startswith(f"{tmp_path}/ccb-7/sessions/log: ") and second.startswith(f"{tmp_path}/ccb-7-0011/log: ")


def test_a_test_that_leaves_or_prints_the_key_fails(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "conftest.py").write_bytes((root / "tests" / "conftest.py").read_bytes())
    (tmp_path / "test_leaving.py").write_text(LEAVES_IT)
    arguments = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--basetemp", str(tmp_path / "made"), "--rootdir", "."]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}:{root / 'src'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.splitlines()[-1].startswith("3 passed, 2 errors in"), run.stdout
