"""Logins of a person over a real sshd: which keys are offered in which order, passphrases, passwords, questions."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import asyncssh
import pytest
from tests.support.hosts.sshd import HostUser, Sshd, certify, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.login import Person, every_host, logged_in, logs_in, only_config, output, refused, target
from tests.support.person.pipelined import PIPELINED, last_login, remembered, remembering, report
from tests.support.person.ssh_agent import ssh_add, ssh_agent

from ccb.tunnel.errors import AuthFailed
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.login_client import LoginClient
from ccb.tunnel.ssh.past_logins import PastLogins
from ccb.tunnel.ssh.pipelined_connection import PipelinedConnection, Proof
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import NobodyToAsk

PASSWORD = "open, sesame"
ASKS = "PasswordAuthentication yes"


def authorize(server: Sshd, *keys: Path) -> None:
    """Let exactly `keys` in."""
    lines = "".join(key.with_name(key.name + ".pub").read_text() for key in keys)
    server.identity.with_name("authorized_keys").write_text(lines)


def set_password(user: HostUser) -> None:
    subprocess.run(["chpasswd"], input=f"{user.name}:{PASSWORD}\n", text=True, check=True)


def failures(server: Sshd) -> int:
    return server.log.read_text().count("Failed publickey")


def by_agent(server: Sshd, user: HostUser, agent: Path, *options: str, identities: Sequence[Path] = ()) -> SshTarget:
    known = f"UserKnownHostsFile={server.known_hosts}"
    files = tuple(map(str, identities)) or ("/nonexistent",)
    return SshTarget("127.0.0.1", user.name, server.port, files, (known, f"IdentityAgent={agent}", *options))


@pytest.mark.parametrize("where", ["beside the key", "CertificateFile", "of a key in the agent", "of a locked key"])
async def test_a_certificate_logs_in(host_user: HostUser, tmp_path: Path, where: str) -> None:
    authority = make_key(tmp_path / "authority")
    key = make_key(tmp_path / "mine", passphrase="secret" if where == "of a locked key" else "")
    certificate = certify(authority, key, host_user.name)
    if where != "beside the key":
        certificate = certificate.rename(tmp_path / "elsewhere.pub")
    accepted = "PubkeyAcceptedAlgorithms=ssh-ed25519-cert-v01@openssh.com"
    options = (f"CertificateFile={certificate}",) if where != "beside the key" else (accepted,)
    async with serve(tmp_path / "server", [f"TrustedUserCAKeys {authority}.pub"]) as server:
        authorize(server)
        if where == "of a key in the agent":
            async with ssh_agent(tmp_path, key) as agent:
                key.unlink()
                await logs_in(by_agent(server, host_user, agent, *options, "IdentitiesOnly=yes", identities=[key]))
        else:
            await logs_in(target(server, host_user, *options, key=key), Person(passphrases=["secret"]))
        assert "Accepted publickey" in server.log.read_text() and "ED25519-CERT" in server.log.read_text()


async def test_a_key_file_that_gives_no_key_is_named(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    missing, text = tmp_path / "missing", tmp_path / "notes"
    text.write_text("no key")
    options = tuple(target(sshd, host_user).options)
    with pytest.raises(AuthFailed) as caught:
        files = (str(missing), str(text))
        await connect(SshTarget("127.0.0.1", host_user.name, sshd.port, files, options), NobodyToAsk())
    assert f"{missing}: No such file or directory" in caught.value.evidence
    assert f"{text}: not a private key that can be read" in caught.value.evidence


async def test_a_certificate_that_is_no_longer_valid_is_named(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    key = make_key(tmp_path / "mine")
    certify(make_key(tmp_path / "authority"), key, host_user.name, "-V", "-2d:-1d")
    error = await refused(AuthFailed, target(sshd, host_user, key=key))
    assert "Certificate expired: the one of SHA256:" in error.evidence


async def test_an_agent_that_dies_is_passed_over(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    agent = socket.socket(socket.AF_UNIX)
    agent.bind(str(path))
    agent.listen()

    def die() -> None:
        """Leave with the request unread, as who is killed."""
        client, _ = agent.accept()
        client.recv(1, socket.MSG_PEEK)
        client.close()
        agent.close()

    dying = asyncio.create_task(asyncio.to_thread(die))
    where = by_agent(sshd, host_user, path, identities=[sshd.identity])
    await logs_in(where)
    await dying
    error = await refused(AuthFailed, by_agent(sshd, host_user, path))
    assert f"The agent at {path} does not answer" in error.evidence


async def test_an_agent_with_more_keys_than_the_server_bears(host_user: HostUser, tmp_path: Path) -> None:
    keys = [make_key(tmp_path / f"key{number}") for number in range(8)]
    async with serve(tmp_path / "server", ["MaxAuthTries 4"]) as server, ssh_agent(tmp_path, *keys) as agent:
        authorize(server, keys[7])
        error = await refused(AuthFailed, by_agent(server, host_user, agent), match="too many keys")
        assert "8 public keys of the agent" in error.evidence
        assert "IdentitiesOnly=yes" in error.do
        server.log.write_text("")
        public_half = keys[7].with_suffix(".pub")
        for identity in (keys[7], public_half):  # it comes first, also when only its public half is named
            await logs_in(by_agent(server, host_user, agent, identities=[identity]))
        await logs_in(by_agent(server, host_user, agent, "IdentitiesOnly=yes", identities=[public_half]))
        assert failures(server) == 0


async def test_a_key_of_the_agent_is_not_offered_again_from_its_file(host_user: HostUser, tmp_path: Path) -> None:
    keys = [make_key(tmp_path / f"key{number}") for number in range(3)]
    async with serve(tmp_path / "server", ["MaxAuthTries 4"]) as server, ssh_agent(tmp_path, *keys[:2]) as agent:
        authorize(server, keys[2])
        await logs_in(by_agent(server, host_user, agent, identities=keys))
        assert failures(server) == 2


async def test_a_locked_key_that_nobody_wants_is_not_asked_for(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    person = Person(passphrases=["secret"])
    where = target(sshd, host_user, f"IdentityFile={sshd.identity}", key=locked)
    await logs_in(where, person)
    assert not person.asked_passphrases


async def test_a_passphrase_is_asked_for_once_in_all_logins_of_a_process(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    async with serve(tmp_path / "jump") as jump:
        authorize(jump, locked)
        authorize(sshd, locked)
        known = tmp_path / "known_hosts"
        known.write_text(sshd.known_hosts.read_text() + jump.known_hosts.read_text())
        only_config(tmp_path, monkeypatch).write_text(every_host(locked, known))
        where = target(sshd, host_user, f"ProxyJump={host_user.name}@127.0.0.1:{jump.port}", known=known, key=locked)
        person = Person(passphrases=["wrong", "secret"])
        await logs_in(where, person)
        assert person.asked_passphrases == [str(locked)] * 2
        await logs_in(where, NobodyToAsk(person.memory))
        error = await refused(AuthFailed, where)
        assert str(locked) in error.evidence
        assert "secret" not in repr(vars(person.memory))


@pytest.mark.parametrize("kind", ["PEM", "PKCS8"])
async def test_a_locked_key_in_an_old_format(sshd: Sshd, host_user: HostUser, tmp_path: Path, kind: str) -> None:
    locked = tmp_path / "old"
    command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", kind, "-N", "secret", "-f", str(locked)]
    subprocess.run(command, check=True)
    authorize(sshd, locked)
    await logs_in(target(sshd, host_user, key=locked), Person(passphrases=["secret"]))
    locked.with_suffix(".pub").unlink()
    error = await refused(AuthFailed, target(sshd, host_user, key=locked), Person(passphrases=["secret"]))
    assert "old.pub, which names it, is missing" in error.evidence


async def test_a_password_is_asked_for_three_times(host_user: HostUser, tmp_path: Path) -> None:
    set_password(host_user)
    async with serve(tmp_path / "server", [ASKS]) as server:
        authorize(server)
        person = Person(passwords=["no", "nope", PASSWORD])
        await logs_in(target(server, host_user), person)
        assert person.asked_passwords == [f"{host_user.name}@127.0.0.1"] * 3
        await refused(AuthFailed, target(server, host_user), Person(), match="was cancelled")
        person = Person(passwords=["no"] * 4)
        await refused(AuthFailed, target(server, host_user), person, match="refused")
        assert len(person.asked_passwords) == 3
        for option in ("NumberOfPasswordPrompts=0", "PasswordAuthentication=no", "BatchMode=yes"):
            person = Person(passwords=[PASSWORD])
            await refused(AuthFailed, target(server, host_user, option), person)
            assert not person.asked_passwords


@pytest.mark.parametrize("order", ["publickey,password", "password,publickey"])
async def test_a_key_and_a_password_are_both_wanted(host_user: HostUser, tmp_path: Path, order: str) -> None:
    set_password(host_user)
    async with serve(tmp_path / "server", [ASKS, f"AuthenticationMethods {order}"]) as server:
        person = Person(passwords=[PASSWORD])
        async with logged_in(target(server, host_user), person) as transport:
            assert (await output(transport, "id -un")).strip() == host_user.name
        assert len(person.asked_passwords) == 1
        await refused(AuthFailed, target(server, host_user))


async def test_a_server_that_wants_a_password_is_not_said_to_lack_a_key(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server", [ASKS, "PubkeyAuthentication no"]) as server:
        for where in (target(server, host_user), target(server, host_user, "BatchMode=yes")):
            error = await refused(AuthFailed, where)
            assert "Tried: nothing, it asked for no key." in error.evidence
            assert "The server wants a password, and nobody can be asked for it here" in error.evidence
            assert "in a terminal" in error.do


async def test_a_key_that_was_not_enough_is_said_to_be_accepted(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server", [ASKS, "AuthenticationMethods publickey,password"]) as server:
        error = await refused(AuthFailed, target(server, host_user))
        assert "The key was accepted, but this server wants more than a key." in error.evidence
        assert "The server wants a password" in error.evidence
        authorize(server)
        error = await refused(AuthFailed, target(server, host_user))
        assert "accepted" not in error.evidence and "password" not in error.evidence


async def test_gssapi_is_named_where_nothing_else_was_tried(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server") as server:
        for option, named in (("PubkeyAuthentication=no", True), ("PubkeyAuthentication=yes", False)):
            authorize(server)
            error = await refused(AuthFailed, target(server, host_user, "GSSAPIAuthentication=yes", option))
            assert ("only --transport ssh logs in by it" in error.evidence) is named


async def test_two_keys_are_wanted(host_user: HostUser, tmp_path: Path) -> None:
    first, second = make_key(tmp_path / "first"), make_key(tmp_path / "second", passphrase="secret")
    async with serve(tmp_path / "server", ["AuthenticationMethods publickey,publickey"]) as server:
        authorize(server, first, second)
        where = target(server, host_user, f"IdentityFile={second}", key=first)
        await logs_in(where, Person(passphrases=["secret"]))


@pytest.mark.parametrize("methods", ["keyboard-interactive", "publickey,keyboard-interactive"])
async def test_pam_asks_for_the_password(host_user: HostUser, tmp_path: Path, methods: str) -> None:
    set_password(host_user)
    options = ["UsePAM yes", "KbdInteractiveAuthentication yes", f"AuthenticationMethods {methods}"]
    async with serve(tmp_path / "server", options) as server:
        person = Person(answers=[["wrong"], [PASSWORD]])
        await logs_in(target(server, host_user), person)
        prompt = f"({host_user.name}@127.0.0.1) Password: "  # as ssh: on the way over jump hosts, who is it that asks?
        assert [prompts for _, _, prompts in person.challenges] == [[(prompt, False)]] * 2


async def test_a_banner_is_shown_without_what_would_drive_the_terminal(host_user: HostUser, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Authorised use only \x1b[2J\x1b]0;owned\x07\n")
    async with serve(tmp_path / "server", [f"Banner {banner}"]) as server:
        person = Person()
        await logs_in(target(server, host_user), person)
        assert "Authorised use only" in person.told[0]
        assert "\x1b" not in person.told[0] and "\x07" not in person.told[0]


async def test_the_agent_keeps_an_unlocked_key_when_it_shall(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    authorize(sshd, locked)
    async with ssh_agent(tmp_path) as path:
        for keeps, kept in (("no", 0), ("30m", 1)):
            person = Person(passphrases=["secret"])
            options = (f"IdentityAgent={path}", f"AddKeysToAgent={keeps}")
            await logs_in(target(sshd, host_user, *options, key=locked), person)
            env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            listed = subprocess.run(["ssh-add", "-l"], env=env, capture_output=True, text=True, check=False)
            assert listed.stdout.count("ED25519") == kept
        locked.write_bytes(b"")  # the public half says which key is meant
        await logs_in(target(sshd, host_user, f"IdentityAgent={path}", key=locked))


async def test_several_questions_at_once_and_a_round_without_any() -> None:
    """As servers with a push to a phone do."""
    person = Person(answers=[["123456", "blue"]])
    client = LoginClient("ann@box", await resolve(SshTarget("127.0.0.1", "ann")), person)
    questions = [("Code: ", False), ("Colour\x1b[2J: ", True)]
    assert client.kbdint_auth_requested() == ""
    answers = await client.kbdint_challenge_received("Bank\x1b[31m", "Two questions.\x07", "", questions)
    assert answers == ["123456", "blue"]
    assert await client.kbdint_challenge_received("", "Pushed a login request to your phone.", "", []) == []
    ((title, instructions, prompts),) = person.challenges
    assert "Bank" in title and "Two questions." in instructions
    assert [echo for _, echo in prompts] == [False, True]
    assert not set("\x1b\x07") & set(title + instructions + prompts[1][0])
    assert person.told == ["Pushed a login request to your phone."]
    assert await client.kbdint_challenge_received("", "", "", questions) is None
    assert client.kbdint_auth_requested() is None, "who gives up is not asked again"


async def test_a_server_that_loses_patience_is_no_lost_connection(host_user: HostUser, tmp_path: Path) -> None:
    set_password(host_user)
    async with serve(tmp_path / "server", [ASKS, "LoginGraceTime 1", "AuthenticationMethods password"]) as server:

        class Absent(Person):
            async def password(self, prompt: str, attempt: int) -> str | None:
                await asyncio.Event().wait()
                return None

        with pytest.raises(AuthFailed, match="closed the connection during the login"):
            await asyncio.wait_for(connect(target(server, host_user), Absent()), 60)


async def test_a_key_signs_at_once_while_the_agent_has_it(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    past = PastLogins(tmp_path / "past")
    async with ssh_agent(tmp_path) as agent:
        ssh_add(agent, str(sshd.identity))
        where = by_agent(sshd, host_user, agent)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == PIPELINED
        assert "the agent may ask" in await report(by_agent(sshd, host_user, agent, "AddKeysToAgent=confirm 1h"), past)
        ssh_add(agent, "-D")
        text = await report(target(sshd, host_user, "IdentityFile=/nonexistent", f"IdentityAgent={agent}"), past)
        assert text == PIPELINED, "its file signs as well"
        other = make_key(tmp_path / "other")
        sshd.identity.with_name("authorized_keys").write_text(other.with_suffix(".pub").read_text())
        text = await report(target(sshd, host_user, f"IdentityAgent={agent}", key=other), past)
        assert text.startswith("no: the key of the last login is neither in a file nor in the agent; the next login")


async def test_an_agent_that_asks_before_it_signs_is_not_asked_at_once(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.tunnel.ssh.pipelined_connection.AT_ONCE_S", 0.1)
    async with ssh_agent(tmp_path, askpass="sleep 0.2") as agent:  # a person who thinks before they confirm
        ssh_add(agent, "-c", str(sshd.identity))
        where = by_agent(sshd, host_user, agent)
        past = await remembering(tmp_path, where, await last_login(sshd))
        assert await report(where, past) == PIPELINED, "nobody has noticed yet"
        assert await remembered(past, where) is None
        assert (await report(where, past)).endswith("to sign: somebody may have to confirm that")


def test_a_security_key_is_never_remembered() -> None:
    kind = b"sk-ssh-ed25519@openssh.com"
    pair = asyncssh.SSHKeyPair(kind, kind, (kind,), (kind,), b"public", None)
    login = SimpleNamespace(proofs=[Proof(b"publickey", pair, 0.0)], host_key="SHA256:host", server="SSH-2.0-OpenSSH")
    why = PipelinedConnection.to_remember(cast(PipelinedConnection, login), [b"public"])
    assert why == "the key is a security key, which may want to be touched"
