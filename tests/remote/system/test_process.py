"""Children of the worker: own session, no input, nothing of ours in the environment, nothing left after a stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import is_alive, until
from tests.support.machine.programs import with_sources

from ccb.remote.sandbox import cage_server, running
from ccb.remote.sandbox.cage_rules import CageRules, workspace_rules
from ccb.remote.system import process as process_module
from ccb.remote.system.host import Host
from ccb.remote.system.process import MARK, Process, child_environment, new_mark, stop_marked, without_ccb
from ccb.tunnel.wire import process_tree


@pytest.fixture
def host() -> Iterator[Host]:
    with contextlib.closing(Host()) as made:
        yield made


def _caged(host: Host, directory: Path) -> CageRules:
    if not host.cages().workspace:
        pytest.skip(host.cages().why)
    return workspace_rules([str(directory)], os.environ, "")


async def _start(host: Host, script: str, cwd: Path, rules: CageRules | None = None) -> tuple[Process, bytearray]:
    output = bytearray()
    return await host.start(["sh", "-c", script], str(cwd), output.extend, None, rules), output


async def _pid_from(output: bytearray) -> int:
    await until(lambda: output.endswith(b"\n"))
    return int(output.split()[-1])


async def test_output_is_merged_input_is_empty_and_a_process_leads_its_own_session(host: Host, tmp_path: Path) -> None:
    process, output = await _start(host, "echo one; cat; ps -o sid= -p $$ >&2; echo $$; exit 7", tmp_path)
    assert await process.wait() == 7
    first, sid, pid = output.split()
    assert first == b"one" and sid == pid != str(os.getsid(0)).encode()
    await process.stop()


_ASKING = ("SUDO_ASKPASS", "SSH_ASKPASS", "GIT_ASKPASS", "DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_TTY")
_WAITING = ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR")
_OWN = ("KUBE_EDITOR", "SYSTEMD_EDITOR", "MANPAGER", "AWS_PAGER")
_ELSEWHERE = ("CDPATH", "GLOBIGNORE", "BASHOPTS", "SHELLOPTS", "PWD", "OLDPWD")


@pytest.mark.parametrize(
    ("environ", "left_out"),
    [
        ({"PATH": "/bin", "LANG": "C"}, ("ANTHROPIC_API_KEY", "CCB_SESSION")),  # nothing of ours
        ({}, (*_ASKING, *_WAITING, *_OWN)),  # no editor or screen where it would wait
        *(({"GIT_SSH": "/opt/ssh"}, ()), ({"GIT_SSH_COMMAND": "/opt/ssh"}, ())),  # the ssh that the person chose
        ({"PATH": "/bin"}, _ELSEWHERE),  # what sends cd or wildcards elsewhere than where commands are judged
    ],
)
def test_children_see_what_a_person_has_set_and_nothing_of_ours_or_that_asks(
    environ: dict[str, str], left_out: tuple[str, ...]
) -> None:
    nobody = child_environment({})
    assert {nobody[name] for name in _WAITING} == {"true"}
    told = {"SSH_ASKPASS_REQUIRE": "never", "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb"}
    assert told.items() <= nobody.items() and not {*_ASKING, *_OWN, *_ELSEWHERE}.intersection(nobody)
    assert child_environment({**environ, **dict.fromkeys(left_out, "x")}, "m") == {**nobody, **environ, MARK: "m"}
    assert without_ccb({"DISPLAY": ":1", "CCB_X": "1"}) == {"DISPLAY": ":1"}, "a server's description may name it"


async def test_stop_kills_what_ignores_its_request(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "TERM_GRACE", 1.0)  # time for the trap, also on a busy machine
    script = "trap 'echo asked' TERM; (trap '' TERM; exec sleep 300) & echo $!; while :; do wait; done"
    process, output = await _start(host, script, tmp_path)
    child = await _pid_from(output)
    await process.stop()
    assert output.split()[1:] == [b"asked"]
    assert process.returncode == -signal.SIGKILL
    await until(lambda: not is_alive(child))


async def test_a_cancelled_stop_kills_at_once(host: Host, tmp_path: Path) -> None:
    process, output = await _start(host, "trap '' TERM; echo $$; while :; do sleep 1; done", tmp_path)
    await _pid_from(output)
    stopping = asyncio.ensure_future(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await process.wait() == -signal.SIGKILL
    await process.gone()


async def test_what_a_process_leaves_in_the_background_does_not_hold_up_its_end(host: Host, tmp_path: Path) -> None:
    process, output = await _start(host, "sleep 300 & echo $!", tmp_path)
    began = time.monotonic()
    assert await process.wait() == 0
    assert time.monotonic() - began < 20
    child = int(output)
    assert process.has_leftovers()
    assert is_alive(child)
    await process.stop()
    await until(lambda: not is_alive(child))
    assert not process.has_leftovers()


async def test_marks_find_the_processes_of_one_session_only(host: Host, tmp_path: Path) -> None:
    own, first = await _start(host, "echo $$; exec sleep 300", tmp_path)
    with contextlib.closing(Host()) as other:
        foreign, second = await _start(other, "echo $$; exec sleep 300", tmp_path)
        await asyncio.gather(_pid_from(first), _pid_from(second))
        await stop_marked(host.session)
        assert await own.wait() == -signal.SIGTERM
        assert foreign.returncode is None
        await foreign.stop()


_LOST = (
    "P=$(env -i setsid sh -c '(sleep 300 >/dev/null 2>&1 & echo $!)');"
    "until grep -q sleep /proc/$P/comm; do :; done; echo $P;"
)  # A process that has forked twice, left its session and lost its environment; its pid is printed


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
async def test_stop_ends_what_is_hard_to_end(name: str, is_caged: bool, host: Host, tmp_path: Path) -> None:
    script = _HARD_TO_END[name]
    if script.startswith(_IN_PYTHON):
        (tmp_path / "program.py").write_text(script)
        script = f"{os.path.realpath(sys.executable)} program.py &"
    rules = _caged(host, tmp_path) if is_caged else None
    process, output = await _start(host, f"{script} sleep 300", tmp_path, rules)
    child = await _pid_from(output)
    assert is_alive(child)
    await process.stop()
    assert not is_alive(child)
    assert process_tree.descendants(process.pid) == []


async def test_no_caged_command_ends_its_supervisor(host: Host, tmp_path: Path) -> None:
    script = f"{_LOST} kill -9 $PPID; kill -STOP $PPID; echo end"
    process, output = await _start(host, script, tmp_path, _caged(host, tmp_path))
    assert await process.wait() == 0
    child = int(output.split()[0])
    assert process.left() == [f"sleep (pid {child})"]
    await process.stop()
    assert not is_alive(child)


@pytest.mark.parametrize("most_abi", [99, 5])
async def test_the_kernel_ends_what_is_unlisted(most_abi: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a crowd of processes that fork and end faster than they are listed. Without bounded signals, it stays."""
    _, modules = marshal.loads(cage_server.load_modules()[4:])
    blind = [(name, code, text.replace("found = [top]", "return []")) for name, code, text in modules]
    packed = marshal.dumps((b"compile the sources", blind))
    monkeypatch.setattr(cage_server, "load_modules", lambda: len(packed).to_bytes(4, "little") + packed)
    with contextlib.closing(Host(cages=cage_server.CageServer(most_abi))) as host:
        rules = _caged(host, tmp_path)
        if (host.cages().abi < 6) is (most_abi == 99):
            pytest.skip(f"this kernel has ABI {host.cages().abi} of Landlock")
        process, output = await _start(host, _LOST, tmp_path, rules)
        child = await _pid_from(output)
        process.kill()
        if most_abi >= 6:
            await process.gone()
        assert is_alive(child) is (most_abi < 6)
        if most_abi < 6:
            os.kill(child, signal.SIGKILL)
        await process.gone()


