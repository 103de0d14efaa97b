"""Children of the worker: own session, no input, nothing of ours in the environment, nothing left after a stop."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.remote.tools_kit import is_alive, until

from ccb.remote.sandbox import server
from ccb.remote.sandbox.kernel import supervisor
from ccb.remote.sandbox.rules import workspace_rules
from ccb.remote.system.host import LocalHost
from ccb.remote.system.process import MARK, Process, child_environment, marked, new_mark, stop_marked, without_ccb


@pytest.fixture
def host() -> Iterator[LocalHost]:
    with contextlib.closing(LocalHost()) as made:
        yield made


async def _start(host: LocalHost, script: str, output: bytearray, cwd: Path) -> Process:
    return await host.start(["sh", "-c", script], str(cwd), output.extend)


async def _pid_from(output: bytearray) -> int:
    await until(lambda: output.endswith(b"\n"))
    return int(output.split()[-1])


async def test_output_comes_merged_and_in_order(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "echo one; echo two >&2; echo three; exit 7", output, tmp_path)
    assert await process.wait() == 7
    assert output == b"one\ntwo\nthree\n"
    await process.stop()


async def test_all_output_is_there_when_wait_returns(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "head -c 3000000 /dev/zero", output, tmp_path)
    await process.wait()
    assert len(output) == 3_000_000


async def test_input_is_empty_and_the_process_leads_its_own_session(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "cat; ps -o sid= -p $$; echo $$", output, tmp_path)
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


async def test_stop_kills_what_has_been_asked_to_end_and_does_not(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    script = "trap 'echo asked' TERM; (trap '' TERM; exec sleep 300) & echo $!; while :; do wait; done"
    process = await _start(host, script, output, tmp_path)
    child = await _pid_from(output)
    await process.stop()
    assert output.split()[1:] == [b"asked"]
    assert process.returncode == -signal.SIGKILL
    await until(lambda: not is_alive(child))


async def test_a_polite_process_is_not_killed(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(
        host, "trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.01; done", output, tmp_path
    )
    await _pid_from(output)
    await process.stop()
    assert process.returncode == 0


async def test_stop_finds_what_has_left_the_process_group(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "setsid sh -c 'echo $$; exec sleep 300' & wait", output, tmp_path)
    child = await _pid_from(output)
    assert os.getpgid(child) != process.pid
    await process.stop()
    await until(lambda: not is_alive(child))


async def test_nothing_is_left_at_the_moment_stop_returns(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    deaf = "setsid sh -c 'trap \"\" TERM; echo $$; sleep 300 & sleep 300 & wait; wait'"
    process = await _start(host, f"{deaf} & {deaf} & wait", output, tmp_path)
    await until(lambda: output.count(b"\n") == 2 and len(marked(host.session)) == 7)
    began = time.monotonic()
    await process.stop()
    assert marked(host.session) == []
    assert time.monotonic() - began < 20


async def test_a_cancelled_stop_kills_at_once(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "trap '' TERM; echo $$; while :; do sleep 1; done", output, tmp_path)
    await _pid_from(output)
    stopping = asyncio.ensure_future(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await process.wait() == -signal.SIGKILL
    await process.gone()


async def test_what_a_process_leaves_in_the_background_does_not_hold_up_its_end(
    host: LocalHost, tmp_path: Path
) -> None:
    output = bytearray()
    process = await _start(host, "sleep 300 & echo $!", output, tmp_path)
    began = time.monotonic()
    assert await process.wait() == 0
    assert time.monotonic() - began < 20
    child = int(output)
    assert process.has_leftovers()
    assert is_alive(child)
    await process.stop()
    await until(lambda: not is_alive(child))
    assert not process.has_leftovers()


async def test_marks_find_the_processes_of_one_session_only(host: LocalHost, tmp_path: Path) -> None:
    first, second = bytearray(), bytearray()
    own = await _start(host, "echo $$; exec sleep 300", first, tmp_path)
    with contextlib.closing(LocalHost()) as other:
        foreign = await _start(other, "echo $$; exec sleep 300", second, tmp_path)
        await _pid_from(first)
        await _pid_from(second)
        await stop_marked(host.session)
        assert await own.wait() == -signal.SIGTERM
        assert foreign.returncode is None
        await foreign.stop()


async def test_a_long_environment_is_looked_at_whole(host: LocalHost, tmp_path: Path) -> None:
    env = {"AAA": "x" * 100_000}
    process = await host.start(["sleep", "60"], str(tmp_path), bytearray().extend, env)
    assert marked(host.session) == [process.pid]
    await stop_marked(host.session)
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


_LOST = (
    "P=$(env -i setsid sh -c '(sleep 300 >/dev/null 2>&1 & echo $!)');"
    "until grep -q sleep /proc/$P/comm; do :; done; echo $P;"
)
"""A process that has forked twice, left its session and lost its environment; its pid is printed."""


async def test_stop_finds_what_has_forked_twice_and_lost_its_environment(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, f"{_LOST} sleep 300", output, tmp_path)
    child = await _pid_from(output)
    assert child not in marked(host.session)
    await process.stop()
    assert not is_alive(child)


_IN_PYTHON = "import ctypes, os, signal, time\nlibc = ctypes.CDLL(None)\n"
_PRINTED = "print(os.getpid(), flush=True)\n"
_HARD_TO_END = {
    "forked twice": _LOST,
    "stopped": "sleep 300 & echo $!; kill -STOP $!;",
    "deaf": "env -i setsid sh -c 'trap \"\" TERM HUP INT; echo $$; while :; do sleep 1; done' &",
    "orphans of a subreaper": f"{_IN_PYTHON}libc.prctl(36, 1)\nif not os.fork():\n  if not os.fork():\n"
    f"    os.setsid()\n    {_PRINTED}    time.sleep(300)\n  os._exit(0)\ntime.sleep(300)",
    "a parent in vfork": f"{_IN_PYTHON}{_PRINTED}number = 56 if os.uname().machine == 'x86_64' else 220\n"
    f"libc.syscall(number, 0x4000 | 17, 0, 0, 0, 0)\nos.setsid()\ntime.sleep(300)",
    "traced": f"{_IN_PYTHON}child = os.fork()\nif not child:\n  {_PRINTED}  libc.ptrace(0, 0, 0, 0)\n"
    "  os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(300)",
}


@pytest.mark.parametrize("is_caged", [False, True], ids=["uncaged", "caged"])
@pytest.mark.parametrize("name", _HARD_TO_END)
async def test_stop_ends_what_is_hard_to_end(name: str, is_caged: bool, host: LocalHost, tmp_path: Path) -> None:
    script, output = _HARD_TO_END[name], bytearray()
    if script.startswith(_IN_PYTHON):
        (tmp_path / "program.py").write_text(script)
        script = f"{os.path.realpath(sys.executable)} program.py &"
    if is_caged and not host.cages().workspace:
        pytest.skip(host.cages().why)
    rules = workspace_rules([str(tmp_path)], os.environ, "") if is_caged else None
    process = await host.start(["sh", "-c", f"{script} sleep 300"], str(tmp_path), output.extend, None, rules)
    child = await _pid_from(output)
    assert is_alive(child)
    await process.stop()
    assert not is_alive(child)
    assert supervisor.descendants(process.pid) == []


async def test_no_caged_command_ends_its_supervisor(host: LocalHost, tmp_path: Path) -> None:
    if not host.cages().workspace:
        pytest.skip(host.cages().why)
    output = bytearray()
    rules = workspace_rules([str(tmp_path)], os.environ, "")
    script = f"{_LOST} kill -9 $PPID; kill -STOP $PPID; echo end"
    process = await host.start(["sh", "-c", script], str(tmp_path), output.extend, None, rules)
    assert await process.wait() == 0
    child = int(output.split()[0])
    assert process.left() == [f"sleep (pid {child})"]
    await process.stop()
    assert not is_alive(child)


@pytest.mark.parametrize("most_abi", [99, 5])
async def test_the_kernel_ends_what_no_list_of_processes_shows(
    most_abi: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crowd of processes that fork and end faster than they are listed. Without bounded signals, it stays."""
    _, modules = marshal.loads(server.load_modules()[4:])
    blind = [(name, code, text.replace("found = [top]", "return []")) for name, code, text in modules]
    packed = marshal.dumps((b"compile the sources", blind))
    monkeypatch.setattr(server, "load_modules", lambda: len(packed).to_bytes(4, "little") + packed)
    with contextlib.closing(LocalHost(cages=server.CageServer(most_abi))) as host:
        if not host.cages().workspace or (host.cages().abi < 6) is (most_abi == 99):
            pytest.skip(f"this kernel has ABI {host.cages().abi} of Landlock")
        output = bytearray()
        rules = workspace_rules([str(tmp_path)], os.environ, "")
        process = await host.start(["sh", "-c", _LOST], str(tmp_path), output.extend, None, rules)
        child = await _pid_from(output)
        process.kill()
        if most_abi >= 6:
            await process.gone()
        assert is_alive(child) is (most_abi < 6)
        if most_abi < 6:
            os.kill(child, signal.SIGKILL)
        await process.gone()


