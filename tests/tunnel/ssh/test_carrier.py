"""The first TCP connection, to real listeners."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import socket
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, free_port, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.login import Person, every_host, logged_in, output, pipe_to, refused, target

from ccb.tunnel.errors import Dropped, Unreachable
from ccb.tunnel.secret import SECRET_VARIABLES
from ccb.tunnel.ssh.carrier import open_socket
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget


@pytest.mark.slow
async def test_a_host_that_is_not_up_yet_is_tried_as_often_as_was_set() -> None:
    port = free_port()
    config = await resolve(SshTarget("127.0.0.1", port=port, options=("ConnectionAttempts=20",)))
    connecting = asyncio.create_task(open_socket(config))
    done, _ = await asyncio.wait({connecting}, timeout=0.3)
    assert not done, "refused once, it goes on"
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    async with server:
        (await asyncio.wait_for(connecting, 60)).close()
    with pytest.raises(Unreachable, match="cannot reach"):
        await open_socket(dataclasses.replace(config, route=dataclasses.replace(config.route, attempts=2)))


async def test_an_address_of_a_family_that_the_kernel_lacks_is_one_that_does_not_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = await resolve(SshTarget("127.0.0.1"))

    def no_socket(*family: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    with monkeypatch.context() as patch, pytest.raises(Unreachable) as caught:
        patch.setattr(socket, "socket", no_socket)
        await open_socket(config)
    assert "Address family not supported" in caught.value.evidence


async def test_it_is_run_by_the_shell_of_the_person(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = pipe_to(sshd.port, tmp_path)
    monkeypatch.setenv("SHELL", "/bin/bash")
    async with logged_in(target(sshd, host_user, f"{command} 2> >(cat >&2)")) as transport:  # no sh knows that
        assert await output(transport, "echo in") == "in\n"
    monkeypatch.delenv("SHELL")
    await refused(Unreachable, target(sshd, host_user, f"{command} 2> >(cat >&2)"), match="no SSH connection")


async def test_it_gets_no_secret(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "sk-secret")
    monkeypatch.setenv("DISPLAY", ":7")
    seen = tmp_path / "seen"
    option = pipe_to(sshd.port, tmp_path, f"open({str(seen)!r}, 'w').write(repr(dict(os.environ)))")
    async with logged_in(target(sshd, host_user, option), Person()):
        assert "'DISPLAY': ':7'" in seen.read_text(), "a browser may be opened there"
        assert "sk-secret" not in seen.read_text()


async def test_an_ssh_in_it_asks_the_person(host_user: HostUser, sshd: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    async with serve(tmp_path / "jump") as jump:
        jump.identity.with_name("authorized_keys").write_text(locked.with_suffix(".pub").read_text())
        config = tmp_path / "ssh_config"
        config.write_text(every_host(locked, jump.known_hosts))
        option = f"ProxyCommand=ssh -F {config} -p {jump.port} -l {host_user.name} -W %h:%p 127.0.0.1"
        person = Person(answers=[["wrong"], ["secret"]])
        async with logged_in(target(sshd, host_user, option), person) as transport:
            assert await output(transport, "echo in") == "in\n"
        assert [asked[0] for _, _, asked in person.challenges] == [
            (f"Enter passphrase for key '{locked}': ", False)
        ] * 2
        error = await refused(Unreachable, target(sshd, host_user, option))
        assert "Permission denied" in error.evidence


@pytest.mark.parametrize(
    ("command", "says"),
    [("true && no-such-nc %h %p | cat", "no-such-nc"), ("echo no such gateway >&2; exit 3", "no such gateway")],
)
async def test_one_that_ends_without_a_connection_is_quoted_however_it_ends(
    sshd: Sshd, host_user: HostUser, command: str, says: str
) -> None:
    error = await refused(Unreachable, target(sshd, host_user, f"ProxyCommand={command}"), match="no SSH connection")
    assert says in error.evidence and "MaxStartups" not in str(error)
    assert error.do == "Correct the ProxyCommand until it connects."
    assert not isinstance(error, Dropped), "it is not worth another attempt"