async def test_what_lives_on_after_a_command_is_its_own_and_no_other_ends_with_it(host: Host, tmp_path: Path) -> None:
    one, first = await _start(host, _LOST, tmp_path)
    two, second = await _start(host, _LOST, tmp_path)
    await one.wait()
    await two.wait()
    mine, other = await _pid_from(first), await _pid_from(second)
    assert one.left() == [f"sleep (pid {mine})"]
    await one.stop()
    assert (is_alive(mine), is_alive(other)) == (False, True)
    assert (one.has_leftovers(), two.has_leftovers()) == (False, True)
    await two.stop()
    await two.gone()


async def test_descendants_are_found_with_and_without_lists_of_children(host: Host, tmp_path: Path) -> None:
    process, output = await _start(host, "sleep 300 & (sleep 300 & sleep 300 & wait) & echo $$; wait", tmp_path)
    await _pid_from(output)
    await until(lambda: len(process_tree.descendants(process.pid)) == 4)
    parents, found = process_tree._all_parents(), [process.pid]
    for pid in found:
        found += parents.get(pid, [])
    assert sorted(found[1:]) == sorted(process_tree.descendants(process.pid))
    await process.stop()


_REMOTE = Path(running.__file__).parent.parent
_WORKER = """
import asyncio, json, marshal, os, sys
from ccb.remote.sandbox import cage_server as server
from ccb.remote.sandbox.running import adopt_orphans
from ccb.remote.system.host import Host
script, awaited, old, new = sys.argv[1:]
_, modules = marshal.loads(server.load_modules()[4:])
assert any(old in text for _, _, text in modules)
packed = marshal.dumps((b"compile the sources", [(name, code, text.replace(old, new)) for name, code, text in modules]))
server.load_modules = lambda: len(packed).to_bytes(4, "little") + packed
async def main():
    adopt_orphans()
    host, output = Host(), bytearray()
    other = await host.start(["sleep", "300"], os.getcwd(), bytearray().extend)
    process = await host.start(["sh", "-c", script], os.getcwd(), output.extend)
    while output.count(b"\\n") < {"gone": 1, "stop": 2}[awaited]:
        await asyncio.sleep(0.01)
    if awaited == "gone":
        await asyncio.wait_for(process.wait(), 30)
        open("go", "w").close()
    await asyncio.wait_for(getattr(process, awaited)(), 30)
    lives = os.path.exists(f"/proc/{int(output)}")
    print(json.dumps([int(output), lives, process.returncode, process.notes, other.returncode]), flush=True)
    await asyncio.wait_for(other.stop(), 30)
    children = open("/proc/self/task/%d/children" % os.getpid()).read().split()
    assert lives or len(children) <= 1, "all but the zygote was reaped"
    host.close()
asyncio.run(main())
"""


