"""What hosts on the way ask through the OpenSSH client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import asyncssh
import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.ssh_asks import SshAsks, ssh_environment

from ccb.tunnel.errors import AuthFailed
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.askpass import AskingTransport
from ccb.tunnel.transports.command_transport import PipeCommand
from ccb.tunnel.transports.login_failures import wrapper_failure


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    with ssh_environment(tmp_path) as environment:
        yield environment


class Slow(SshAsks):
    """Answers each question of ssh with `given`, but only when `found` is set; None gives up."""

    def __init__(self, given: str | None) -> None:
        super().__init__()
        self.waits = asyncio.Event()
        self.found = asyncio.Event()
        self._given = given

    async def answer(self) -> str | None:
        self.waits.set()
        await self.found.wait()
        return self._given


async def test_a_jump_host_that_asks_may_be_answered_after_a_long_time(
    sshd: Sshd, host_user: HostUser, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssh, "_CONNECT_S", 1)
    locked = make_key(tmp_path / "locked", passphrase="open sesame")
    async with serve(tmp_path / "hop") as hop:
        hop.identity.with_name("authorized_keys").write_text(locked.with_suffix(".pub").read_text())
        config = tmp_path / "config"
        config.write_text(
            f"Host hop\nHostName 127.0.0.1\nPort {hop.port}\nIdentityFile {locked}\n"
            f"UserKnownHostsFile {hop.known_hosts}\n"
            f"Host *\nUser {host_user.name}\nIdentitiesOnly yes\n"
        )
        known = f"UserKnownHostsFile={sshd.known_hosts}"
        where = SshTarget("127.0.0.1", None, sshd.port, (str(sshd.identity),), (known, "ProxyJump=hop"))
        person = Slow("open sesame")
        words = ("ssh", "-F", str(config))
        logging_in = asyncio.create_task(openssh.connect(where, person, env=env, words=words))
        await asyncio.wait_for(person.waits.wait(), 60)
        await asyncio.wait({logging_in}, timeout=3)  # longer than a host may take to greet
        assert not logging_in.done()
        person.found.set()
        await (await asyncio.wait_for(logging_in, 30)).close()


async def test_who_does_not_want_to_give_a_password_is_not_asked_again(
    host_user: HostUser, env: dict[str, str], tmp_path: Path
) -> None:
    options = ["PasswordAuthentication yes", "AuthenticationMethods password"]
    async with serve(tmp_path / "server", options) as server:
        known = f"UserKnownHostsFile={server.known_hosts}"
        where = SshTarget("127.0.0.1", host_user.name, server.port, (), (known,))
        person = Slow(None)
        person.found.set()
        with pytest.raises(AuthFailed, match="was cancelled"):
            await openssh.connect(where, person, env=env, words=("ssh", "-F", "/dev/null"))
        assert len(person.asked) == 1
        assert "Failed password" not in server.log.read_text()


class Phone(asyncssh.SSHServer):
    """Answers only when the phone was found."""

    found: asyncio.Event

    def begin_auth(self, username: str) -> bool:
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "", "", "", [("Passcode: ", False)]

    async def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        await self.found.wait()
        return True


async def test_a_server_may_wait_for_a_phone(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssh, "KEEPALIVE_S", 1)
    Phone.found = asyncio.Event()
    key = make_key(tmp_path / "host")
    server = await asyncssh.listen("127.0.0.1", 0, server_factory=Phone, server_host_keys=[str(key)])
    try:
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.get_port()} {key.with_suffix('.pub').read_text()}")
        where = SshTarget("127.0.0.1", "me", server.get_port(), (), (f"UserKnownHostsFile={known}",))
        person = Slow("1")
        person.found.set()
        words = ("ssh", "-F", "/dev/null")
        logging_in = asyncio.create_task(openssh.connect(where, person, env=env, words=words))
        await asyncio.wait_for(person.waits.wait(), 60)
        await asyncio.wait({logging_in}, timeout=4)  # the server says nothing meanwhile
        assert not logging_in.done()
        Phone.found.set()
        await (await asyncio.wait_for(logging_in, 30)).close()
    finally:
        server.close()
        await server.wait_closed()


async def test_behind_a_wrapper_who_gives_up_is_not_asked_again_by_the_same_ssh(
    host_user: HostUser, env: dict[str, str], tmp_path: Path
) -> None:
    options = ["PasswordAuthentication yes", "AuthenticationMethods password"]
    async with serve(tmp_path / "server", options) as server:
        known = f"UserKnownHostsFile={server.known_hosts}"
        words = ["ssh", "-F", "/dev/null", "-o", known, "-p", str(server.port), f"{host_user.name}@127.0.0.1"]
        person = Slow(None)
        person.found.set()
        failure = partial(wrapper_failure, "box", "wrap")
        wrapper = await AskingTransport.open(
            PipeCommand("box", "wrap", lambda line: [*words, line], failure), person, env
        )
        try:
            for times in (1, 2):
                with pytest.raises(AuthFailed):
                    await (await wrapper.execute("true")).read()
                assert len(person.asked) == times
        finally:
            await wrapper.close()
