"""The person's own master connection under the built-in client: used while it answers, else passed over for a login."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.hosts.control_master import control_master, socket_directory
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import relay
from tests.support.person.login import Person, everything, only_config, output, target

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.openssh.shared_master import MasterTrial, master_problem
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import DEFAULT_SHARING, NOTHING_SHARED, Sharing


@pytest.fixture
def sockets() -> Iterator[Path]:
    with socket_directory() as directory:
        yield directory


def named_for(user: HostUser, port: int) -> str:
    return f"{user.name}@127.0.0.1:{port}"


async def carrier(where: SshTarget, prompts: Prompts | None = None, sharing: Sharing = DEFAULT_SHARING) -> str:
    """What carries a command to `where`."""
    transport = await connect(where, prompts or NobodyToAsk(), sharing=sharing)
    try:
        assert await output(transport) == "in\n"
        if isinstance(transport, MasterTrial):
            return "master" if transport.shared else "login after a trial"
        return "login"
    finally:
        await transport.close()


async def test_a_live_master_carries_each_command_and_a_silent_one_is_passed_over(
    sshd: Sshd, host_user: HostUser, sockets: Path
) -> None:
    path = sockets / named_for(host_user, sshd.port)
    async with control_master(sshd, host_user, path) as master:
        before = sshd.logins
        transport = await connect(target(sshd, host_user, master.option), NobodyToAsk(), sharing=DEFAULT_SHARING)
        assert transport.on_trial and transport.alive and transport.warm
        assert await output(transport, "id -un") == f"{host_user.name}\n"
        assert not transport.on_trial and transport.name == f"{host_user.name}@127.0.0.1"
        sent = bytes(range(256)) * 4096
        pipe = await transport.execute(f"echo there; head -c {len(sent)}; echo problem >&2; exit 7")
        assert await pipe.read(2) + await pipe.read(3) + await pipe.read() == b"there\n"
        await pipe.write(sent)
        assert (await everything(pipe), await pipe.exit_status(), pipe.stderr_tail()) == (sent, 7, "problem\n")
        await transport.close()
        assert sshd.logins == before
        assert await carrier(target(sshd, host_user, "ControlPath=none")) == "login"
        assert await carrier(target(sshd, host_user, master.option), sharing=NOTHING_SHARED) == "login"
        assert master.process.is_running()
        person, where = Person(), target(sshd, host_user, master.option)
        master.process.suspend()
        try:
            before = sshd.logins
            assert await carrier(where, person) == "login after a trial"
            assert await carrier(where, person) == "login", "the same master is not tried twice"
            assert sshd.logins == before + 2
        finally:
            master.process.resume()
        assert await carrier(where) == "master"


async def test_a_master_that_fails_later_is_a_lost_connection(sshd: Sshd, host_user: HostUser, sockets: Path) -> None:
    async with relay(sshd.port) as between:
        path = sockets / named_for(host_user, between.port)
        async with control_master(sshd, host_user, path, port=between.port) as master:
            where = target(sshd, host_user, master.option, port=between.port)
            transport = await connect(where, NobodyToAsk(), sharing=DEFAULT_SHARING)
            assert await output(transport) == "in\n"
            between.freeze()
            with pytest.raises(ConnectionLost):
                await transport.execute("true")
            master.process.kill()
            master.process.wait(10)
            assert not transport.alive
            await transport.close()


async def test_a_master_without_room_is_passed_over(tmp_path: Path, host_user: HostUser, sockets: Path) -> None:
    async with serve(tmp_path / "strict", ["MaxSessions 1"]) as server:
        path = sockets / named_for(host_user, server.port)
        async with control_master(server, host_user, path) as master:
            first = await connect(target(server, host_user, master.option), NobodyToAsk(), sharing=DEFAULT_SHARING)
            pipe = await first.execute("echo in; cat")
            assert await carrier(target(server, host_user, master.option)) == "login after a trial"
            await pipe.close()
            await first.close()


def traps(path: Path, user: HostUser) -> Iterator[tuple[Callable[[], object], Callable[[], object], str]]:
    me = os.getuid()
    yield lambda: shutil.chown(path, user.name), lambda: os.chown(path, me, -1), "belongs to user"
    yield lambda: path.parent.chmod(0o777), lambda: path.parent.chmod(0o700), "other users may write"
    yield lambda: shutil.chown(path.parent, user.name), lambda: os.chown(path.parent, me, -1), "other users may write"


async def test_sockets_that_may_lead_elsewhere_are_not_touched(
    sshd: Sshd, host_user: HostUser, sockets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these is a socket that ssh itself would use, or a trap somebody else has laid."""

    async def problem(path: Path | None = None, *more: str) -> str:
        named = [] if path is None else [f"ControlPath={path}"]
        where = target(sshd, host_user, *named, *more)
        ((_, config),) = await route(where)
        return master_problem(config, where) or ""

    path = sockets / named_for(host_user, sshd.port)
    assert await problem(path) == ""
    async with control_master(sshd, host_user, path) as master:
        assert await carrier(target(sshd, host_user, master.option)) == "master"
        assert "asks for confirmation" in await problem(path, "ControlMaster=autoask")
        for changed, back, words in traps(path, host_user):
            changed()
            assert words in await problem(path)
            assert await carrier(target(sshd, host_user, master.option)) == "login"
            back()
        assert await problem(path) == ""
        config_file = only_config(tmp_path, monkeypatch)
        names = (f"{host_user.name}@127.0.0.1", f"127.0.0.1:{sshd.port}", f"{host_user.name}:{sshd.port}", "a" * 40)
        found = []
        for name in names:
            (sockets / name).hardlink_to(path)
            config_file.write_text(f"ControlPath {sockets / name}\n")
            found.append("%C" in await problem())
        assert found == [True, True, True, False]
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert "no process listens" in await problem(path)
    assert await carrier(target(sshd, host_user, f"ControlPath={path}")) == "login"
