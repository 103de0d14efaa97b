"""The OpenSSH client as a transport, over a real sshd: one login for many commands, questions, error messages."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.machine.processes import commands_with
from tests.support.machine.waiting import until
from tests.support.network.relay import relay
from tests.support.person.login import output
from tests.support.person.login import target as target_of
from tests.support.person.ssh_asks import SshAsks, ssh_environment

from ccb.tunnel.errors import AuthFailed, Dropped
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.openssh.openssh_transport import connect
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.askpass import AskingTransport
from ccb.tunnel.transports.command_transport import PipeCommand
from ccb.tunnel.transports.login_failures import wrapper_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Transport

Env = dict[str, str]
PLAIN = ("ssh", "-F", "/dev/null")


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    with ssh_environment(tmp_path) as environment:
        yield environment


def target(server: Sshd, user: HostUser, *options: str, port: int | None = None, key: Path | None = None) -> SshTarget:
    known = server.trust(port or server.port)
    return target_of(server, user, *options, port=port, known=known, key=key)


@asynccontextmanager
async def connected(
    where: SshTarget, env: Env, prompts: Prompts | None = None, words: Sequence[str] = PLAIN
) -> AsyncIterator[Transport]:
    transport = await connect(where, prompts or NobodyToAsk(), env=env, words=words)
    try:
        yield transport
    finally:
        await transport.close()


def directories(env: Env) -> list[Path]:
    return list(Path(env["XDG_RUNTIME_DIR"]).glob("ccb-ssh-*"))


async def test_one_login_carries_all_and_leaves_nothing(sshd: Sshd, host_user: HostUser, env: Env) -> None:
    async with connected(target(sshd, host_user), env) as transport:
        assert await output(transport, "id -un") == f"{host_user.name}\n"
        both = await asyncio.gather(output(transport, "echo one"), output(transport, "echo two"))
        assert list(both) == ["one\n", "two\n"]
        assert transport.alive and transport.name == f"{host_user.name}@127.0.0.1"
        (directory,) = directories(env)
        assert directory.stat().st_mode & 0o777 == 0o700
    assert sshd.logins == 1
    assert not transport.alive and not directories(env)


async def test_jump_hosts_are_those_of_ssh_alone(sshd: Sshd, host_user: HostUser, env: Env, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host hop\nHostName 127.0.0.1\nPort {sshd.port}\nUser {host_user.name}\n"
        f"Host *\nIdentityFile {sshd.identity}\nUserKnownHostsFile {sshd.known_hosts}\nIdentitiesOnly yes\n"
    )
    where = target(sshd, host_user, "ProxyJump=hop")
    async with connected(where, env, words=("ssh", "-F", str(config))) as transport:
        assert await output(transport, "echo in") == "in\n"
        assert sshd.logins == 2
        (directory,) = directories(env)
        subprocess.run(["ssh", "-S", str(directory / "m"), "-O", "exit", "x"], check=True, capture_output=True)
        await until(lambda: not transport.alive)
        with pytest.raises(Dropped):
            await output(transport, "true")
    assert sshd.logins == 2


async def test_a_frozen_connection_can_be_left_at_once(sshd: Sshd, host_user: HostUser, env: Env) -> None:
    async with relay(sshd.port) as between:
        transport = await connect(target(sshd, host_user, port=between.port), NobodyToAsk(), env=env, words=PLAIN)
        pipe = await transport.execute("echo there; cat")
        assert await pipe.read() == b"there\n"
        between.freeze()
        transport.abort()
        assert not transport.alive
        async with asyncio.timeout(20):
            await transport.close()
        assert not directories(env)


async def test_a_master_ends_with_a_ccb_that_is_killed(sshd: Sshd, host_user: HostUser, env: Env) -> None:
    where = target(sshd, host_user)
    script = (
        "import asyncio\nfrom ccb.tunnel.openssh.openssh_transport import connect\n"
        "from ccb.tunnel.transports.login_prompts import NobodyToAsk\n"
        "from ccb.tunnel.ssh_config.ssh_target import SshTarget\n"
        "async def main():\n"
        "    words = ('ssh', '-F', '/dev/null')\n"
        f"    transport = await connect({where!r}, NobodyToAsk(), env={env!r}, words=words)\n"
        "    print('in', flush=True)\n    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    ccb = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert ccb.stdout is not None and await asyncio.wait_for(ccb.stdout.readline(), 60) == b"in\n"
    sockets = env["XDG_RUNTIME_DIR"] + "/ccb-ssh-"
    assert commands_with(sockets)
    ccb.kill()
    await ccb.wait()
    await until(lambda: not commands_with(sockets))


async def test_a_passphrase_is_asked_only_once_and_who_gives_up_is_refused(
    sshd: Sshd, host_user: HostUser, env: Env, tmp_path: Path
) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    (tmp_path / "sshd" / "authorized_keys").write_text((tmp_path / "locked.pub").read_text())
    person = SshAsks("wrong", "open sesame")
    async with connected(target(sshd, host_user, key=key), env, person) as transport:
        assert await output(transport, "echo in") == "in\n"
        assert await output(transport, "echo again") == "again\n"
    assert [(str(key) in prompt, echo) for _, prompt, echo in person.asked] == [(True, False), (True, False)]
    for prompts in (SshAsks(None, None, None), NobodyToAsk()):
        with pytest.raises(AuthFailed) as caught:
            await connect(target(sshd, host_user, key=key), prompts, env=env, words=PLAIN)
        assert "Permission denied" in caught.value.evidence
        assert not directories(env)


async def test_a_new_host_key_is_asked(sshd: Sshd, host_user: HostUser, env: Env, tmp_path: Path) -> None:
    known = tmp_path / "new_known_hosts"
    person = SshAsks("yes")
    where = target(sshd, host_user, f"UserKnownHostsFile={known}", "StrictHostKeyChecking=ask")
    async with connected(where, env, person) as transport:
        assert await output(transport, "echo in") == "in\n"
    assert known.read_text().startswith(f"[127.0.0.1]:{sshd.port} ")
    ((before, prompt, echo),) = person.asked
    assert "SHA256:" in before and "yes/no" in prompt and echo


async def test_without_multiplexing_each_command_logs_in(sshd: Sshd, host_user: HostUser, env: Env) -> None:
    async with connected(target(sshd, host_user, "ControlMaster=no"), env) as transport:
        for number in (1, 2):
            assert await output(transport, "echo in") == "in\n"
            assert sshd.logins == number


@pytest.mark.parametrize("option", ["StdinNull yes", "SessionType subsystem", "RemoteCommand tmux"])
async def test_options_against_our_command_do_nothing(
    sshd: Sshd, host_user: HostUser, env: Env, tmp_path: Path, option: str
) -> None:
    config = tmp_path / "config"
    config.write_text(f"{option}\n")
    async with connected(target(sshd, host_user), env, words=("ssh", "-F", str(config))) as transport:
        pipe = await transport.execute("exec /bin/sh -c 'read x; echo got $x'")
        await pipe.write(b"this\n")
        assert await asyncio.wait_for(pipe.read(), 60) == b"got this\n"
        await pipe.close()


async def test_what_a_killed_ccb_left_the_next_removes(sshd: Sshd, host_user: HostUser, env: Env) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    old = Path(env["XDG_RUNTIME_DIR"]) / f"ccb-ssh-{ended.pid}-old"
    old.mkdir(mode=0o700)
    foreign = Path(env["XDG_RUNTIME_DIR"]) / f"ccb-ssh-{os.getpid()}-alive"
    foreign.mkdir(mode=0o700)
    async with connected(target(sshd, host_user), env):
        assert not old.exists() and foreign.exists()


async def test_who_does_not_give_a_password_is_not_asked_again(host_user: HostUser, env: Env, tmp_path: Path) -> None:
    options = ["PasswordAuthentication yes", "AuthenticationMethods password"]
    async with serve(tmp_path / "server", options) as server:
        known = f"UserKnownHostsFile={server.known_hosts}"
        where = SshTarget("127.0.0.1", host_user.name, server.port, (), (known,))
        person = SshAsks(None)
        with pytest.raises(AuthFailed, match="was cancelled"):
            await openssh.connect(where, person, env=env, words=PLAIN)
        assert len(person.asked) == 1
        assert "Failed password" not in server.log.read_text()
        words = ["ssh", "-F", "/dev/null", "-o", known, "-p", str(server.port), f"{host_user.name}@127.0.0.1"]
        person = SshAsks(None, None)
        command = PipeCommand("box", "wrap", lambda line: [*words, line], partial(wrapper_failure, "box", "wrap"))
        wrapper = await AskingTransport.open(command, person, env)
        try:
            for times in (1, 2):
                with pytest.raises(AuthFailed):
                    await (await wrapper.execute("true")).read()
                assert len(person.asked) == times
        finally:
            await wrapper.close()
