"""Connections that are kept for later runs: made once, shared, ended by time, sleep, lock and the person."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.control_master import socket_directory
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.machine.processes import commands_with, memory_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY
from tests.support.person.login import Person, output, target
from tests.support.person.ssh_asks import SshAsks

from ccb.tunnel.openssh import kept_connections
from ccb.tunnel.openssh.kept_connections import KeptConnection, KeptRoute, all_kept, key_of, not_kept
from ccb.tunnel.openssh.openssh_transport import OpenSshTransport
from ccb.tunnel.openssh.shared_master import MasterTrial
from ccb.tunnel.ssh.asyncssh_transport import SshTransport, connect
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Sharing, Transport

HOUR = Sharing(keep_s=3600)


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The runtime directory of this machine. What is still kept at the end is ended."""
    with socket_directory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
        try:
            yield directory
        finally:
            for each in all_kept(os.environ):
                each.end()


@asynccontextmanager
async def connected(
    where: SshTarget, sharing: Sharing = HOUR, prompts: Prompts | None = None
) -> AsyncIterator[Transport]:
    transport = await connect(where, prompts or NobodyToAsk(), sharing=sharing)
    try:
        yield transport
    finally:
        await transport.close()


async def use(where: SshTarget, sharing: Sharing = HOUR) -> str:
    """Run one command, and say what carried it."""
    async with connected(where, sharing) as transport:
        assert await output(transport) == "in\n"
        names: dict[type[object], str] = {OpenSshTransport: "new", MasterTrial: "kept", SshTransport: "plain"}
        if isinstance(transport, MasterTrial) and not transport.shared:
            return "renewed"
        return names[type(transport)]


def only() -> KeptConnection:
    (found,) = all_kept(os.environ)
    return found


def processes(kept: KeptConnection) -> list[psutil.Process]:
    """The keeper, and everything that it has started."""
    keeper = psutil.Process(kept.pid)
    return [keeper, *keeper.children(recursive=True)]


async def test_one_login_serves_later_runs_until_the_person_disconnects(sshd: Sshd, host_user: HostUser) -> None:
    where, person = target(sshd, host_user), Person()
    async with connected(where, prompts=person) as transport:
        assert await output(transport, "id -un") == f"{host_user.name}\n"
    host = f"{host_user.name}@127.0.0.1"
    assert person.told[-1] == (
        f"The connection to {host} is kept for 60 minutes: a password or a code is asked once in that time. "
        f"`ccb disconnect {host}` ends it."
    )
    assert [await use(where), await use(where)] == ["kept", "kept"] and sshd.logins == 1
    kept = only()
    assert kept.socket.parent.stat().st_mode & 0o777 == 0o700 and kept.record.stat().st_mode & 0o777 == 0o600
    assert 3500 < kept.left_s <= 3600 and all_kept(os.environ, "127.0.0.1") == [kept]
    assert all_kept(os.environ, host) == [kept] and not all_kept(os.environ, f"nobody@{host}")
    running = processes(kept)
    assert kept.end() and not all_kept(os.environ)
    _, alive = psutil.wait_procs(running, timeout=20)
    assert not alive and not list(kept.record.parent.iterdir())
    assert await use(where) == "new" and sshd.logins == 2


async def test_a_run_that_reconnects_keeps_nothing_after_ccb_disconnect(sshd: Sshd, host_user: HostUser) -> None:
    where, person = target(sshd, host_user), Person()
    async with connected(where, prompts=person) as transport:
        assert await output(transport) == "in\n"
        assert only().end()
    async with connected(where, prompts=person) as transport:
        assert await output(transport) == "in\n"
        assert not all_kept(os.environ)
    assert await use(where) == "new", "the next run keeps one again"


async def test_a_keeper_holds_no_credential(sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", API_KEY)
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"x: {API_KEY}")
    assert await use(target(sshd, host_user)) == "new"
    found = [each for each in processes(only()) if each.name() != "gdbus"]  # which has only its arguments
    assert {"ssh", "sh"} <= {each.name() for each in found}
    for process in found:
        assert API_KEY not in " ".join([*process.cmdline(), *process.environ().values()])
        memory = memory_of(process.pid)
        assert b"PATH" in memory and API_KEY.encode() not in memory
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            assert str(fd.readlink()).startswith(("pipe:", "socket:", "anon_inode:", "/dev/", str(only().record)))


async def test_a_session_goes_on_when_sharing_stops_and_its_connection_ends(sshd: Sshd, host_user: HostUser) -> None:
    where = target(sshd, host_user)
    async with connected(where) as transport:
        pipe = await transport.execute("echo in; cat")
        assert await pipe.read() == b"in\n"
        first = only()
        assert first.stop_sharing() and not all_kept(os.environ)
        assert await use(where) == "new" and only().pid != first.pid
        await pipe.write(b"still\n")
        assert await pipe.read() == b"still\n"
        await pipe.close()
        await until(lambda: not psutil.pid_exists(first.pid))


