"""Pipelined logins to servers other than OpenSSH, and to servers that do otherwise than the last time."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import relay
from tests.support.person.login import logged_in, output, target
from tests.support.person.pipelined import PIPELINED, SIGNED, last_login, remembered, remembering, report

from ccb.tunnel.errors import ConnectError, Unreachable
from ccb.tunnel.ssh.past_logins import PastLogins, fingerprint
from ccb.tunnel.ssh_config.ssh_target import SshTarget

SOMEBODY = HostUser("somebody", Path("/nowhere"), "/bin/sh")


@asynccontextmanager
async def asyncssh_server(
    directory: Path,
    version: str,
    make: Callable[[], asyncssh.SSHServer] = asyncssh.SSHServer,
    shown: asyncssh.SSHKeyPair | None = None,
) -> AsyncIterator[Sshd]:
    """A server of asyncssh that calls itself `version`. Its commands say that they are here, and wait for the end."""
    host_key, identity = make_key(directory / "host_ed25519"), make_key(directory / "id_ed25519")

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        process.stdout.write(b"here\n")
        await process.stdin.read()
        process.exit(0)

    listener = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=make,
        server_version=version,
        server_host_keys=[shown or str(host_key)],
        authorized_client_keys=f"{identity}.pub",
        process_factory=run,
        encoding=None,
    )
    server = Sshd(listener.get_port(), identity, directory / "known_hosts", host_key, directory / "log")
    server.trust(server.port)
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def test_a_command_waits_where_the_server_is_not_openssh(tmp_path: Path) -> None:
    past = PastLogins(tmp_path / "past")
    async with asyncssh_server(tmp_path, "Gateway_1.0") as server:
        where = target(server, SOMEBODY)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == SIGNED


@pytest.mark.parametrize("number", [0, 7])
async def test_a_server_that_does_not_bear_a_command_ahead_is_logged_in_to_again(tmp_path: Path, number: int) -> None:
    """It calls itself OpenSSH, but numbers channels otherwise, or opens them too late for the command."""

    class Pretender(asyncssh.SSHServer):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            vars(conn)["_next_recv_chan"] = number

    async with asyncssh_server(tmp_path, "OpenSSH_9.9", Pretender) as server:
        where = target(server, SOMEBODY)
        past = await remembering(tmp_path, where, await last_login(server))
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

    async with asyncssh_server(tmp_path, "Gateway_1.0", HangsUpOnce) as server:
        where = target(server, SOMEBODY)
        past = await remembering(tmp_path, where, await last_login(server))
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
    async with asyncssh_server(tmp_path, "OpenSSH_9.9", Mallory, shown) as server:
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
        where = target(sshd, host_user, port=link.port, known=sshd.trust(link.port))
        past = await remembering(tmp_path, where, await last_login(sshd))
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
        where = target(server, host_user)
        past = await remembering(tmp_path, where, await last_login(server))
        if limit == "MaxSessions 1":
            assert await report(where, past) == PIPELINED
            return
        with pytest.raises(Unreachable, match="refused to run a command") as caught:
            await report(where, past)
        assert "MaxSessions" in caught.value.do


async def test_later_commands_and_their_ends_are_as_ever(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server", ["AcceptEnv LC_*"]) as server:
        where = target(server, host_user, "SetEnv=LC_MINE=mine", "Compression=yes")
        past = await remembering(tmp_path, where, await last_login(server))
        async with logged_in(where, past=past) as transport:
            for _ in range(2):
                pipe = await transport.execute("echo no >&2; printf $LC_MINE; head -c 5; exit 7")
                await pipe.write(b"hello")
                said = b""
                while data := await pipe.read():
                    said += data
                assert (said, await pipe.exit_status(), pipe.stderr_tail()) == (b"minehello", 7, "no\n")
                await pipe.close()
            assert transport.pipelining.report() == PIPELINED
        async with logged_in(where, past=past) as transport:  # answer, output and end may come in one read
            assert await output(transport, "seq 100000 | tail -n 1") == "100000\n"


@pytest.mark.skipif(shutil.which("dropbear") is None, reason="there is no dropbear here")
async def test_dropbear(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    (host_user.home / ".ssh").mkdir(mode=0o700)
    authorized = host_user.home / ".ssh" / "authorized_keys"
    authorized.write_text(sshd.identity.with_suffix(".pub").read_text())
    for path in (authorized.parent, authorized):
        shutil.chown(path, host_user.name)
    key = tmp_path / "dropbear_key"
    made = subprocess.run(["dropbearkey", "-t", "ed25519", "-f", str(key)], capture_output=True, text=True, check=True)
    public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519"))
    async with _dropbear(key) as port:
        known = tmp_path / "known"
        known.write_text(f"[127.0.0.1]:{port} {public}\n")
        where = target(sshd, host_user, port=port, known=known)
        past = PastLogins(tmp_path / "past")
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == SIGNED
        other = make_key(tmp_path / "other")
        authorized.write_text(other.with_suffix(".pub").read_text())
        both = SshTarget(where.host, where.user, port, (*where.identities, str(other)), where.options)
        assert (await report(both, past)).startswith("no: the pipelined login failed")
        assert await report(both, past) == SIGNED


@asynccontextmanager
async def _dropbear(key: Path) -> AsyncIterator[int]:
    for port in range(20000 + key.stat().st_ino % 10000, 65000):
        server = await asyncio.create_subprocess_exec(
            "dropbear", "-F", "-E", "-s", "-r", str(key), "-p", f"127.0.0.1:{port}", "-P", f"{key}.pid",
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert server.stderr is not None
        line = await server.stderr.readline()
        if b"Failed" not in line:
            break
        await server.wait()
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    break
        yield port
    finally:
        server.terminate()
        await server.communicate()
