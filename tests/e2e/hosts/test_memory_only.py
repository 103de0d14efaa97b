"""A host on which no file can be made at all: the session lives in memory, and is a session for all that. Root only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.sealed import ENVIRONMENT, seal, writable_mounts
from tests.support.hosts.sshd import HostUser, Sshd, host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.hosts.whole_session import allow
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO, STREAM, Laptop, user_message

PYTHONS = [Path(sys.base_prefix), *sorted(Path("~/.pyenv/versions").expanduser().glob("3.9.*"))[-1:]]
"""The prefixes of the Pythons the worker runs on."""


@dataclass(frozen=True)
class Host:
    """A sealed machine, one of its users, and the Python there."""

    user: HostUser
    server: Sshd
    version: str

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.user.name).pw_uid

    def where(self, port: int | None = None) -> list[str]:
        place = f"{self.user.name}@127.0.0.1:~/app"
        return ["ssh", place, *self.server.client_options(port), "--transport", "asyncssh"]

    def daemons(self) -> list[int]:
        return [process.pid for process in processes_of(self.user) if name_of(process) == "ccb"]

    def runs(self, words: str) -> bool:
        """Whether a process with these words in its command line runs."""
        ours = {process.pid for process in processes_of(self.user)}
        return any(words in found and pid in ours for pid, found in commands())

    def files(self) -> list[str]:
        """Everything on this machine that belongs to the user. What only root can write in is left out: it is large."""
        roots = [f"-path {path}" for path in ("/proc", "/sys", "/srv", "/usr", "/root")]
        left_out = " -o ".join([*roots, "-name .venv", "-name .make"])
        find = ["find", "/", "(", *left_out.split(), ")", "-prune", "-o", "-user", str(self.uid), "-print"]
        return sorted(subprocess.run(find, capture_output=True, text=True, check=False).stdout.splitlines())


def commands() -> list[tuple[int, str]]:
    return [(process.pid, " ".join(process.info["cmdline"] or [])) for process in psutil.process_iter(["cmdline"])]


@pytest.fixture
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Host]:
    with host_user(tmp_path) as user:
        (user.home / "app" / "sub").mkdir(parents=True)
        (user.home / "app" / "greet.py").write_text('print("bonjour")\n', encoding="utf-8")
        files = tmp_path / "sealed"
        files.mkdir(mode=0o755)
        wrapper = seal(tmp_path / "seal", files, request.param)
        async with serve(files, environment=ENVIRONMENT, wrapper=wrapper) as server:
            host = Host(user, server, request.param.name)
            (pid,) = [pid for pid, words in commands() if str(files) in words]
            assert writable_mounts(pid, files) == []
            yield host


@contextlib.contextmanager
def running_as(user: HostUser, program: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program of another user, which has said that it is ready."""
    command = ["setpriv", "--reuid", user.name, "--clear-groups", "/usr/bin/python3", "-c", program, *argv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


INTRUDER = """
import socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(20)
peer.connect("\\0" + sys.argv[1])
print(peer.recv(100))
"""
SQUATTER = """
import socket, sys
squat = socket.socket(socket.AF_UNIX)
squat.bind("\\0" + sys.argv[1])
squat.listen()
print("ready", flush=True)
while True:
    peer, _ = squat.accept()
    peer.settimeout(1)
    try:
        peer.sendall(b"{}\\n")
        print(peer.recv(100), flush=True)
    except OSError:
        pass
"""


@pytest.mark.parametrize("host", PYTHONS[-1:], ids=lambda path: path.name, indirect=True)
@pytest.mark.thorough
async def test_a_session_without_files_works(host: Host, laptop: Laptop, fake_model: FakeModel, tmp_path: Path) -> None:
    before = host.files()
    wait = "pwd; echo run >&2; until [ -e go ]; do sleep 0.05; done; /media/python/bin/python3 -V"
    fake_model.add(
        uses("Read", file_path=str(host.user.home / "app" / "greet.py")),
        uses("Bash", command="cd sub && python3 -c 'print(6 * 7)'"),
        uses("Bash", command=wait),
        uses("Bash", command="seq 20000"),
        {"text": "first answer"},
        {"text": "second answer"},
        {"text": "third answer"},
    )
    async with AsyncExitStack() as stack:
        between = await stack.enter_async_context(relay(host.server.port))
        argv = [*host.where(between.port), "-p", *STDIO, "--allowedTools", "Bash(seq:*)"]
        async with laptop.start(argv) as running:
            await running.send(user_message("say it in English"))
            session = (await running.until("system", "init"))["session_id"]
            await allow(running, "Bash")
            await allow(running, "Bash")
            await until(lambda: host.runs("-e go ]"))
            between.cut()
            await until(lambda: between.connections == 2)
            (host.user.home / "app" / "go").touch()
            assert (await running.until("result"))["result"] == "first answer"
            (daemon,) = host.daemons()
            no_files_of(daemon)
            name = f"ccb-{host.uid}-{session}"
            with host_user(tmp_path, home=False) as other, running_as(other, INTRUDER, name) as intruder:
                assert intruder.communicate(timeout=30)[0] == "b''\n"
            await running.send(user_message("still there?"))
            assert (await running.until("result"))["result"] == "second answer"
            listed = await laptop.run(["ps", host.where()[1].split(":")[0], *host.where()[2:], "--json"])
            (row,) = [json.loads(line) for line in listed.stdout.splitlines()]
            assert (row["session"], row["pid"], row["prompts"]) == (session, daemon, 2), listed
            assert (row["alive"], row["prompt"], row["cwd"]) == (True, "say it in English", str(host.user.home / "app"))
            running.process.kill()
            assert host.daemons() == [daemon]
    again = await laptop.run([*host.where(), "--resume", session[:8], "-p", "and now?", *STREAM])
    assert again.code == 0, again.stderr
    assert "in memory only" in again.stderr
    assert again.results[-1]["result"] == "third answer"
    assert again.results[-1]["session_id"] == session
    said = [request.tool_result_text for request in fake_model.requests]
    assert "bonjour" in said[1]
    stays = f"Shell cwd stays {host.user.home}/app: this host has no place to note where a command ends"
    assert said[2] == f"42\n{stays}"
    assert f"{host.user.home}/app\nrun\nPython {host.version}" in said[3]
    assert "could not be kept in a file: this session is in memory only" in said[4] and "20000" in said[4]
    assert "bonjour" in json.dumps(fake_model.requests[-1].messages)
    await until(lambda: not host.daemons())
    assert host.files() == before
    gone = await laptop.run([*host.where(), "--resume", session, "-p", "and now?"])
    assert (gone.code, "there is no session" in gone.stderr) == (1, True), gone


def no_files_of(pid: int) -> None:
    """That a process has no file open to write to, not even one without a name."""
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        leads_to = os.readlink(fd)
        assert fd.is_dir() or leads_to.startswith(("/dev/null", "socket:", "pipe:", "anon_inode:")), leads_to


@pytest.mark.parametrize("host", PYTHONS[:1], ids=lambda path: path.name, indirect=True)
@pytest.mark.parametrize("who_comes", ["the laptop", "gc"])
@pytest.mark.thorough
async def test_nothing_of_a_killed_worker_lives(
    who_comes: str, host: Host, laptop: Laptop, fake_model: FakeModel
) -> None:
    fake_model.add(uses("Bash", command="setsid sleep 1234 & wait"))
    async with laptop.start([*host.where(), "-p", *STDIO, "--allowedTools", "Bash"]) as running:
        await running.send(user_message("hello"))
        await until(lambda: host.runs("sleep 1234"))
        (daemon,) = host.daemons()
        if who_comes == "gc":
            running.process.kill()
            await running.process.wait()
        os.kill(daemon, signal.SIGKILL)
        if who_comes == "gc":
            assert host.runs("sleep 1234")
            swept = await laptop.run(["gc", host.where()[1].split(":")[0], *host.where()[2:]])
            assert swept.code == 0, swept
        else:
            lost = await running.done()
            assert lost.code == 1, lost
            assert "was in memory only on this host, and its worker has ended" in lost.stderr
    assert not host.runs("sleep 1234")


@pytest.mark.parametrize("host", PYTHONS[:1], ids=lambda path: path.name, indirect=True)
@pytest.mark.thorough
async def test_a_name_of_another_is_refused(host: Host, laptop: Laptop, fake_model: FakeModel, tmp_path: Path) -> None:
    session = str(uuid.uuid4())
    with host_user(tmp_path, home=False) as other, running_as(other, SQUATTER, f"ccb-{host.uid}-{session}") as squatter:
        assert squatter.stdout is not None
        assert await asyncio.to_thread(squatter.stdout.readline) == "ready\n"
        done = await laptop.run([*host.where(), "--session-id", session, "-p", "hi"])
        uid = pwd.getpwnam(other.name).pw_uid
        assert (done.code, f"another user (uid {uid}) listens" in done.stderr) == (2, True), done
        squatter.kill()
        assert squatter.communicate()[0].strip() in ("", "b''")
    assert not host.daemons()
    fake_model.add({"text": "hello"})
    done = await laptop.run([*host.where(), "--session-id", session, "-p", "hi"])
    assert (done.code, done.stdout) == (0, "hello\n"), done
