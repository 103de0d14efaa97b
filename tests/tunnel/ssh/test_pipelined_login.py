"""Pipelined logins over real sshds: what they save, and that whatever prevents one costs nothing but the saving."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import relay
from tests.support.person.login import Person, every_host, logged_in, only_config, pipe_to, target
from tests.support.person.pipelined import PIPELINED, last_login, remembered, remembering, report

from ccb.tunnel.errors import AuthFailed, HostKeyError
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.past_logins import PastLogins
from ccb.tunnel.ssh.pipelined_connection import PipelinedConnection
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


async def test_the_first_command_does_not_wait_for_the_end_of_the_login(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    async with relay(sshd.port) as link:
        link.delay_s = 0.1
        where = target(sshd, host_user, port=link.port, known=sshd.trust(link.port))
        past = await remembering(tmp_path, where, await last_login(sshd))
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
    where = target(sshd, host_user)
    past = await remembering(tmp_path, where, await last_login(sshd))
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
    where = target(sshd, host_user, f"IdentityFile={sshd.identity}", *options, key=other)
    past = await remembering(tmp_path, where, await last_login(sshd))
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
        where = target(server, host_user)
        past = await remembering(tmp_path, where, await last_login(server))
        for why in ("the pipelined login failed", "no login with one key alone is remembered"):
            person = Person(passwords=[PASSWORD])
            text = await report(where, past, person)
            assert why in text and text.endswith("the next login will not be either: this login asked for something")
            assert len(person.asked_passwords) == 1
            assert person.told == ["Authorised persons only"]
            assert await remembered(past, where) is None


async def test_a_key_that_is_refused_where_one_failure_is_the_end(host_user: HostUser, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    async with serve(tmp_path / "server", ["MaxAuthTries 1"]) as server:
        where = target(server, host_user, key=other)
        past = await remembering(tmp_path, where, await last_login(server, other))
        with pytest.raises(AuthFailed) as caught:
            await report(where, past)
        assert "MaxAuthTries" in caught.value.what and "1 public key in files" in caught.value.evidence
        server.identity.with_name("authorized_keys").write_text(other.with_suffix(".pub").read_text())
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == PIPELINED


async def test_a_login_that_fails_before_the_command_is_on_its_way_is_said_as_such(
    host_user: HostUser, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other")
    async with serve(tmp_path / "server", ["MaxAuthTries 1"]) as server:
        where = target(server, host_user, key=other)
        past = await remembering(tmp_path, where, await last_login(server, other))
        async with logged_in(where, NobodyToAsk(), past) as transport:
            assert not await transport.pipelining.ended()
            with pytest.raises(AuthFailed, match="MaxAuthTries"):
                await transport.execute("echo here")


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


async def test_nothing_is_signed_for_another_version_of_the_server(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    where = target(sshd, host_user)
    past = await remembering(tmp_path, where, dataclasses.replace(await last_login(sshd), server="SSH-2.0-OpenSSH_9.1"))
    assert await report(where, past) == "no: the server has another version than the last time; the next login will be"
    assert await report(where, past) == PIPELINED


async def test_the_keys_that_are_wanted_come_first_as_ever(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    """The same account may do more with one key than with another, and the person names the one they want."""
    other = make_key(tmp_path / "other")
    authorized = sshd.identity.with_name("authorized_keys")
    both = authorized.read_text() + other.with_suffix(".pub").read_text()
    where = target(sshd, host_user)
    past = await remembering(tmp_path, where, await last_login(sshd))
    authorized.write_text(both)
    wanted = target(sshd, host_user, f"IdentityFile={other}")
    text = await report(wanted, past)
    assert text == "no: other keys come before the key of the last login now; the next login will be"
    login = await remembered(past, where)
    assert login is not None and login.key == (await last_login(sshd, other)).key
    assert await report(wanted, past) == PIPELINED
    text = await report(target(sshd, host_user, "PreferredAuthentications=password,publickey", key=other), past)
    assert text == "no: your ssh configuration does not begin with a key; the next login will be"


async def test_each_jump_host_is_logged_in_to_by_what_it_needed(
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

    def certify(validity: str) -> None:
        names = ["-I", "person", "-n", host_user.name, "-V", validity]
        subprocess.run(["ssh-keygen", "-q", "-s", str(authority), *names, f"{key}.pub"], check=True)

    certify("-1d:+1d")
    past = PastLogins(tmp_path / "past")
    async with serve(tmp_path / "server", [f"TrustedUserCAKeys {authority}.pub"]) as server:
        where = target(server, host_user, key=key)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == PIPELINED
        login = await remembered(past, where)
        assert login is not None and login.algorithm.endswith("-cert-v01@openssh.com")
        certify("-2d:-1d")
        (tmp_path / "server" / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
        assert "the certificate of the last login is not valid now" in await report(where, past)
        assert await report(where, past) == PIPELINED, "with the key itself"


async def test_a_locked_key_signs_at_once_when_this_process_has_unlocked_it(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    sshd.identity.with_name("authorized_keys").write_text(locked.with_suffix(".pub").read_text())
    where = target(sshd, host_user, key=locked)
    past, person = PastLogins(tmp_path / "past"), Person(passphrases=["secret", "secret"])
    assert (await report(where, past, person)).endswith(
        "the next login will not be either: this login asked for something"
    )
    assert (await report(where, past, person)).endswith("the next login will be")
    assert await report(where, past, person) == PIPELINED
    text = await report(where, past, Person(passphrases=["secret"]))
    assert text.startswith("no: the key of the last login is locked by a passphrase")
