"""Children of the worker: own session, no input, nothing of ours in the environment, nothing left after a stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.remote.tools_kit import is_alive, until

from ccb.remote.system import process as processes
from ccb.remote.system.process import (
    MARK,
    Process,
    child_environment,
    marked,
    new_mark,
    start,
    stop_marked,
    without_ccb,
)


def _start(script: str, output: bytearray, cwd: Path, mark: str = "") -> Process:
    return start(["sh", "-c", script], str(cwd), child_environment(os.environ), output.extend, mark or new_mark())


async def _pid_from(output: bytearray) -> int:
    await until(lambda: output.endswith(b"\n"))
    return int(output.split()[-1])


async def test_output_comes_merged_and_in_order(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("echo one; echo two >&2; echo three; exit 7", output, tmp_path)
    assert await process.wait() == 7
    assert output == b"one\ntwo\nthree\n"
    await process.stop()


async def test_all_output_is_there_when_wait_returns(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("head -c 3000000 /dev/zero", output, tmp_path)
    await process.wait()
    assert len(output) == 3_000_000


async def test_input_is_empty_and_the_process_leads_its_own_session(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("cat; ps -o sid= -p $$; echo $$", output, tmp_path)
    await process.wait()
    sid, pid = output.split()
    assert sid == pid != str(os.getsid(0)).encode()


async def test_children_see_nothing_of_ours() -> None:
    env = child_environment({"ANTHROPIC_API_KEY": "k", "CCB_SESSION": "s", "PATH": "/bin", "LANG": "C"}, "m")
    assert not [name for name in env if name.startswith(("ANTHROPIC_", "CCB_")) and name != MARK]
    assert env[MARK] == "m"
    assert (env["PATH"], env["LANG"], env["TERM"]) == ("/bin", "C", "dumb")


async def test_no_child_is_led_to_an_editor_or_a_screen_where_it_would_wait() -> None:
    asking = ("SUDO_ASKPASS", "SSH_ASKPASS", "GIT_ASKPASS", "DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_TTY")
    editors = ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR")
    own = ("KUBE_EDITOR", "SYSTEMD_EDITOR", "MANPAGER", "AWS_PAGER")
    env = child_environment(dict.fromkeys((*asking, *editors, *own), "waits"))
    assert not {*asking, *own}.intersection(env)
    assert {env[name] for name in editors} == {"true"}
    assert env["GIT_SSH_COMMAND"] == "ssh -o BatchMode=yes"
    assert (env["SSH_ASKPASS_REQUIRE"], env["DEBIAN_FRONTEND"]) == ("never", "noninteractive")
    assert without_ccb({"DISPLAY": ":1", "CCB_X": "1"}) == {"DISPLAY": ":1"}, "a server's description may name it"


@pytest.mark.parametrize("name", ["GIT_SSH", "GIT_SSH_COMMAND"])
async def test_the_ssh_that_the_person_chose_for_git_stays(name: str) -> None:
    env = child_environment({name: "/opt/ssh"})
    assert {key: value for key, value in env.items() if key.startswith("GIT_SSH")} == {name: "/opt/ssh"}


async def test_no_variable_sends_cd_or_wildcards_elsewhere_than_where_commands_are_judged() -> None:
    names = ("CDPATH", "GLOBIGNORE", "BASHOPTS", "SHELLOPTS", "PWD", "OLDPWD")
    assert not set(names).intersection(child_environment({**dict.fromkeys(names, "/"), "PATH": "/bin"}))


async def test_stop_ends_grandchildren_that_ignore_sigterm_within_the_time_of_an_interrupt(tmp_path: Path) -> None:
    output = bytearray()
    script = "trap '' TERM; (trap '' TERM; echo $$ >/dev/null; exec sleep 300) & echo $!; wait"
    process = _start(script, output, tmp_path)
    child = await _pid_from(output)
    began = time.monotonic()
    await process.stop()
    assert time.monotonic() - began < 20
    assert process.returncode == -signal.SIGKILL
    await until(lambda: not is_alive(child))


async def test_a_polite_process_is_not_killed(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.01; done", output, tmp_path)
    await _pid_from(output)
    await process.stop()
    assert process.returncode == 0


async def test_stop_finds_what_has_left_the_process_group(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("setsid sh -c 'echo $$; exec sleep 300' & wait", output, tmp_path)
    child = await _pid_from(output)
    assert os.getpgid(child) != process.pid
    await process.stop()
    await until(lambda: not is_alive(child))


async def test_nothing_is_left_at_the_moment_stop_returns(tmp_path: Path) -> None:
    mark = new_mark()
    output = bytearray()
    deaf = "setsid sh -c 'trap \"\" TERM; echo $$; sleep 300 & sleep 300 & wait; wait'"
    process = _start(f"{deaf} & {deaf} & wait", output, tmp_path, mark)
    await until(lambda: output.count(b"\n") == 2 and len(marked(mark)) == 7)
    began = time.monotonic()
    await process.stop()
    assert marked(mark) == []
    assert time.monotonic() - began < 20


async def test_a_cancelled_stop_kills_at_once(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("trap '' TERM; echo $$; while :; do sleep 1; done", output, tmp_path)
    await _pid_from(output)
    stopping = asyncio.ensure_future(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await process.wait() == -signal.SIGKILL


async def test_what_a_process_leaves_in_the_background_does_not_hold_up_its_end(tmp_path: Path) -> None:
    output = bytearray()
    process = _start("sleep 300 & echo $!", output, tmp_path)
    began = time.monotonic()
    assert await process.wait() == 0
    assert time.monotonic() - began < 20
    child = int(output)
    assert process.has_leftovers()
    assert is_alive(child)
    await process.stop()
    await until(lambda: not is_alive(child))
    assert not process.has_leftovers()


async def test_marks_find_the_processes_of_one_session_only(tmp_path: Path) -> None:
    mine, other = new_mark(), new_mark()
    first, second = bytearray(), bytearray()
    own = _start("echo $$; exec sleep 300", first, tmp_path, new_mark(mine))
    foreign = _start("echo $$; exec sleep 300", second, tmp_path, new_mark(other))
    await _pid_from(first)
    await _pid_from(second)
    await stop_marked(mine)
    assert await own.wait() == -signal.SIGTERM
    assert foreign.returncode is None
    await foreign.stop()


async def test_a_long_environment_is_looked_at_whole(tmp_path: Path) -> None:
    output, mark = bytearray(), new_mark()
    env = {"FIRST": "x" * 100_000, **child_environment(os.environ)}
    process = start(["sleep", "60"], str(tmp_path), env, output.extend, mark)
    assert marked(mark) == [process.pid]
    await stop_marked(mark)
    assert await process.wait() == -signal.SIGTERM


async def test_a_session_that_has_left_nothing_looks_for_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    real = os.listdir

    def watched(path: str) -> list[str]:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", watched)
    await stop_marked(new_mark())
    assert listed == ["/proc"] * 2


async def test_ends_are_seen_without_pidfd_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_pidfd", lambda pid: -1)
    output = bytearray()
    process = _start("echo ok; exit 3", output, tmp_path)
    assert await process.wait() == 3
    assert output == b"ok\n"


async def test_a_program_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start(["/no/such/program"], str(tmp_path), {}, bytearray().extend)


async def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        process = _start("echo x", bytearray(), tmp_path)
        await process.wait()
        await process.stop()
    assert len(os.listdir("/proc/self/fd")) <= before
