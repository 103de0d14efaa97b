"""Caged commands as children of this process: their output, their end, their failures, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import marshal
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.remote.bundle_in_memory import bundle_of_the_sources, imports_from
from tests.remote.sandbox.workspace_kit import caged_host
from tests.remote.tools_kit import is_alive, until
from tests.support.machine.programs import shell_script, with_sources

from ccb.remote.sandbox import cage_server as server_module
from ccb.remote.sandbox.cage_rules import CageRules, read_only_rules
from ccb.remote.sandbox.cage_server import CageServer, CageUnavailable
from ccb.remote.sandbox.running import RunningCommand
from ccb.remote.system.host import Host
from ccb.remote.system.process import Process, marked


class Caged:
    """A host whose commands all run in the cage that only reads, in a directory of their own."""

    def __init__(self, root: Path, most_abi: int = 99) -> None:
        root.mkdir(exist_ok=True)
        self.host = caged_host(most_abi)
        self.root = root
        self.rules = read_only_rules([str(root)], os.environ, os.path.expanduser("~"))
        self.output = bytearray()

    async def start(self, *argv: str, rules: CageRules | None = None, env: dict[str, str] | None = None) -> Process:
        self.output.clear()
        return await self.host.start(argv, str(self.root), self.output.extend, env, rules or self.rules)

    async def run(self, script: str) -> int:
        return await (await self.start("sh", "-c", script)).wait()


@pytest.fixture
async def caged(tmp_path: Path) -> AsyncIterator[Caged]:
    made = Caged(tmp_path)
    yield made
    made.host.close()


@pytest.fixture(params=[99, 0], ids=["landlock", "namespaces"])
def most_abi(request: pytest.FixtureRequest) -> int:
    """The kernel, as it is and without Landlock."""
    return int(request.param)


@pytest.fixture
async def in_each_cage(tmp_path: Path, most_abi: int) -> AsyncIterator[Caged]:
    made = Caged(tmp_path / "project", most_abi)
    yield made
    made.host.close()


async def test_its_temporary_directory_is_thrown_away(caged: Caged) -> None:
    assert await caged.run('echo x >"$TMPDIR/a" && mkdir -m 0 "$TMPDIR/b" && echo "$TMPDIR"') == 0
    path = caged.output.decode().strip()
    await until(lambda: not os.path.exists(path))
    assert await caged.run("echo $TMPDIR") == 0
    assert not os.path.exists(caged.output.decode().strip())
    caged.host.close()
    assert not os.path.exists(os.path.dirname(path))


async def test_one_file_can_be_opened_for_writing(in_each_cage: Caged, tmp_path: Path) -> None:
    """As for the directory in which a command ends."""
    (outputs := tmp_path / "outputs").mkdir()
    for name in ("report", "other"):
        (outputs / name).touch()
    rules = replace(in_each_cage.rules, write=(str(outputs / "report"),))
    script = "cd ../outputs; echo x >report; echo x >other; echo x >new; rm report"
    await (await in_each_cage.start("sh", "-c", script, rules=rules)).wait()
    assert {path.name: path.read_text() for path in outputs.iterdir()} == {"report": "x\n", "other": ""}


async def test_everything_can_be_opened_for_reading(in_each_cage: Caged, tmp_path: Path) -> None:
    """As a rule that allows to read everything does."""
    (tmp_path / "file").write_text("outside\n")
    shell_script(in_each_cage.root / "prog", "echo ran")
    if os.getuid() == 0:
        os.mknod(tmp_path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    script = 'cat ../file; ./prog; echo x >../device && echo device; echo x >../file; echo x >a; echo x >"$TMPDIR/a"'
    rules = replace(in_each_cage.rules, read=(*in_each_cage.rules.read, "/"))
    await (await in_each_cage.start("sh", "-c", f"{script} && echo fine", rules=rules)).wait()
    output = bytes(in_each_cage.output)
    assert output.startswith(b"outside\n") and output.endswith(b"fine\n")
    assert (tmp_path / "file").read_text() == "outside\n"
    assert os.listdir(in_each_cage.root) == ["prog"]
    assert b"ran\n" not in output and b"device\n" not in output


async def test_what_a_killed_worker_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    program = """
import os
from ccb.remote.sandbox.cage_directories import TemporaryDirectories
directories = TemporaryDirectories()
path = directories.make()
open(path + "/file", "w").close()
print(path, flush=True)
if os.environ["DIES"]:
    os.kill(os.getpid(), 9)