async def test_what_lives_on_after_a_command_is_its_own_and_no_other_is_ended_with_it(
    host: LocalHost, tmp_path: Path
) -> None:
    first, second = bytearray(), bytearray()
    one, two = await _start(host, _LOST, first, tmp_path), await _start(host, _LOST, second, tmp_path)
    await one.wait()
    await two.wait()
    mine, other = await _pid_from(first), await _pid_from(second)
    assert one.left() == [f"sleep (pid {mine})"]
    await one.stop()
    assert (is_alive(mine), is_alive(other)) == (False, True)
    assert (one.has_leftovers(), two.has_leftovers()) == (False, True)
    await two.stop()
    await two.gone()


async def test_descendants_are_found_with_and_without_lists_of_children(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, "sleep 300 & (sleep 300 & sleep 300 & wait) & echo $$; wait", output, tmp_path)
    await _pid_from(output)
    await until(lambda: len(supervisor.descendants(process.pid)) == 4)
    parents, found = supervisor._all_parents(), [process.pid]
    for pid in found:
        found += parents.get(pid, [])
    assert sorted(found[1:]) == sorted(supervisor.descendants(process.pid))
    await process.stop()


async def test_what_a_killed_supervisor_had_is_ended(host: LocalHost, tmp_path: Path) -> None:
    output = bytearray()
    process = await _start(host, f"{_LOST} kill -9 $PPID; sleep 300", output, tmp_path)
    child = await _pid_from(output)
    assert await process.wait() == -signal.SIGKILL
    await until(lambda: not is_alive(child) and not is_alive(process.pid))
    await process.stop()


