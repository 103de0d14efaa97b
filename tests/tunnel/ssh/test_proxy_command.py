"""ProxyCommands over real sshd: run as ssh runs them, able to ask, ended with the connection."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.login import Person, every_host, logged_in, output, pipe_to, target

from ccb.tunnel.errors import Dropped, Unreachable
from ccb.tunnel.secret import SECRET_VARIABLES
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.transports.login_prompts import NobodyToAsk


async def test_it_is_run_by_the_shell_of_the_person(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = pipe_to(sshd.port, tmp_path)
    monkeypatch.setenv("SHELL", "/bin/bash")
    async with logged_in(target(sshd, host_user, f"{command} 2> >(cat >&2)")) as transport:  # no sh knows that
        assert await output(transport, "echo in") == "in\n"
    monkeypatch.delenv("SHELL")
    with pytest.raises(Unreachable, match="no SSH connection"):
        await connect(target(sshd, host_user, f"{command} 2> >(cat >&2)"), NobodyToAsk())


async def test_it_inherits_no_credential(
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
        assert [questions[0] for _, _, questions in person.challenges] == [
            (f"Enter passphrase for key '{locked}': ", False)
        ] * 2
        with pytest.raises(Unreachable) as caught:
            await connect(target(sshd, host_user, option), NobodyToAsk())
        assert "Permission denied" in caught.value.evidence


async def test_one_that_ends_well_without_a_connection_is_quoted(sshd: Sshd, host_user: HostUser) -> None:
    option = "ProxyCommand=true && no-such-nc %h %p | cat"
    with pytest.raises(Unreachable, match="no SSH connection") as caught:
        await connect(target(sshd, host_user, option), NobodyToAsk())
    assert "no-such-nc" in caught.value.evidence and "MaxStartups" not in str(caught.value)
    assert caught.value.do == "Correct the ProxyCommand until it connects."
    assert not isinstance(caught.value, Dropped), "it is not worth another attempt"


async def test_one_that_says_nothing_may_have_met_a_server_that_takes_nobody(sshd: Sshd, host_user: HostUser) -> None:
    with pytest.raises(Dropped, match="before any login") as caught:
        await connect(target(sshd, host_user, "ProxyCommand=true"), NobodyToAsk())
    assert "The ProxyCommand said nothing, either." in caught.value.evidence
