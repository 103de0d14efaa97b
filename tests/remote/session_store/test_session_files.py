"""The log of a daemon: private, and limited in size."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from ccb.remote.session_store import session_files


@pytest.fixture
def root() -> logging.Logger:
    return logging.getLogger()


def test_a_log_that_is_full_is_kept_once_and_begun_again(
    tmp_path: Path, root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_files, "_MAX_LOG", 200)
    path, before = tmp_path / "daemon.log", list(root.handlers)
    level = root.level
    try:
        session_files.log_to(str(path))
        for number in range(9):
            logging.info("line %d %s", number, "x" * 80)
    finally:
        root.setLevel(level)
        for handler in [each for each in root.handlers if each not in before]:
            root.removeHandler(handler)
            handler.close()
    old = path.with_name("daemon.log.1")
    assert sorted(tmp_path.iterdir()) == [path, old]
    numbers = [line.split()[5] for each in (old, path) for line in each.read_text().splitlines()]
    assert numbers == [str(number) for number in range(9)][-len(numbers) :] and len(numbers) >= 2
    assert {stat.S_IMODE(each.stat().st_mode) for each in (old, path)} == {0o600}