async def test_time_and_sleep_and_the_end_of_its_keeper_end_it(
    sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = target(sshd, host_user)
    assert await use(where, Sharing(keep_s=0.2)) == "new"
    await until(lambda: not all_kept(os.environ) or only().over)
    assert await use(where) == "new" and sshd.logins == 2
    first = only()
    monkeypatch.setattr(kept_connections, "has_slept", lambda before: before == first.slept)
    assert await use(where) == "new" and only().pid != first.pid and sshd.logins == 3
    last = only()
    running = processes(last)
    running[0].kill()
    _, alive = psutil.wait_procs(running, timeout=20)
    assert not alive and not all_kept(os.environ)
    assert await use(where) == "new"


async def test_a_connection_that_does_not_answer_is_replaced(sshd: Sshd, host_user: HostUser) -> None:
    where = target(sshd, host_user)
    assert await use(where) == "new"
    first = only()
    record = json.loads(first.record.read_bytes())
    first.record.write_text(json.dumps({**record, "addresses": ["192.0.2.9", None]}))  # another network meanwhile
    (ssh,) = [each for each in processes(first) if each.name() == "ssh"]
    ssh.suspend()
    began = asyncio.get_running_loop().time()
    assert await use(where) == "renewed"
    assert asyncio.get_running_loop().time() - began < 30
    await until(lambda: not ssh.is_running())
    assert only().pid != first.pid and await use(where) == "kept"


async def test_a_lock_ends_it(sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """logind's signal, as gdbus prints it."""
    pipe = tmp_path / "said"
    os.mkfifo(pipe)
    gdbus = shell_script(tmp_path / "bin" / "gdbus", f'exec cat "{pipe}"')
    monkeypatch.setenv("PATH", f"{gdbus.parent}:{os.environ['PATH']}")
    assert await use(target(sshd, host_user)) == "new"
    with pipe.open("w") as bus:
        bus.write("/org/freedesktop/login1/user/_1000: org.freedesktop.DBus.Properties.PropertiesChanged (…)\n")
        bus.flush()
        assert all_kept(os.environ)
        bus.write("/org/freedesktop/login1/session/_32: org.freedesktop.login1.Session.Lock ()\n")
        bus.flush()
        await until(lambda: not all_kept(os.environ))


async def test_other_options_make_another_one(sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch) -> None:
    async def key(*options: str) -> str:
        where = target(sshd, host_user, *options)
        return key_of([hop.config for hop in await route(where)], where.host)

    plain = await key()
    assert await key() == plain
    assert await key("Compression=yes") != plain
    monkeypatch.setattr("ccb.__version__", "0.0.0")
    assert await key() != plain


async def test_two_runs_at_once_make_one_connection(sshd: Sshd, host_user: HostUser) -> None:
    where = target(sshd, host_user)
    both = await asyncio.gather(use(where), use(where))
    assert sorted(both) in (["new", "plain"], ["kept", "new"]) and len(all_kept(os.environ)) == 1


async def test_keys_that_ask_are_not_kept(sshd: Sshd, host_user: HostUser, runtime: Path, tmp_path: Path) -> None:
    async def problem(*options: str, key: Path | None = None) -> str:
        where = target(sshd, host_user, *options, key=key)
        configs = [hop.config for hop in await route(where)]

        async def plain() -> Transport:
            raise AssertionError

        return await not_kept(KeptRoute(configs, where, 60, plain), runtime / "ccb-kept")

    assert await problem() == ""
    assert "AddKeysToAgent confirm" in await problem("AddKeysToAgent=confirm 60")
    touched = tmp_path / "touched"
    touched.with_name("touched.pub").write_text("sk-ssh-ed25519@openssh.com AAAA test\n")
    assert "touch" in await problem(key=touched)
    (runtime / "ccb-kept").chmod(0o755)
    assert "other users can enter" in await problem()
    (runtime / "ccb-kept").chmod(0o700)
    person = Person()
    async with connected(target(sshd, host_user, "AddKeysToAgent=confirm"), prompts=person) as transport:
        assert isinstance(transport, SshTransport)
    assert person.told[-1].endswith("is not kept: its key asks for confirmation (AddKeysToAgent confirm).")


async def test_questions_reach_the_person_once(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    sshd.identity.with_name("authorized_keys").write_text((tmp_path / "locked.pub").read_text())
    person = SshAsks("open sesame")
    where = target(sshd, host_user, key=key)
    for _ in range(2):
        async with connected(where, prompts=person) as transport:
            assert await output(transport) == "in\n"
    assert len(person.asked) == 1 and "open sesame" not in person.told


def test_a_login_ends_with_the_ccb_that_is_killed(runtime: Path) -> None:
    """Nobody would answer its questions any more."""
    from ccb.tunnel.openssh import connection_keeper

    ssh, record = shell_script(runtime / "ssh", "sleep 600"), runtime / "s.json"
    keeper = [sys.executable, "-I", "-S", connection_keeper.__file__]
    words = [*keeper, str(runtime / "s"), str(record), "60", "{}", str(ssh)]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as ccb:
        asyncio.run(until(record.exists))
        assert commands_with(str(ssh))
        assert ccb.stdin is not None
        ccb.stdin.close()
        assert ccb.wait(20) == 1
    asyncio.run(until(lambda: not commands_with(str(runtime))))


def test_a_keeper_that_cannot_start_ssh_says_why(runtime: Path) -> None:
    """It does not say that another one keeps the connection."""
    from ccb.tunnel.openssh import connection_keeper

    failing = (
        "import runpy, subprocess, sys\n"
        "def none_left(*_, **__): raise BlockingIOError('no process is left')\n"
        "subprocess.Popen = none_left\n"
        "del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    keeper = [sys.executable, "-I", "-S", "-c", failing, connection_keeper.__file__]
    words = [*keeper, str(runtime / "s"), str(runtime / "s.json"), "60", "{}", "ssh"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ccb:
        assert ccb.stderr is not None
        assert "no process is left" in ccb.stderr.read()
        assert ccb.wait(20) not in (0, connection_keeper.TAKEN)