async def _in_worker(
    directory: Path, script: str, awaited: str, patch: tuple[str, str] = ("", ""), user: int | None = None
) -> list[Any]:
    """What a worker tells of a command, with a change to what its zygote loads. `awaited` is what it does about it."""
    command = (sys.executable, "-c", _WORKER, script, awaited, *patch)
    worker = await asyncio.create_subprocess_exec(*command, stdout=-1, cwd=directory, env=with_sources(), user=user)
    try:
        said, _ = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
    assert worker.returncode == 0
    return list(json.loads(said))


_ZYGOTE = f"zygote=$(cut -d' ' -f4 /proc/$PPID/stat); {_LOST}"
_UNABLE = ("os.kill(pid, number)", "os.write(os.open(os.readlink('/proc/%d/cwd' % pid) + '/kills', 0o2101), b'x')")
_LATE = ("os.write(control, command", "__import__('time').sleep(0.3), os.write(control, command")
_AS_IT_IS = ("", "")
_AFTER = f"{_LOST} (until [ -e go ]; do sleep 0.01; done; exec >&-; kill -9 $PPID) & exit 3"
_LOST_SUPERVISORS: dict[str, tuple[str, str, int, tuple[str, str]]] = {
    "killed": (f"{_LOST} kill -9 $PPID; sleep 300", "gone", -9, _LATE),
    "killed with the zygote": (f"{_ZYGOTE} kill -9 $zygote $PPID; sleep 300", "gone", -9, _AS_IT_IS),
    "killed beside a stopped zygote": (
        f"{_ZYGOTE} kill -STOP $zygote; kill -9 $PPID; sleep 300",
        "gone",
        -9,
        _AS_IT_IS,
    ),
    "killed after the command": (_AFTER, "gone", 3, _AS_IT_IS),
    "stopped": (f"{_LOST} kill -STOP $PPID; echo; sleep 300", "stop", -9, _AS_IT_IS),
    "stopped, and the command has ended": (f"{_LOST} kill -STOP $PPID; echo", "stop", -9, _AS_IT_IS),
    "failed": (f"{_LOST} echo; sleep 300", "stop", -9, ("if _KILL in said:", "if self.nothing:")),
    "unable to kill": (f"{_LOST} echo; sleep 300", "stop", -9, _UNABLE),
    "unable to list": ("echo $$; echo; exec sleep 300", "stop", -15, ("found = [top]", "return []")),
}


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", _LOST_SUPERVISORS)
async def test_what_a_supervisor_had_is_ended_whatever_becomes_of_it(name: str, tmp_path: Path) -> None:
    """Nothing else is ended with it, and nobody waits for it for ever."""
    script, awaited, code, patch = _LOST_SUPERVISORS[name]
    assert (await _in_worker(tmp_path, script, awaited, patch))[1:] == [False, code, [], None]
    if patch is _UNABLE:
        assert (tmp_path / "kills").stat().st_size < 100, "it does not try all the time"