input()
directories.close()
"""
    env = {**with_sources(), "TMPDIR": str(tmp_path), "DIES": ""}
    argv, pipe = [sys.executable, "-c", program], subprocess.PIPE
    alive = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, text=True)
    assert alive.stdin and alive.stdout
    kept = alive.stdout.readline().strip()
    done = subprocess.run(argv, check=False, env={**env, "DIES": "x"}, capture_output=True, text=True, timeout=60)
    left = os.path.dirname(done.stdout.strip())
    assert os.path.isdir(left)
    subprocess.run(argv, check=True, env=env, input="\n", capture_output=True, text=True, timeout=60)
    await until(lambda: not os.path.exists(left))
    assert os.path.exists(kept), "that one lives"
    alive.communicate("\n", timeout=60)
    assert os.listdir(tmp_path) == []


async def test_signals_exit_codes_and_merged_output_are_those_of_any_process(caged: Caged) -> None:
    assert await caged.run("echo one; echo two >&2; kill -TERM $$") == -signal.SIGTERM
    assert caged.output == b"one\ntwo\n"
    assert await caged.run("yes | head -n 1; ps -o sid=,pid= -p $$") == 0  # SIGPIPE has its default again
    line, ids = caged.output.decode().splitlines()
    assert line == "y"
    assert len(set(ids.split())) == 1


async def test_a_host_without_any_cage_runs_nothing(tmp_path: Path) -> None:
    """Even if the zygote cannot be started."""
    server = CageServer()
    rules = read_only_rules([str(tmp_path)], os.environ, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", "/no/such/python")
        available = server.availability()
        assert (available.mechanism, available.abi, available.workspace) == ("", 0, False)
        assert "/no/such/python" in available.why
        with pytest.raises(CageUnavailable, match="no read-only cage"):
            server.start(["touch", "a"], str(tmp_path), os.environ, rules)
    server.close()
    assert os.listdir(tmp_path) == []


async def test_nothing_stays_open_and_nothing_is_inherited(caged: Caged) -> None:
    await caged.run("true")
    before = len(os.listdir("/proc/self/fd"))
    secret = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(secret, True)
    for _ in range(5):
        process = await caged.start("sh", "-c", "for fd in /proc/self/fd/*; do echo ${fd##*/}; done")
        await process.wait()
        await process.stop()
    os.close(secret)
    assert set(bytes(caged.output).split()) <= {b"0", b"1", b"2", b"3"}  # 3 is the directory that sh lists
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_zygote_that_was_killed_is_started_again(caged: Caged) -> None:
    await caged.run("true")
    zygote = _zygote_of(caged.host)
    os.kill(zygote, signal.SIGKILL)
    await until(lambda: not is_alive(zygote))
    assert await caged.run("echo again") == 0
    assert caged.output == b"again\n"


@contextlib.contextmanager
def _unanswering(path: Path) -> Iterator[None]:
    """Let no process open a file, as on a disk that does not answer: it waits for this one to give up a lease."""
    program = path.open("r+b")
    fcntl.fcntl(program, fcntl.F_SETSIG, signal.SIGURG)  # which does nothing
    fcntl.fcntl(program, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    try:
        yield
    finally:
        program.close()


@pytest.mark.parametrize("is_caged", [False, True], ids=["uncaged", "caged"])
async def test_a_disk_that_does_not_answer_holds_up_no_other_command(
    is_caged: bool, caged: Caged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_START_S", 1.0)
    program = shell_script(caged.root / "program", "")
    rules = replace(caged.rules, execute=(*caged.rules.execute, str(caged.root))) if is_caged else None
    assert await caged.run("true") == 0
    with _unanswering(program):
        where = str(caged.root), bytearray().extend, None, rules
        stuck = asyncio.ensure_future(caged.host.start([str(program)], *where))
        await until(lambda: bool(_waits_for(program)))
        assert await caged.run("echo works") == 0
        assert not stuck.done()
        with pytest.raises(OSError, match="did not start within 1 s"):
            await stuck
    await until(lambda: not _waits_for(program))


def _waits_for(program: Path) -> list[str]:
    """Return the processes of this one that are about to become a program."""
    name = f":{program.stat().st_ino} "
    return [line for line in Path("/proc/locks").read_text().splitlines() if name in line and "BREAKING" in line]


async def test_a_start_that_is_cancelled_twice_leaves_nothing(caged: Caged) -> None:
    started = threading.Event()
    going_on = threading.Event()
    real = caged.host._cages.start

    def slow(*arguments: Any) -> RunningCommand:
        command = real(*arguments)
        started.set()
        going_on.wait(60)
        return command

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caged.host._cages, "start", slow)
        starting = asyncio.ensure_future(caged.start("sleep", "300"))
        await until(started.is_set)
        (pid,) = marked(caged.host.session)
        for _ in range(3):
            starting.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not starting.done(), "it would forget what was started"
        going_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await until(lambda: not is_alive(pid))


async def test_a_python_without_ctypes_runs_commands_and_ends_their_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_BOOT", f"import sys; sys.modules['ctypes'] = None\n{server_module._BOOT}")
    with contextlib.closing(Host()) as host:
        assert "no ctypes" in host.cages().why
        output = bytearray()
        process = await host.start(["sh", "-c", "sleep 300 & echo $!; exit 3"], str(tmp_path), output.extend)
        assert await process.wait() == 3
        assert process.has_leftovers()
        await process.stop()
        assert not is_alive(int(output))
        output.clear()
        process = await host.start(["sh", "-c", "setsid sleep 300 & echo $!; wait"], str(tmp_path), output.extend)
        await until(lambda: output.endswith(b"\n"))
        await process.stop()
        await until(lambda: not is_alive(int(output)))


async def test_environment_of_any_bytes_arrives(caged: Caged) -> None:
    process = await caged.start("sh", "-c", 'printf %s "$ODD"', env={"ODD": os.fsdecode(b"a\xff\nb")})
    assert await process.wait() == 0
    assert caged.output == b"a\xff\nb"


async def test_the_zygote_ends_with_its_worker() -> None:
    program = """
