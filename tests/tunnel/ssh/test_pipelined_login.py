"""Pipelined logins over real sshds: what they save, and that whatever prevents one costs nothing but the saving."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.support.hosts.embedded_sshd import asyncssh_server
from tests.support.hosts.sshd import HostUser, Sshd, certify, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import relay
from tests.support.person.login import Person, every_host, everything, logged_in, only_config, output, pipe_to, target
from tests.support.person.pipelined import PIPELINED, SIGNED, known_login, last_login, remembered, remembering, report

from ccb.tunnel.errors import AuthFailed, ConnectError, HostKeyError, Unreachable
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh.past_logins import PastLogin, PastLogins, fingerprint
from ccb.tunnel.ssh.pipelined_connection import PipelinedConnection
from ccb.tunnel.ssh_config.host_config import HostConfig
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import NobodyToAsk

PASSWORD = "open, sesame"


def connections(server: Sshd) -> int:
    """How many clients have asked `server` for a login, or proven something."""
    text = server.log.read_text()
    return text.count("Accepted publickey") + text.count("Failed publickey") + text.count("Received disconnect")


async def test_the_second_login_saves_five_round_trips(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    past = PastLogins(tmp_path / "past")
    async with relay(sshd.port) as link:
        link.delay_s = 0.03  # what is sent in one go then counts as one turn
        where = target(sshd, host_user, port=link.port, known=sshd.trust(link.port))
        reports, turns = [], []
        for each in (None, past, past):
            before = link.turns
            reports.append(await report(where, each))
            turns.append(link.turns - before)
    assert reports[0].startswith("no: it is switched off")
    assert reports[1] == "no: no login with one key alone is remembered for this host; the next login will be"
    assert reports[2] == PIPELINED
    assert turns[2] <= turns[1] - 4, "the first login is no measure: it imports asyncssh between its turns"
    assert sshd.log.read_text().count("Postponed publickey") == 2, "the third login asks nothing first"
    [file] = (tmp_path / "past").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert host_user.name not in file.read_text() + file.name


async def test_the_first_command_does_not_wait_for_the_login(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    async with relay(sshd.port) as link:
        link.delay_s = 0.1
        where, past = await known_login(sshd, host_user, tmp_path, port=link.port, known=sshd.trust(link.port))
        async with logged_in(where, past=past) as transport:
            assert isinstance(transport.connection, PipelinedConnection)
            assert not transport.connection.logged_in.done()
            before = link.turns
            pipe = await transport.execute("echo here; exec cat")
            assert await pipe.read() == b"here\n"
            assert link.turns == before, "login, channel and command were asked for in one go"
            await pipe.close()
        with_compression = target(sshd, host_user, "Compression=yes", port=link.port, known=sshd.trust(link.port))
        async with logged_in(with_compression, past=past) as transport:  # compression begins at the end of the login
            assert isinstance(transport.connection, PipelinedConnection)
            assert transport.connection.logged_in.done()


async def test_a_key_that_was_removed_is_refused_as_ever(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    where, past = await known_login(sshd, host_user, tmp_path)
    sshd.identity.with_name("authorized_keys").write_text("")
    with pytest.raises(AuthFailed) as plain:
        await connect(where, NobodyToAsk())
    before = connections(sshd)
    with pytest.raises(AuthFailed) as pipelined:
        await report(where, past)
    assert (pipelined.value.what, pipelined.value.evidence) == (plain.value.what, plain.value.evidence)
    assert connections(sshd) > before
    assert await remembered(past, where) is None


@pytest.mark.parametrize("way", ["TCP", "ProxyCommand"])
async def test_another_key_logs_in_on_the_same_try(sshd: Sshd, host_user: HostUser, tmp_path: Path, way: str) -> None:
    other = make_key(tmp_path / "other")
    options = [pipe_to(sshd.port, tmp_path)] if way == "ProxyCommand" else []
    where, past = await known_login(sshd, host_user, tmp_path, f"IdentityFile={sshd.identity}", *options, key=other)
    sshd.identity.with_name("authorized_keys").write_text(other.with_suffix(".pub").read_text())
    assert (await report(where, past)).startswith("no: the pipelined login failed")
    login = await remembered(past, where)
    assert login is not None and login.key == (await last_login(sshd, other)).key
    assert await report(where, past) == PIPELINED


@pytest.mark.parametrize("tries", ["MaxAuthTries 1", "MaxAuthTries 6"])
async def test_a_second_factor_is_asked_for_as_ever(host_user: HostUser, tmp_path: Path, tries: str) -> None:
    subprocess.run(["chpasswd"], input=f"{host_user.name}:{PASSWORD}\n", text=True, check=True)
    options = ["PasswordAuthentication yes", "AuthenticationMethods publickey,password", tries]
    (tmp_path / "banner").write_text("Authorised persons only")
    options.append(f"Banner {tmp_path}/banner")
    async with serve(tmp_path / "server", options) as server:
        where, past = await known_login(server, host_user, tmp_path)
        for why in ("the pipelined login failed", "no login with one key alone is remembered"):
            person = Person(passwords=[PASSWORD])
            text = await report(where, past, person)
            assert why in text and text.endswith("the next login will not be either: this login asked for something")
            assert len(person.asked_passwords) == 1
            assert person.told == ["Authorised persons only"]
            assert await remembered(past, where) is None


async def test_nothing_is_signed_for_another_host_key(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    where = target(sshd, host_user)
    other = dataclasses.replace(await last_login(sshd), host_key="SHA256:other")
    past = await remembering(tmp_path, where, other)
    text = await report(where, past)  # known_hosts has the key: it was changed, and the person has accepted that
    assert text == "no: the host shows another key than the last time; the next login will be"
    assert await report(where, past) == PIPELINED
    sshd.log.write_text("")
    unknown = target(sshd, host_user, known=tmp_path / "empty")
    with pytest.raises(HostKeyError, match="not known"):
        await connect(unknown, NobodyToAsk(), past=past)
    assert "publickey" not in sshd.log.read_text()


async def test_nothing_is_signed_for_another_server_version(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    where = target(sshd, host_user)
    past = await remembering(tmp_path, where, dataclasses.replace(await last_login(sshd), server="SSH-2.0-OpenSSH_9.1"))
    assert await report(where, past) == "no: the server has another version than the last time; the next login will be"
    assert await report(where, past) == PIPELINED


async def test_the_keys_that_are_wanted_come_first_as_ever(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    """The same account may do more with one key than with another, and the person names the one they want."""
    other = make_key(tmp_path / "other")
    authorized = sshd.identity.with_name("authorized_keys")
    both = authorized.read_text() + other.with_suffix(".pub").read_text()
    where, past = await known_login(sshd, host_user, tmp_path)
    authorized.write_text(both)
    wanted = target(sshd, host_user, f"IdentityFile={other}")
    text = await report(wanted, past)
    assert text == "no: other keys come before the key of the last login now; the next login will be"
    login = await remembered(past, where)
    assert login is not None and login.key == (await last_login(sshd, other)).key
    assert await report(wanted, past) == PIPELINED
    text = await report(target(sshd, host_user, "PreferredAuthentications=password,publickey", key=other), past)
    assert text == "no: your ssh configuration does not begin with a key; the next login will be"


async def test_each_jump_gets_its_own(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = PastLogins(tmp_path / "past")
    async with relay(sshd.port) as link:
        only_config(tmp_path, monkeypatch).write_text(every_host(sshd.identity, sshd.trust(link.port)))
        where = target(sshd, host_user, f"ProxyJump={host_user.name}@127.0.0.1:{link.port}")
        assert (await report(where, past)).startswith("no: ")
        assert sshd.log.read_text().count("Postponed publickey") == 2
        assert await report(where, past) == PIPELINED
        assert sshd.log.read_text().count("Postponed publickey") == 2
        jump = SshTarget("127.0.0.1", host_user.name, link.port, (), ())
        assert await remembered(past, jump) is not None
        other = make_key(tmp_path / "other")
        both = SshTarget(where.host, where.user, where.port, (str(other), *where.identities), where.options)
        await remembering(tmp_path, both, await last_login(sshd, other))
        assert (await report(both, past)).startswith("no: the pipelined login failed"), "through the jump host"
        assert sshd.log.read_text().count("Postponed publickey") == 3, "the jump host was asked nothing"


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_a_certificate_signs_at_once_while_it_is_valid(host_user: HostUser, tmp_path: Path, kind: str) -> None:
    authority, key = make_key(tmp_path / "authority"), tmp_path / "mine"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-b", "2048", "-N", "", "-f", str(key)], check=True)

    certify(authority, key, host_user.name, "-V", "-1d:+1d")
    past = PastLogins(tmp_path / "past")
    async with serve(tmp_path / "server", [f"TrustedUserCAKeys {authority}.pub"]) as server:
        where = target(server, host_user, key=key)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == PIPELINED
        login = await remembered(past, where)
        assert login is not None and login.algorithm.endswith("-cert-v01@openssh.com")
        certify(authority, key, host_user.name, "-V", "-2d:-1d")
        (tmp_path / "server" / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
        assert "the certificate of the last login is not valid now" in await report(where, past)
        assert await report(where, past) == PIPELINED, "with the key itself"


async def test_a_locked_key_signs_at_once_when_it_was_unlocked(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    sshd.identity.with_name("authorized_keys").write_text(locked.with_suffix(".pub").read_text())
    where = target(sshd, host_user, key=locked)
    past, person = PastLogins(tmp_path / "past"), Person(passphrases=["secret", "secret"])
    assert (await report(where, past, person)).endswith("next login will not be either: this login asked for something")
    assert (await report(where, past, person)).endswith("the next login will be")
    assert await report(where, past, person) == PIPELINED
    text = await report(where, past, Person(passphrases=["secret"]))
    assert text.startswith("no: the key of the last login is locked by a passphrase")


SOMEBODY = HostUser("somebody", Path("/nowhere"), "/bin/sh")


def named_server(
    directory: Path, version: str, make: Callable[[], asyncssh.SSHServer] = asyncssh.SSHServer, **options: Any
) -> AbstractAsyncContextManager[Sshd]:
    """A server of asyncssh that calls itself `version`. Its commands say that they are here, and wait for the end."""

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"here\n")
        await process.stdin.read()
        process.exit(0)

    return asyncssh_server(directory, run, server_factory=make, server_version=version, **options)


async def test_a_command_waits_where_the_server_is_not_openssh(tmp_path: Path) -> None:
    past = PastLogins(tmp_path / "past")
    async with named_server(tmp_path, "Gateway_1.0") as server:
        where = target(server, SOMEBODY)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == SIGNED


@pytest.mark.parametrize("number", [0, 7])
async def test_a_server_that_does_not_bear_a_command_ahead_is_logged_in_to_again(tmp_path: Path, number: int) -> None:
    """It calls itself OpenSSH, but numbers channels otherwise, or opens them too late for the command."""

    class Pretender(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            vars(conn)["_next_recv_chan"] = number

    async with named_server(tmp_path, "OpenSSH_9.9", Pretender) as server:
        where, past = await known_login(server, SOMEBODY, tmp_path)
        assert "did not bear a command" in await report(where, past)
        for _ in range(2):  # it is not tried again
            assert await report(where, past) == SIGNED


async def test_a_server_that_hangs_up_is_logged_in_to_again_step_by_step(tmp_path: Path) -> None:
    began: list[str] = []

    class HangsUpOnce(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            self.connection = conn

        def begin_auth(self, username: str) -> bool:
            began.append(username)
            if len(began) == 1:
                self.connection.abort()
            return True

    async with named_server(tmp_path, "Gateway_1.0", HangsUpOnce) as server:
        where, past = await known_login(server, SOMEBODY, tmp_path)
        assert (await report(where, past)).startswith("no: the pipelined login failed")
        assert len(began) == 2
        assert await report(where, past) == SIGNED


class Borrowed(asyncssh.SSHKeyPair):
    """The public half of `shown`, which the person trusts, and signatures of another key."""

    def __init__(self, shown: Path, own: Path) -> None:
        public = asyncssh.read_public_key(shown)
        kinds = public.sig_algorithms
        super().__init__(public.algorithm, public.algorithm, kinds, kinds, public.public_data, None)
        self._own = asyncssh.read_private_key(own)

    def sign(self, data: bytes) -> bytes:
        return self._own.sign(data, self.sig_algorithm)


@pytest.mark.parametrize("known", ["another key", "the key that it borrows"])
async def test_nothing_is_signed_before_the_host_key_is_verified(tmp_path: Path, known: str) -> None:
    """The laptop remembers the key that this server shows."""
    began: list[str] = []

    class Mallory(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            began.append(username)
            return True

    other, real = make_key(tmp_path / "other"), make_key(tmp_path / "real")
    shown = Borrowed(real.with_suffix(".pub"), other) if known == "the key that it borrows" else None
    keys = {} if shown is None else {"server_host_keys": [shown]}
    async with named_server(tmp_path, "OpenSSH_9.9", Mallory, **keys) as server:
        where = target(server, SOMEBODY)
        login = await last_login(server)
        if shown is not None:
            login = dataclasses.replace(login, host_key=fingerprint(shown.public_data))
        past = await remembering(tmp_path, where, login)
        trusted = (real if shown is not None else other).with_suffix(".pub").read_text()
        server.known_hosts.write_text(f"[127.0.0.1]:{server.port} {trusted}")
        with pytest.raises(ConnectError, match="has changed" if shown is None else "no SSH connection"):
            await report(where, past)
        assert not began
        assert await remembered(past, where) == login


async def test_a_server_that_is_silent_is_logged_in_to_again(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.tunnel.ssh.pipelined_connection.OPEN_S", 0.1)
    async with relay(sshd.port) as link:
        where, past = await known_login(sshd, host_user, tmp_path, port=link.port, known=sshd.trust(link.port))
        async with logged_in(where, past=past) as transport:
            link.freeze()
            starting = asyncio.create_task(transport.execute("echo here; exec cat"))
            await transport.connection.wait_closed()
            link.thaw()
            pipe = await starting
            assert await pipe.read() == b"here\n"
            await pipe.close()
        assert await report(where, past) == SIGNED


@pytest.mark.parametrize("limit", ["MaxSessions 0", "MaxSessions 1"])
async def test_a_server_that_opens_few_channels(host_user: HostUser, tmp_path: Path, limit: str) -> None:
    async with serve(tmp_path / "server", [limit]) as server:
        where, past = await known_login(server, host_user, tmp_path)
        if limit == "MaxSessions 1":
            assert await report(where, past) == PIPELINED
            return
        with pytest.raises(Unreachable, match="refused to run a command") as caught:
            await report(where, past)
        assert "MaxSessions" in caught.value.do


async def test_later_commands_and_their_ends_are_as_ever(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server", ["AcceptEnv LC_*"]) as server:
        where, past = await known_login(server, host_user, tmp_path, "SetEnv=LC_MINE=mine", "Compression=yes")
        async with logged_in(where, past=past) as transport:
            for _ in range(2):
                pipe = await transport.execute("echo no >&2; printf $LC_MINE; head -c 5; exit 7")
                await pipe.write(b"hello")
                assert (await everything(pipe), await pipe.exit_status()) == (b"minehello", 7)
                assert pipe.stderr_tail() == "no\n"
                await pipe.close()
            assert transport.pipelining.report() == PIPELINED
        async with logged_in(where, past=past) as transport:  # answer, output and end may come in one read
            assert await output(transport, "seq 100000 | tail -n 1") == "100000\n"


LOGIN = PastLogin("SHA256:host", "SSH-2.0-OpenSSH_9.2", "SHA256:key", "ssh-ed25519", "ssh-ed25519", channel=0)


@pytest.fixture(scope="module")
def config() -> HostConfig:
    return asyncio.run(route(SshTarget("127.0.0.1", "ann", 2222, (), ("ProxyJump=none",))))[-1].config


def test_the_last_login_to_each_place_is_remembered_where_that_can_be_written(
    tmp_path: Path, config: HostConfig
) -> None:
    past = PastLogins(tmp_path / "a" / "logins")
    assert past.last(config) is None
    past.forget(config)
    past.remember(config, replace(LOGIN, channel=None))
    past.remember(config, LOGIN)
    assert past.last(config) == LOGIN
    for other in (replace(config, port=22), replace(config, user="bob"), replace(config, hostname="127.0.0.2")):
        assert past.last(other) is None
    past.forget(config)
    assert past.last(config) is None
    assert list((tmp_path / "a" / "logins").iterdir()) == []
    (tmp_path / "file").touch()
    nowhere = PastLogins(tmp_path / "file")
    nowhere.remember(config, LOGIN)
    nowhere.forget(config)
    assert nowhere.last(config) is None


def test_what_is_no_login_counts_as_none(tmp_path: Path, config: HostConfig) -> None:
    past = PastLogins(tmp_path)
    past.remember(config, LOGIN)
    [path] = tmp_path.iterdir()
    for content in (
        "",
        "[]",
        "[" * 4000,
        json.dumps({**asdict(LOGIN), "key": 1}),
        json.dumps({**asdict(LOGIN), "channel": "0"}),
        json.dumps({**asdict(LOGIN), "more": ""}),
        json.dumps({"key": "SHA256:key"}),
    ):
        path.write_text(content)
        assert past.last(config) is None, content
    path.write_text(json.dumps(asdict(LOGIN)))
    assert past.last(config) == LOGIN
    path.chmod(0o620)
    assert past.last(config) is None, "others may have written it"
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert past.last(config) is None
    path.unlink()
    os.mkfifo(path)
    assert past.last(config) is None
