"""Whether the system ends what a login leaves running, as logind itself would read its files."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from ccb.remote.daemon.logout import bound_note, kills, move_out
from ccb.remote.session_store.session_paths import goes_at_logout, in_login_scope, lingers

USER = pwd.getpwuid(os.getuid()).pw_name
YES = "[Login]\nKillUserProcesses=yes\n"
NO = "[Login]\nKillUserProcesses=no\n"


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def answer(root: Path, user: str = "me") -> bool:
    return kills(user, str(root))


def test_without_any_setting_nothing_is_ended(tmp_path: Path) -> None:
    assert not answer(tmp_path)


@pytest.mark.parametrize("word", ["yes", "true", "1", "on", "Yes"])
def test_the_main_file_says_so(tmp_path: Path, word: str) -> None:
    put(tmp_path, "etc/systemd/logind.conf", f"# all\n[Login]\n#HandleLidSwitch=suspend\n KillUserProcesses = {word}\n")
    assert answer(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        NO,
        "KillUserProcesses=yes\n",
        "[Other]\nKillUserProcesses=yes\n",
        "[Login]\nKillUserProcesses=perhaps\n",
        "\0\xff[",
    ],
)
def test_what_logind_would_not_take_does_not_count(tmp_path: Path, text: str) -> None:
    put(tmp_path, "etc/systemd/logind.conf", text)
    assert not answer(tmp_path)


def test_a_comment_in_the_main_file_tells_the_default_of_this_build(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n")
    assert answer(tmp_path)
    put(tmp_path, "etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n#KillUserProcesses=yes\n")
    assert not answer(tmp_path)


def test_only_the_first_main_file_counts_and_drop_ins_win_in_the_order_of_their_names(tmp_path: Path) -> None:
    put(tmp_path, "usr/lib/systemd/logind.conf", YES)
    put(tmp_path, "etc/systemd/logind.conf", NO)
    assert not answer(tmp_path)
    put(tmp_path, "usr/lib/systemd/logind.conf.d/50-a.conf", YES)
    assert answer(tmp_path)
    put(tmp_path, "etc/systemd/logind.conf.d/40-b.conf", NO)
    assert answer(tmp_path), "40 comes before 50, whatever the directory"
    put(tmp_path, "run/systemd/logind.conf.d/60-c.conf", NO)
    assert not answer(tmp_path)
    put(tmp_path, "etc/systemd/logind.conf.d/60-c.conf", "")
    assert answer(tmp_path), "an empty file of the same name hides the one behind it"
    put(tmp_path, "etc/systemd/logind.conf.d/70-d.conf.bak", NO)
    assert answer(tmp_path)


def test_root_is_excluded_until_the_list_is_emptied(tmp_path: Path) -> None:
    put(tmp_path, "etc/systemd/logind.conf", YES)
    assert not answer(tmp_path, "root")
    put(tmp_path, "etc/systemd/logind.conf", YES + "KillExcludeUsers=\nKillExcludeUsers=ann me\n")
    assert [answer(tmp_path, user) for user in ("root", "me", "bob")] == [True, False, True]


def test_the_list_of_users_to_kill_limits_it_and_exclusion_goes_first(tmp_path: Path) -> None:
    put(tmp_path, "etc/systemd/logind.conf", YES + "KillOnlyUsers=ann bob\nKillExcludeUsers=bob\n")
    assert [answer(tmp_path, user) for user in ("ann", "bob", "me")] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", True),
        ("9:name=systemd:/user.slice/user-0.slice/session-c12.scope/sub\n0::/\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/ccb-1.scope\n", False),
        ("0::/system.slice/ssh.service\n", False),
        ("", False),
    ],
)
def test_a_login_is_known_by_its_scope(tmp_path: Path, text: str, expected: bool) -> None:
    put(tmp_path, "proc/self/cgroup", text)
    assert in_login_scope(str(tmp_path)) is expected


def test_who_lingers_keeps_the_runtime_directory(tmp_path: Path) -> None:
    mine = f"/run/user/{os.getuid()}"
    assert not in_login_scope(str(tmp_path))
    assert goes_at_logout(mine, str(tmp_path))
    assert not goes_at_logout("/run/user/somewhere", str(tmp_path))
    put(tmp_path, "var/lib/systemd/linger/another", "")
    assert not lingers(str(tmp_path))
    put(tmp_path, f"var/lib/systemd/linger/{USER}", "")
    assert lingers(str(tmp_path)) and not goes_at_logout(mine, str(tmp_path))


def test_the_note_says_what_to_do(tmp_path: Path) -> None:
    assert "loginctl enable-linger" in bound_note(str(tmp_path))
    assert "goes on from the journal" in bound_note(str(tmp_path))
    in_memory = bound_note(str(tmp_path), in_memory=True)
    assert "ends with the connection" in in_memory and "journal" not in in_memory and "enable-linger" in in_memory
    put(tmp_path, f"var/lib/systemd/linger/{USER}", "")
    assert "enable-linger" not in bound_note(str(tmp_path)) and "KillExcludeUsers" in bound_note(str(tmp_path))


@pytest.mark.parametrize("obeys", [True, False])
def test_who_lingers_is_moved_under_the_users_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    """busctl is played by a script that notes how it was called and, when it obeys, moves us."""
    put(tmp_path, "proc/self/cgroup", "0::/user.slice/user-1.slice/session-3.scope\n")
    script = tmp_path / "bin/busctl"
    move = f"echo 0::/user@1.service/ccb-s.scope > {tmp_path}/proc/self/cgroup" if obeys else "exit 1"
    put(tmp_path, "bin/busctl", f'#!/bin/sh\nPATH=/bin:/usr/bin\necho "$@" > {tmp_path}/called\n{move}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert not move_out("s", str(tmp_path))
    assert not (tmp_path / "called").exists(), "nothing is started for those who do not linger"
    put(tmp_path, f"var/lib/systemd/linger/{USER}", "")
    assert move_out("s", str(tmp_path)) is obeys
    assert f"ccb-s.scope fail 2 PIDs au 1 {os.getpid()} " in (tmp_path / "called").read_text()


def test_a_host_without_busctl_moves_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, f"var/lib/systemd/linger/{USER}", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not move_out("s", str(tmp_path))
