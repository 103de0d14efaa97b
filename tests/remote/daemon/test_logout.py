"""Whether logind ends what a login leaves running, and how a daemon leaves the login. A script plays busctl."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccb.remote.daemon.logout import bound_note, kills, move_out
from ccb.remote.session_store.session_paths import goes_at_logout, in_login_scope, lingers, user_name


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def busctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    put(tmp_path, "bin/busctl", "")
    (tmp_path / "bin/busctl").chmod(0o700)
    return tmp_path / "bin/busctl"


@pytest.mark.parametrize(
    ("said", "killed"),
    [
        ('b true\nas 0\nas 1 "root"', ["ann", "bob"]),
        ('b false\nas 0\nas 1 "root"', []),
        ("b true\nas 0\nas 0", ["ann", "bob", "root"]),
        ('b true\nas 2 "ann" "bob"\nas 1 "bob"', ["ann"]),
        ("", []),
        ("b true", []),
    ],
)
def test_logind_says_whose_processes_it_kills(busctl: Path, said: str, killed: list[str]) -> None:
    busctl.write_text(f"#!/bin/sh\necho '{said}'\n")
    assert [user for user in ("ann", "bob", "root") if kills(user)] == killed


def test_a_host_without_logind_kills_nobody(busctl: Path) -> None:
    busctl.write_text("#!/bin/sh\necho 'b true\nas 0\nas 0'; exit 1\n")
    assert not kills("ann")
    busctl.unlink()
    assert not kills("ann")


def test_a_login_is_known_by_its_scope(tmp_path: Path) -> None:
    for text, expected in (
        ("0::/user.slice/user-1000.slice/session-3.scope\n", True),
        ("9:name=systemd:/user.slice/user-0.slice/session-c12.scope/sub\n0::/\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/ccb-1.scope\n", False),
        ("0::/system.slice/ssh.service\n", False),
        ("", False),
    ):
        put(tmp_path, "proc/self/cgroup", text)
        assert in_login_scope(str(tmp_path)) is expected


def test_who_lingers_keeps_the_runtime_directory(tmp_path: Path) -> None:
    mine = f"/run/user/{os.getuid()}"
    assert not in_login_scope(str(tmp_path))
    assert goes_at_logout(mine, str(tmp_path))
    assert not goes_at_logout("/run/user/somewhere", str(tmp_path))
    put(tmp_path, "var/lib/systemd/linger/another", "")
    assert not lingers(str(tmp_path))
    put(tmp_path, f"var/lib/systemd/linger/{user_name()}", "")
    assert lingers(str(tmp_path)) and not goes_at_logout(mine, str(tmp_path))


def test_the_note_says_what_to_do(tmp_path: Path) -> None:
    assert "loginctl enable-linger" in bound_note(str(tmp_path))
    assert "goes on from the journal" in bound_note(str(tmp_path))
    in_memory = bound_note(str(tmp_path), in_memory=True)
    assert "ends with the connection" in in_memory and "journal" not in in_memory and "enable-linger" in in_memory
    put(tmp_path, f"var/lib/systemd/linger/{user_name()}", "")
    assert "enable-linger" not in bound_note(str(tmp_path)) and "KillExcludeUsers" in bound_note(str(tmp_path))


@pytest.mark.parametrize("obeys", [True, False])
def test_who_lingers_is_moved_under_the_users_manager(busctl: Path, tmp_path: Path, obeys: bool) -> None:
    """The script notes how it was called and, when it obeys, moves us."""
    put(tmp_path, "proc/self/cgroup", "0::/user.slice/user-1.slice/session-3.scope\n")
    move = f"echo 0::/user@1.service/ccb-s.scope > {tmp_path}/proc/self/cgroup" if obeys else "exit 1"
    busctl.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n{move}\n')
    assert not move_out("s", str(tmp_path))
    assert not (tmp_path / "called").exists(), "nothing is started for those who do not linger"
    put(tmp_path, f"var/lib/systemd/linger/{user_name()}", "")
    assert move_out("s", str(tmp_path)) is obeys
    assert f"ccb-s.scope fail 2 PIDs au 1 {os.getpid()} " in (tmp_path / "called").read_text()
    busctl.unlink()
    assert not move_out("s", str(tmp_path))