@pytest.mark.parametrize("is_caged", [False, True], ids=["uncaged", "caged"])
async def test_a_killed_worker_leaves_only_what_the_next_one_finds(
    is_caged: bool, host: LocalHost, tmp_path: Path
) -> None:
    """What has its mark stays for it, and the rest is ended; in the cage for the workspace, all."""
    if is_caged and not host.cages().workspace:
        pytest.skip(host.cages().why)
    mark = new_mark()
    program = f"""
import asyncio, os
from ccb.remote.sandbox.rules import workspace_rules
from ccb.remote.system.host import LocalHost
async def main():
    host, output = LocalHost({mark!r}), bytearray()
    script = "sleep 300 & echo $!; {_LOST} sleep 300"
    rules = workspace_rules([{str(tmp_path)!r}], os.environ, "") if {is_caged} else None
    await host.start(["sh", "-c", script], {str(tmp_path)!r}, output.extend, None, rules)
    while output.count(b"\\n") < 2:
        await asyncio.sleep(0.01)
    print(output.decode(), flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=-1, env=env)
    assert process.stdout is not None
    marked_one, lost = map(int, (await process.stdout.read()).split())
    await process.wait()
    await until(lambda: not is_alive(lost))
    await until(lambda: is_alive(marked_one) is not is_caged)
    await stop_marked(mark)
    assert not is_alive(marked_one)


async def test_a_program_that_is_not_there_is_an_os_error(host: LocalHost, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/no/such/program"):
        await host.start(["/no/such/program"], str(tmp_path), bytearray().extend)
    with pytest.raises(OSError, match="null byte"):
        await host.start(["true", "a\0b"], str(tmp_path), bytearray().extend)


async def test_nothing_stays_open(host: LocalHost, tmp_path: Path) -> None:
    await (await _start(host, "true", bytearray(), tmp_path)).wait()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        process = await _start(host, "echo x", bytearray(), tmp_path)
        await process.wait()
        await process.stop()
    assert len(os.listdir("/proc/self/fd")) <= before