def test_no_process_of_the_worker_itself_leads_a_session() -> None:
    """It would be taken for an orphan of a command. (A daemon leaves the session of its login before.)"""
    texts = {path.name: path.read_text(encoding="utf-8") for path in _REMOTE.rglob("*.py")}
    assert {name for name, text in texts.items() if "start_new_session" in text or "setsid(" in text} == {
        *("daemon_start.py", "zygote.py")
    }


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program that becomes root")
async def test_the_wait_for_what_takes_no_signal_ends(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "setpriv"
        shutil.copy(shutil.which("setpriv") or "", program)
        Path(directory).chmod(0o777)
        program.chmod(0o4755)
        script = f"{program} --reuid 0 --clear-groups sh -c 'echo $$; echo; exec sleep 300' & wait"
        try:
            child, lives, code, notes, _ = await _in_worker(Path(directory), script, "stop", user=65534)
        except PermissionError:
            pytest.skip("no other user may run this Python")
    os.kill(child, signal.SIGKILL)
    assert (lives, code, notes) == (True, -15, [f"cannot be killed, and lives on: sleep (pid {child})"])


_STOP = (  # once the supervisor ignores the SIGHUP that comes with the end of a stopped group
    "until grep -q '^SigIgn:.*[13579bdf]$' /proc/$PPID/status; do :; done; kill -STOP $PPID;"
    "until grep -q '^State:.T' /proc/$PPID/status; do :; done;"
)


@pytest.mark.parametrize(("is_caged", "before"), [(False, ""), (True, ""), (False, _STOP)])
async def test_a_killed_worker_leaves_only_marked_ones(is_caged: bool, before: str, host: Host, tmp_path: Path) -> None:
    """What has its mark stays for it, and the rest is ended; in the cage for the workspace, all."""
    if is_caged:
        _caged(host, tmp_path)
    mark = new_mark()
    program = f"""
import asyncio, os
from ccb.remote.sandbox.cage_rules import CageRules, workspace_rules
from ccb.remote.system.host import Host
async def main():
    host, output = Host({mark!r}), bytearray()
    script = "sleep 300 & echo $!; {before} {_LOST} sleep 300"
    rules = workspace_rules([{str(tmp_path)!r}], os.environ, "") if {is_caged} else None
    await host.start(["sh", "-c", script], {str(tmp_path)!r}, output.extend, None, rules)
    while output.count(b"\\n") < 2:
        await asyncio.sleep(0.01)
    print(output.decode(), flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=-1, env=with_sources())
    assert process.stdout is not None
    marked_one, lost = map(int, (await process.stdout.read()).split())
    await process.wait()
    await until(lambda: not is_alive(lost))
    await until(lambda: is_alive(marked_one) is not is_caged)
    await stop_marked(mark)
    assert not is_alive(marked_one)


async def test_a_program_that_is_not_there_is_an_os_error(host: Host, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/no/such/program"):
        await host.start(["/no/such/program"], str(tmp_path), bytearray().extend)
    with pytest.raises(OSError, match="null byte"):
        await host.start(["true", "a\0b"], str(tmp_path), bytearray().extend)
