"""Directories of a session: ours alone, short enough for a socket, and a second choice that is told."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccb.remote.session_store import session_files
from ccb.remote.session_store.session_paths import MAX_SOCKET_PATH, find_paths, private_directory

SESSION = str(uuid.UUID(int=7))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short directory with a home and a runtime directory that the environment names."""
    with tempfile.TemporaryDirectory(prefix="ccb-places-") as made:
        base = Path(made)
        for name in ("home", "run"):
            (base / name).mkdir(mode=0o700)
        monkeypatch.setenv("HOME", str(base / "home"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base / "run"))
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        yield base


def test_state_is_in_the_home_and_sockets_are_in_the_runtime_directory(short: Path) -> None:
    found = find_paths(SESSION)
    assert found.state == str(short / "home/.local/state/ccb/sessions" / SESSION)
    assert found.socket == str(short / "run/ccb" / (SESSION + ".sock"))
    assert found.durable
    assert found.notes == []
    for path in (found.state, found.runtime):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700


def test_parents_that_were_not_there_are_remembered(short: Path) -> None:
    find_paths(SESSION)
    state = short / "home/.local/state"
    assert (state / "ccb/.made").read_text().split("\n") == [str(state), str(state.parent)]
    assert not (short / "run/ccb/.made").exists()
    (state / "ccb/.made").unlink()
    find_paths(str(uuid.UUID(int=8)))
    assert not (state / "ccb/.made").exists()


def test_a_state_home_of_the_users_choice_is_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(short / "states"))
    assert find_paths(SESSION).state == str(short / "states/ccb/sessions" / SESSION)


def test_a_home_that_cannot_be_written_gives_state_that_does_not_last(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / "file").write_text("")
    monkeypatch.setenv("HOME", str(short / "file"))
    found = find_paths(SESSION)
    assert not found.durable
    assert found.state == str(short / "run/ccb/sessions" / SESSION)
    assert any(str(short / "file") in note for note in found.notes)


def test_a_runtime_directory_too_long_for_a_socket_is_passed_over(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = short / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    found = find_paths(SESSION)
    assert len(os.fsencode(found.socket)) <= MAX_SOCKET_PATH
    assert not found.runtime.startswith(str(long))
    assert any("too long" in note for note in found.notes)


def test_a_link_where_our_directory_should_be_is_not_followed(short: Path) -> None:
    (short / "elsewhere").mkdir()
    (short / "run/ccb").symlink_to(short / "elsewhere")
    found = find_paths(SESSION)
    assert not found.runtime.startswith(str(short / "run"))
    assert list((short / "elsewhere").iterdir()) == []


def test_a_directory_open_to_others_is_closed(short: Path) -> None:
    (short / "run/ccb").mkdir(mode=0o777)
    (short / "run/ccb").chmod(0o777)
    find_paths(SESSION)
    assert stat.S_IMODE((short / "run/ccb").stat().st_mode) == 0o700


def test_a_directory_of_another_user_is_refused(short: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    theirs = short / "run/ccb"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with pytest.raises(PermissionError):
        private_directory(str(theirs), str(short / "run"))
    assert not find_paths(SESSION).runtime.startswith(str(short / "run"))


def test_a_log_that_is_full_is_kept_once_and_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_files, "_MAX_LOG", 200)
    root, path = logging.getLogger(), tmp_path / "daemon.log"
    before = list(root.handlers)
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
