"""Jump hosts and proxy commands of the OpenSSH client that do not lead to the host: what is said of whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.machine.processes import commands_with
from tests.support.machine.waiting import until
from tests.support.person.laptop import make_laptop
from tests.support.person.ssh_asks import SshAsks, ssh_environment

from ccb.tunnel.errors import AuthFailed, CcbError, Dropped, HostKeyError, Unreachable
from ccb.tunnel.openssh.openssh_transport import connect
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_failures import session_failure, ssh_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts

CLOSED = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535"


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    with ssh_environment(tmp_path) as environment:
        yield environment


@pytest.fixture
def words(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> tuple[str, ...]:
    """An ssh that knows jump hosts of every kind; all but `closed` and `nowhere` are the same server."""
    make_key(tmp_path / "other")
    (tmp_path / "changed").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    config = tmp_path / "config"
    config.write_text(
        "Host nowhere\nHostName no-such-host.invalid\n"
        "Host closed\nPort 1\n"
        f"Host changed\nUserKnownHostsFile {tmp_path / 'changed'}\n"
        f"Host unknown\nHostKeyAlias jump\nUserKnownHostsFile {tmp_path / 'unknown'}\n"
        "Host refusing\nUser no-such-user\n"
        f"Host *\nHostName 127.0.0.1\nPort {sshd.port}\nUser {host_user.name}\nIdentitiesOnly yes\n"
        f"IdentityFile {sshd.identity}\nUserKnownHostsFile {sshd.known_hosts}\n"
    )
    return ("ssh", "-F", str(config))


async def refused(
    words: Sequence[str], env: dict[str, str], *options: str, prompts: Prompts | None = None, port: int | None = None
) -> CcbError:
    """Why no login to the host `box` succeeds."""
    with pytest.raises(CcbError) as caught:
        await connect(SshTarget("box", None, port, (), options), prompts or NobodyToAsk(), env=env, words=words)
    assert not list(Path(env["XDG_RUNTIME_DIR"]).glob("ccb-ssh-*"))
    return caught.value


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def test_what_a_proxy_command_says_is_the_evidence(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    proxy = program(tmp_path / "proxy", "echo 'ERROR: your login \033[1mhas expired' >&2; exit 1")
    error = await refused(words, env, f"ProxyCommand={proxy}")
    assert type(error) is Unreachable and "does not reach box" in error.what
    assert "ERROR: your login" in error.evidence and "\033" not in error.evidence


@pytest.mark.parametrize(
    ("jump", "kind", "what", "evidence"),
    [
        ("closed", Unreachable, "cannot reach 127.0.0.1 port 1 (on the way to box)", "Connection refused"),
        ("nowhere", Unreachable, "the name of no-such-host.invalid (on the way to box) does not resolve", "resolve"),
        ("changed", HostKeyError, "(on the way to box) shows another host key than before", "ssh-keygen -f"),
        ("unknown", HostKeyError, "the host key of a host (on the way to box) cannot be verified", "verification"),
        ("refusing", AuthFailed, "no-such-user@127.0.0.1 (on the way to box) refused the login", "(publickey)"),
    ],
)
@pytest.mark.quick_rows(2)
async def test_a_jump_host_that_does_not_lead_on_is_named(
    words: tuple[str, ...], env: dict[str, str], jump: str, kind: type[CcbError], what: str, evidence: str
) -> None:
    error = await refused(words, env, f"ProxyJump={jump}")
    assert type(error) is kind and what in error.what and evidence in error.evidence


async def test_a_host_that_the_jump_host_does_not_reach_is_the_host_itself(
    words: tuple[str, ...], env: dict[str, str]
) -> None:
    error = await refused(words, env, "ProxyJump=hop", port=1)
    assert type(error) is Unreachable and error.what == "cannot reach box" and "Connection refused" in error.evidence


async def test_where_a_proxy_command_wants_the_person_to_log_in_is_shown_at_once(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    visited = tmp_path / "visited"
    proxy = program(
        tmp_path / "proxy",
        f"echo 'Visit https://login.invalid/abc' >&2\nuntil test -e {visited}; do sleep 0.05; done\n"
        f"echo 'Welcome back' >&2\nexec {' '.join(words)} -W 127.0.0.1:$1 hop",
    )
    person = SshAsks()
    where = SshTarget("box", options=(f"ProxyCommand={proxy} %p",))
    logging_in = asyncio.create_task(connect(where, person, env=env, words=words))
    await until(lambda: "Visit https://login.invalid/abc" in person.told)
    assert not logging_in.done()
    visited.touch()
    transport = await logging_in
    assert "Welcome back" in person.told
    await transport.close()


async def test_a_proxy_command_that_does_not_want_to_go_is_ended(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    proxy = program(tmp_path / "proxy", f"trap '' HUP TERM\n{' '.join(words)} -W 127.0.0.1:$1 hop\nsleep 600")
    where = SshTarget("box", options=(f"ProxyCommand={proxy} %p",))
    transport = await connect(where, NobodyToAsk(), env=env, words=words)
    assert commands_with(str(proxy))
    await transport.close()
    await until(lambda: not commands_with(str(proxy)))


async def test_what_a_jump_host_says_first_is_shown(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    banner = tmp_path / "banner"
    banner.write_text("To authenticate, visit https://login.invalid/hop\n")
    async with serve(tmp_path / "hop", [f"Banner {banner}"]) as hop:
        person = SshAsks()
        config = Path(words[2])
        config.write_text(
            f"Host said\nPort {hop.port}\nIdentityFile {hop.identity}\nUserKnownHostsFile {hop.known_hosts}\n"
            + config.read_text()
        )
        where = SshTarget("box", options=("ProxyJump=said",))
        transport = await connect(where, person, env=env, words=words)
        await transport.close()
    assert "To authenticate, visit https://login.invalid/hop" in person.told


async def test_who_did_not_trust_a_jump_host_is_not_asked_again(words: tuple[str, ...], env: dict[str, str]) -> None:
    person = SshAsks("no")
    error = await refused(words, env, "ProxyJump=unknown", prompts=person)
    assert type(error) is HostKeyError and len(person.asked) == 1
    assert not any("stored" in text for text in person.asked[0][:2])  # nobody knows what the jump host's ssh would do


async def test_who_has_given_a_password_to_the_way_is_told_why_it_does_not_lead_on(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="open sesame")
    async with serve(tmp_path / "hop") as hop:
        hop.identity.with_name("authorized_keys").write_text(locked.with_suffix(".pub").read_text())
        proxy = (
            f"{' '.join(words)} -i {locked} -o UserKnownHostsFile={hop.known_hosts} -p {hop.port} -W 127.0.0.1:1 hop"
        )
        person = SshAsks("open sesame")
        error = await refused(words, env, f"ProxyCommand={proxy}", prompts=person)
    assert type(error) is Unreachable and error.what == "cannot reach box" and len(person.asked) == 1
    assert "open failed: connect failed: Connection refused" in error.evidence


async def test_a_changed_key_of_a_jump_host_ends_the_run_with_the_code_of_host_keys(
    sshd: Sshd, words: tuple[str, ...], tmp_path: Path
) -> None:
    laptop = make_laptop(tmp_path, "http://127.0.0.1:9")
    proxy = f"{' '.join(words)} -W 127.0.0.1:{sshd.port} changed"
    done = await laptop.run(
        [
            "ssh",
            "127.0.0.1:/",
            "--transport",
            "ssh",
            *sshd.client_options(),
            "-o",
            f"ProxyCommand={proxy}",
            "-p",
            "hello",
        ]
    )
    assert done.code == 79, done.stderr
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in done.stderr
    assert f"[127.0.0.1]:{sshd.port} (on the way to 127.0.0.1) shows another host key" in done.stderr


async def test_a_revoked_host_key_is_not_to_be_connected_to(
    sshd: Sshd, words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    known = tmp_path / "revoked_known_hosts"
    known.write_text(f"@revoked * {sshd.host_key.with_suffix('.pub').read_text()}")
    for option in (f"UserKnownHostsFile={known}", f"RevokedHostKeys={sshd.host_key.with_suffix('.pub')}"):
        error = await refused(words, env, option)
        assert type(error) is HostKeyError and error.what == "the host key of box is revoked"
        assert error.do.startswith("Do not connect.")


async def test_too_many_keys_and_no_sessions_have_the_advice_of_the_own_ssh(
    host_user: HostUser, env: dict[str, str], tmp_path: Path
) -> None:
    keys = tuple(str(make_key(tmp_path / f"key{number}")) for number in range(3))
    async with serve(tmp_path / "few", ["MaxAuthTries 1"]) as few, serve(tmp_path / "none", ["MaxSessions 0"]) as none:
        for server, identities in ((few, keys), (none, (str(none.identity),))):
            options = (f"UserKnownHostsFile={server.known_hosts}", "IdentitiesOnly=yes")
            where = SshTarget("127.0.0.1", host_user.name, server.port, identities, options)
            with pytest.raises(CcbError) as caught:
                transport = await connect(where, NobodyToAsk(), env=env, words=("ssh", "-F", "/dev/null"))
                try:
                    await (await transport.execute("true")).read()
                finally:
                    await transport.close()
            if server is few:
                assert type(caught.value) is AuthFailed and "-o IdentitiesOnly=yes" in caught.value.do
            else:
                assert "MaxSessions" in caught.value.do and "ControlPath" not in caught.value.do


@pytest.mark.parametrize("alias", [None, "Box.Alias"])
async def test_the_question_about_an_unknown_key_names_the_file_it_would_be_stored_in(
    sshd: Sshd, words: tuple[str, ...], env: dict[str, str], tmp_path: Path, alias: str | None
) -> None:
    first, second = tmp_path / "first known hosts", tmp_path / "second"
    options = [f'UserKnownHostsFile="{first}" {second}', *([f"HostKeyAlias={alias}"] if alias else [])]
    person = SshAsks("yes")
    transport = await connect(SshTarget("box", options=tuple(options)), person, env=env, words=words)
    await transport.close()
    ((before, prompt, _),) = person.asked
    question = f"{before}\n{prompt}"
    assert re.search(rf"^It would be stored in {re.escape(str(first))}\.$", question, re.MULTILINE)
    assert first.exists() and not second.exists()


async def test_the_file_for_an_unknown_key_is_also_named_behind_a_jump_host(
    sshd: Sshd, words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    person = SshAsks("no")
    error = await refused(words, env, "ProxyJump=hop", f"UserKnownHostsFile={tmp_path / 'new'}", prompts=person)
    assert type(error) is HostKeyError and f"stored in {tmp_path / 'new'}." in "".join(person.asked[0][:2])


def test_a_way_that_has_ended_is_no_reason_to_try_again_but_a_master_that_has_gone_is() -> None:
    error = ssh_failure("box", 255, CLOSED)
    assert type(error) is Unreachable
    assert type(session_failure("box", 255, CLOSED)) is Dropped
    assert type(session_failure("box", 255, "")) is Dropped
    assert type(session_failure("box", 255, "kex_exchange_identification: Connection closed by remote host")) is Dropped


def test_a_jump_host_that_takes_no_login_for_the_moment_may_be_tried_again() -> None:
    busy = "kex_exchange_identification: Connection closed by remote host\nConnection closed by 192.0.2.1 port 22\n"
    error = ssh_failure("box", 255, busy + CLOSED)
    assert type(error) is Dropped and "192.0.2.1 port 22 (on the way to box) closed the connection" in error.what


def test_what_ends_once_the_host_has_spoken_is_not_the_fault_of_the_way() -> None:
    error = ssh_failure("box", 255, "Connection closed by UNKNOWN port 65535")
    assert type(error) is Unreachable and "to box over a jump host or ProxyCommand broke off" in error.what


async def test_a_host_behind_a_jump_host_that_bears_few_keys_is_named_itself(
    words: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    keys = tuple(str(make_key(tmp_path / f"key{number}")) for number in range(3))
    async with serve(tmp_path / "few", ["MaxAuthTries 1"]) as few:
        where = SshTarget("box", None, few.port, keys, ("ProxyJump=hop", f"UserKnownHostsFile={few.known_hosts}"))
        with pytest.raises(AuthFailed, match=r"^box ended the login after too many failed tries") as caught:
            await connect(where, NobodyToAsk(), env=env, words=words)
    assert "UNKNOWN port" in caught.value.evidence