import os, sys
from ccb.remote.sandbox.cage_server import CageServer
server = CageServer()
print(server.availability().mechanism or "none", server._zygote.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, env=with_sources())
    mechanism, pid = done.stdout.split()
    assert mechanism in ("Landlock", "namespaces", "none")
    await until(lambda: not is_alive(int(pid)))


def test_the_zygote_starts_from_the_bundle(tmp_path: Path) -> None:
    """As on a host: the bundle's file was removed, and its bytes are in memory."""
    bundle = tmp_path / "worker.bundle"
    bundle.write_bytes(bundle_of_the_sources())
    program = f"""
{imports_from(bundle)}
from ccb.remote.system.host import Host
host = Host()
print(host.cages().mechanism, host.cages().why, __import__("ccb").__spec__.origin)
host.close()
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    with contextlib.closing(CageServer()) as server:
        expected = server.availability()
    assert done.stdout.strip() == f"{expected.mechanism} {expected.why} <ccb>/ccb/__init__.py".strip()


def test_a_python_that_was_replaced_meanwhile_compiles_the_zygote_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of the worker's own version would crash it."""
    with contextlib.closing(CageServer()) as server:
        expected = server.availability()
    size, packed = server_module.load_modules()[:4], server_module.load_modules()[4:]
    assert len(packed) == int.from_bytes(size, "little")
    _, modules = marshal.loads(packed)
    other = marshal.dumps((b"other", [(name, b"of another version", text) for name, _, text in modules]))
    monkeypatch.setattr(server_module, "load_modules", lambda: len(other).to_bytes(4, "little") + other)
    with contextlib.closing(CageServer()) as server:
        assert server.availability() == expected


async def test_root_has_no_capability_in_the_cage_but_to_read(caged: Caged) -> None:
    await caged.run("grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status")
    facts = dict(line.split(":\t") for line in caged.output.decode().splitlines())
    read_search = "0000000000000004" if os.geteuid() == 0 else "0000000000000000"
    assert facts == {"CapPrm": read_search, "CapEff": read_search, "NoNewPrivs": "1", "Seccomp": "2"}


async def test_the_zygote_cannot_be_looked_into(caged: Caged) -> None:
    """It could be made to start anything. To another process of a plain user it belongs to root."""
    await caged.run("true")
    flags = os.stat(f"/proc/{_zygote_of(caged.host)}/environ")
    assert flags.st_uid == 0


