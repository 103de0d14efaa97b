"""Logins over real sshd: host keys, credentials, hops, and what is said when it does not work."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import relay
from tests.support.network.silent_port import silent_port
from tests.support.person.login import Person, every_host, logged_in, logs_in, only_config, output, refused, target

from ccb.tunnel.errors import ConfigError, ConnectError, ConnectionLost, Dropped, HostKeyError, Unreachable, UsageError
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import LoginMemory, NobodyToAsk


async def test_a_command_runs_as_the_user_and_tells_its_end(sshd: Sshd, host_user: HostUser) -> None:
    async with logged_in(target(sshd, host_user)) as transport:
        assert (await output(transport, "id -un")).strip() == host_user.name
        pipe = await transport.execute("echo no >&2; exit 7")
        assert await pipe.read() == b""
        assert await pipe.exit_status() == 7
        assert pipe.stderr_tail() == "no\n"
        await pipe.close()
        killed = await transport.execute("kill -9 $$")
        assert await killed.exit_status() is None
        await killed.close()


async def test_an_unknown_key_is_refused_where_nobody_is_asked(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    known = tmp_path / "ssh" / "known_hosts"
    error = await refused(HostKeyError, target(sshd, host_user, known=known), match="not known")
    fingerprint = subprocess.run(
        ["ssh-keygen", "-l", "-f", f"{sshd.host_key}.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    assert fingerprint in error.evidence
    await refused(HostKeyError, target(sshd, host_user, known=known), Person(trust=False), match="not accepted")
    assert not known.exists()


@pytest.mark.parametrize("hashed", ["no", "yes"])
async def test_an_accepted_key_is_kept_known(sshd: Sshd, host_user: HostUser, tmp_path: Path, hashed: str) -> None:
    known = tmp_path / "ssh" / "known_hosts"
    where = target(sshd, host_user, f"HashKnownHosts={hashed}", known=known)
    person = Person(trust=True)
    await logs_in(where, person)
    assert person.asked[0].store == known
    assert stat.S_IMODE(known.stat().st_mode) == 0o600
    assert stat.S_IMODE(known.parent.stat().st_mode) == 0o700
    assert known.read_text().startswith("|1|" if hashed == "yes" else f"[127.0.0.1]:{sshd.port} ")
    await logs_in(where)
    openssh = ["ssh", "-F", "none", "-p", str(sshd.port), "-i", str(sshd.identity), "-o", f"UserKnownHostsFile={known}"]
    done = subprocess.run([*openssh, "-o", "BatchMode=yes", f"{host_user.name}@127.0.0.1", "true"], check=False)
    assert done.returncode == 0, "OpenSSH reads the same file"


async def test_what_listens_is_no_ssh_server(sshd: Sshd, host_user: HostUser) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        where = target(sshd, host_user, port=server.sockets[0].getsockname()[1])
        error = await refused(Unreachable, where, match="no SSH connection")
    assert "It said: HTTP/1.1 400 Bad Request" in error.evidence


async def half_a_login(server: Sshd) -> asyncio.StreamWriter:
    """A connection that `server` counts among its logins."""
    while True:
        reader, stranger = await asyncio.open_connection("127.0.0.1", server.port)
        with contextlib.suppress(ConnectionResetError, asyncio.IncompleteReadError):
            if await reader.readexactly(4) == b"SSH-":
                return stranger
        stranger.close()  # the server still counts an earlier one


async def test_a_server_with_too_many_logins_under_way_says_so(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "busy", ["MaxStartups 1"]) as server:
        stranger = await half_a_login(server)
        error = await refused(Dropped, target(server, host_user), match="closed the connection before any login")
        stranger.close()
    assert error.evidence == "It said: Exceeded MaxStartups"
    assert "try again in a minute" in error.do


async def test_many_logins_at_one_server_take_turns(host_user: HostUser, tmp_path: Path) -> None:
    memory = LoginMemory()
    async with serve(tmp_path / "paced", ["MaxStartups 15:100:15"]) as server:
        logins = [connect(target(server, host_user), NobodyToAsk(memory)) for _ in range(40)]
        opened = await asyncio.gather(*logins)
        await asyncio.gather(*(each.close() for each in opened))


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "", "a b", "a\nb", "a\x1b[31m"])
def test_a_host_name_that_is_none_is_a_usage_error(host: str) -> None:
    with pytest.raises(UsageError):
        SshTarget(host)


async def test_an_option_or_a_name_that_is_not_known_is_said(sshd: Sshd, host_user: HostUser) -> None:
    error = await refused(ConfigError, target(sshd, host_user, "NoSuchOption=1"))
    assert "nosuchoption" in error.evidence.lower()
    assert error.do == "Correct the -o option."
    await refused(Unreachable, SshTarget("no-such-host.invalid"), match="does not resolve")


async def test_a_link_that_breaks_is_an_error_for_readers_and_writers(sshd: Sshd, host_user: HostUser) -> None:
    async with relay(sshd.port) as link:
        sshd.trust(link.port)
        async with logged_in(target(sshd, host_user, port=link.port)) as transport:
            pipe = await transport.execute("cat")
            await pipe.write(b"x")
            assert await pipe.read() == b"x"
            reading = asyncio.create_task(pipe.read())
            link.cut()
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(reading, 60)
            with pytest.raises(ConnectionLost):
                for _ in range(100):
                    await pipe.write(b"x" * 65536)
            await pipe.close()


@pytest.mark.parametrize(
    ("option", "says"),
    [("AllowTcpForwarding no", "does not lead to 127.0.0.1 port"), ("", "cannot reach 127.0.0.1 port")],
)
async def test_a_jump_host_that_leads_nowhere_is_named(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, says: str
) -> None:
    async with serve(tmp_path / "jump", [option] if option else []) as jump:
        authorized = jump.identity.with_name("authorized_keys")
        authorized.write_text(sshd.identity.with_suffix(".pub").read_text())
        only_config(tmp_path, monkeypatch).write_text(every_host(sshd.identity, jump.known_hosts))
        way = f"ProxyJump={host_user.name}@127.0.0.1:{jump.port}"
        port = sshd.port if option else 1
        with pytest.raises(Unreachable, match=f"the jump host {host_user.name}@127.0.0.1 {says} {port}") as caught:
            await connect(target(sshd, host_user, way, port=port), NobodyToAsk())
        by_hand = f"-o ProxyCommand='ssh -p {jump.port} {host_user.name}@127.0.0.1 nc %h %p'"
        assert (by_hand in caught.value.do) == bool(option)


async def test_a_silent_host_behind_a_jump_host_is_given_up(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent_port() as port:
        only_config(tmp_path, monkeypatch).write_text(every_host(sshd.identity, sshd.known_hosts))
        where = target(
            sshd, host_user, f"ProxyJump={host_user.name}@127.0.0.1:{sshd.port}", "ConnectTimeout 1", port=port
        )
        says = f"the jump host {host_user.name}@127.0.0.1 got no answer from 127.0.0.1 port {port} in 1 s"
        with pytest.raises(Unreachable, match=says) as caught:
            await asyncio.wait_for(connect(where, NobodyToAsk()), 20)
    assert "accepted the connection" not in caught.value.evidence


@pytest.mark.parametrize("fault", ["closed", "refuses", "unknown"])
async def test_a_failure_on_the_way_names_the_jump_host(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    only_config(tmp_path, monkeypatch).write_text(
        f"Host boxbad\n  HostName 127.0.0.1\n  Port {1 if fault == 'closed' else sshd.port}\n  User {host_user.name}\n"
        f"  IdentityFile {make_key(tmp_path / 'wrong')}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {tmp_path / 'none' if fault == 'unknown' else sshd.known_hosts}\n"
    )
    error = await refused(ConnectError, target(sshd, host_user, "ProxyJump=boxbad"))
    assert str(error).startswith("jump host boxbad (127.0.0.1): ")