def _zygote_of(host: Host) -> int:
    zygote = host._cages._zygote
    assert zygote is not None
    return zygote.pid


_PROGRAM_BOOT = """
import os, sys
class module:
    loaded_in = os.getpid(), sys.argv[1:]
    def main(text):
        exec(text, {"module": module})
"""


class Programs(Caged):
    """A host whose commands are programs that its zygote has loaded."""

    def __init__(self, root: Path, most_abi: int) -> None:
        super().__init__(root, most_abi)
        self.rules = replace(read_only_rules([str(root)], os.environ, "/nowhere"), own=True)

    async def program(self, text: str, rules: CageRules | None = None) -> Process:
        argv = ["/no/such/python", "-I", "-S", "-c", _PROGRAM_BOOT, "program", text]
        return await self.start(*argv, rules=rules, env={"ODD": "a\nb"})

    async def printed(self, text: str) -> str:
        assert await (await self.program(text)).wait() == 0, self.output
        return self.output.decode().rstrip("\n")


@pytest.fixture
async def programs(tmp_path: Path, most_abi: int) -> AsyncIterator[Programs]:
    made = Programs(tmp_path, most_abi)
    yield made
    made.host.close()


async def test_a_program_is_loaded_once_before_it_is_caged_and_is_a_process_like_that_of_a_command(
    programs: Programs,
) -> None:
    """Nothing of the zygote is open in it."""
    zygote = _zygote_of(programs.host)
    own = "os.getsid(0) == os.getpid(), os.getcwd(), os.environ['ODD'], *module.loaded_in"
    opened = "[os.readlink(f'/proc/self/fd/{fd}')[:9] for fd in (0, 1, 2)], os.listdir('/proc/self/fd')"
    show = f"import os; print([{own}], {opened}, flush=True)"
    expected = [True, str(programs.root), "a\nb", zygote, ["program"]]
    for _ in range(2):
        printed = await programs.printed(show)
        assert printed.startswith(f"{expected} ['/dev/null', 'pipe:") and printed.endswith(" ['0', '1', '2', '3']")


async def test_it_is_caged(programs: Programs, tmp_path: Path) -> None:
    hidden = tmp_path.parent / f"{tmp_path.name}-hidden"
    hidden.write_text("x")
    tries = f"""
import os, _socket
def tried(name, attempt, *arguments):
    try:
        attempt(*arguments)
        print(name)
    except OSError:
        pass
tried("make", open, "made", "w")
tried("read outside", open, {str(hidden)!r})
tried("read inside", open, "there")
tried("temporary", open, os.environ["TMPDIR"] + "/a", "w")
tried("socket", _socket.socket)
tried("attach", os.kill, {os.getpid()}, 0)
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "NoNewPrivs", "Seccomp:")):
        print(*line.split())
import sys; sys.stdout.flush()
"""
    (programs.root / "there").write_text("x")
    found = (await programs.printed(tries)).splitlines()
    argv = ["grep", "-E", "^(CapEff|CapPrm|NoNewPrivs|Seccomp):", "/proc/self/status"]
    command = await programs.start(*argv, rules=replace(programs.rules, own=False))
    assert await command.wait() == 0
    assert found == ["read inside", "temporary", *(" ".join(x.split()) for x in programs.output.decode().splitlines())]
    assert os.listdir(programs.root) == ["there"]


async def test_its_failure_is_told_and_it_can_be_stopped(programs: Programs) -> None:
    failed = await programs.program("raise ValueError('so it is')")
    assert await failed.wait() == 1
    assert programs.output.decode().splitlines()[-1] == "ValueError: so it is"
    endless = await programs.program("print('runs', flush=True)\nwhile True: pass")
    await until(lambda: programs.output == b"runs\n")
    await endless.stop()
    assert endless.returncode is not None and endless.returncode < 0
    assert await programs.printed("print('again', flush=True)") == "again"


async def test_without_its_cage_neither_a_command_nor_a_program_runs(programs: Programs) -> None:
    impossible = replace(programs.rules, read=("/\0",), write=(str(programs.root),))
    for start in (
        programs.start("touch", "made", rules=replace(impossible, own=False)),
        programs.program("open('made', 'w')", impossible),
    ):
        with pytest.raises(CageUnavailable, match="cage could not be made"):
            await start
    assert os.listdir(programs.root) == []
