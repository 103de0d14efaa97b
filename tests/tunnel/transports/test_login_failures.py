"""What is made of ssh's words, and not of those that a host, its banner or a ProxyCommand says beside them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.machine.processes import commands_with
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until
from tests.support.person.ssh_asks import SshAsks, ssh_environment
from tests.tunnel.openssh.test_openssh_transport import PLAIN, Env, env

from ccb.tunnel.errors import AuthFailed, CcbError, Dropped, HostKeyError, Unreachable
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.openssh.openssh_transport import connect
from ccb.tunnel.ssh import asyncssh_transport as ssh
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_failures import last_words, session_failure, ssh_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts

assert env  # a fixture

Words = tuple[str, ...]
REFUSED = "ann@192.0.2.1: Permission denied (publickey)."
NO_WAY = "kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535"
SILENT_WAY = "Connection timed out during banner exchange\nConnection to UNKNOWN port 65535 timed out"
NOT_OPENED = "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed"

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
The fingerprint for the ED25519 key sent by the remote host is
SHA256:abc.
Add correct host key in /home/ann/my hosts to get rid of this message.
Offending ED25519 key in /home/ann/my hosts:3
"""

CHECKED = (
    "Host key for [192.0.2.1]:2222 has changed and you have requested strict checking.\nHost key verification failed."
)


def failure(said: str, *, told: bool = False) -> CcbError:
    error = ssh_failure("box", 255, said, told=told)
    assert error is not None
    return error


@pytest.mark.parametrize(
    "banner",
    [
        "NOTICE: the SSH host key of this machine was revoked and replaced on 1 May.",
        "Revoked host key? See https://wiki.invalid",
        "The remote host identification has changed on 1 May, and the host key for box has changed.",
        "If host key verification failed, or no new host key is known, call 1234.",
        "Session open refused: see the wiki. Too many authentication failures lock the account.",
        "Access is refused outside office hours, sessions timed out after 5 min, the old network is unreachable.",
        "Could not resolve your problem? Name or service not known? Bad option, missing argument, garbage at end?",
        "A connection closed by the firewall, a broken pipe and corrupted files are not our fault (unknown port).",
    ],
)
def test_the_banner_of_a_host_does_not_say_why_a_login_failed(banner: str) -> None:
    error = failure(f"{banner}\n{REFUSED}")
    assert type(error) is AuthFailed and error.what == "box refused the login"
    assert error.evidence == f"{banner}\n{REFUSED}"


@pytest.mark.parametrize(
    "words",
    [
        "/bin/sh: 1: exec: /x/script: Permission denied",
        "/x/script: line 3: syntax: unknown option",
        "nc: connect to 192.0.2.1 port 22 (tcp) failed: Connection refused",
        "proxy: login timed out, session open refused, authentication failed",
        "curl: (6) Could not resolve host: proxy.invalid",
        "tls: the host key of the proxy was revoked",
    ],
)
def test_the_words_of_a_proxy_command_are_those_of_a_way_that_does_not_lead_there(words: str) -> None:
    error = failure(f"{words}\n{NO_WAY}")
    assert type(error) is Unreachable
    assert error.what == "the jump host or ProxyCommand does not reach box" and words in error.evidence


@pytest.mark.parametrize(
    ("said", "kind", "what"),
    [
        ("Permission denied (publickey,password).", AuthFailed, "box refused the login"),
        ("Permission denied, please try again.\n" + REFUSED, AuthFailed, "box refused the login"),
        ("domain@ann@box: Permission denied (keyboard-interactive).", AuthFailed, "box refused the login"),
        ("Received disconnect from 192.0.2.1: Too many authentication failures", AuthFailed, "too many failed tries"),
        ("Host key ED25519 SHA256:abc revoked by file /x", HostKeyError, "is revoked"),
        ("ED25519 host key for box was revoked and you have requested strict checking.", HostKeyError, "is revoked"),
        ("@   WARNING: REVOKED HOST KEY DETECTED!   @", HostKeyError, "is revoked"),
        ("No ED25519 host key is known for box and you have requested strict checking.", HostKeyError, "be verified"),
        ("ssh: Could not resolve hostname box: Name or service not known", Unreachable, "does not resolve"),
        ("ssh: connect to host box port 22: Connection refused", Unreachable, "cannot reach box"),
        ("ssh: connect to host box port 22: Permission denied", Unreachable, "cannot reach box"),  # a firewall's EACCES
        ("Connection timed out during banner exchange\nConnection to 192.0.2.1 timed out", Unreachable, "reach box"),
        ("Timeout, server box not responding.", Unreachable, "cannot reach box"),
        (SILENT_WAY, Unreachable, "the jump host or ProxyCommand does not reach box"),
        (f"Opening a tunnel …\n{SILENT_WAY}", Unreachable, "the jump host or ProxyCommand does not reach box"),
        (CHANGED + CHECKED, HostKeyError, "a host key on the way to box has changed"),
        ("mux_client_request_session: session request failed: Session open refused by peer", Dropped, "other session"),
        ("client_loop: send disconnect: Broken pipe", Dropped, "broke off"),
        ("Connection to box closed by remote host.", Dropped, "broke off"),
        ("Connection reset by 192.0.2.1 port 22", Dropped, "broke off"),
        ("ssh_dispatch_run_fatal: Connection to 192.0.2.1 port 22: Connection corrupted", Dropped, "broke off"),
    ],
)
def test_what_ssh_itself_says_is_understood(said: str, kind: type[CcbError], what: str) -> None:
    error = failure(said)
    assert type(error) is kind and what in error.what and "@@" not in error.evidence


def test_what_the_person_has_read_is_not_said_again_but_for_the_reason() -> None:
    banner = "Welcome\n\nAll is recorded.\nReally."
    assert failure(f"{banner}\n{REFUSED}", told=True).evidence == REFUSED
    assert failure(f"{CHANGED}{CHECKED}", told=True).evidence.endswith(CHECKED)
    assert "NASTY" not in failure(f"{CHANGED}{CHECKED}", told=True).evidence
    assert failure(f"Hello\nERROR: log in first\n{NO_WAY}", told=True).evidence == f"ERROR: log in first\n{NO_WAY}"
    assert failure(f"Hello\n{NOT_OPENED}\n{NO_WAY}", told=True).evidence == f"{NOT_OPENED}\n{NO_WAY}"
    expired = (
        "Your account has expired; please contact your system administrator.\nConnection closed by 192.0.2.1 port 22"
    )
    assert failure(f"{banner}\n{expired}", told=True).evidence == expired
    assert last_words("one\ntwo") == "two" and last_words("") == ""


def test_the_command_to_try_by_hand_goes_to_the_same_server_with_the_same_options(tmp_path: Path) -> None:
    key = str(tmp_path / "a key")
    Path(key).touch()
    target = SshTarget("127.0.0.1", "ann", 47801, (key,), ("ProxyCommand=nc -X 5 %h %p",))
    command = target.shell_command(PLAIN, "-G")
    out = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True, text=True).stdout.splitlines()
    assert {"user ann", "port 47801", f"identityfile {key}", "proxycommand nc -X 5 %h %p"} <= set(out)
    error = ssh_failure("ann@127.0.0.1", 255, REFUSED, command)
    assert error is not None and f"`{command}`" in error.do


async def test_both_transports_name_a_command_to_this_server(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    options = (f"UserKnownHostsFile={sshd.known_hosts}", "IdentityAgent=none")
    target = SshTarget("127.0.0.1", host_user.name, sshd.port, (str(tmp_path / "none"),), options)
    with ssh_environment(tmp_path) as env, pytest.raises(AuthFailed) as over_ssh:
        await openssh.connect(target, NobodyToAsk(), env=env, words=PLAIN)
    assert f"`{target.shell_command(PLAIN)}`" in over_ssh.value.do
    with pytest.raises(AuthFailed) as built_in:
        await ssh.connect(target, NobodyToAsk())
    assert f"`{target.shell_command()}`" in built_in.value.do
    assert f"-p {sshd.port}" in built_in.value.do and options[0] in built_in.value.do


@pytest.fixture
def words(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> tuple[str, ...]:
    """An ssh that knows jump hosts of every kind; all but `closed` are the same server."""
    make_key(tmp_path / "other")
    (tmp_path / "changed").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
    config = tmp_path / "config"
    config.write_text(
        "Host closed\nPort 1\n"
        f"Host changed\nUserKnownHostsFile {tmp_path / 'changed'}\n"
        f"Host unknown\nHostKeyAlias jump\nUserKnownHostsFile {tmp_path / 'unknown'}\n"
        "Host refusing\nUser no-such-user\n"
        f"Host *\nHostName 127.0.0.1\nPort {sshd.port}\nUser {host_user.name}\nIdentitiesOnly yes\n"
        f"IdentityFile {sshd.identity}\nUserKnownHostsFile {sshd.known_hosts}\n"
    )
    return ("ssh", "-F", str(config))


async def refused(
    words: Sequence[str], env: Env, *options: str, prompts: Prompts | None = None, port: int | None = None
) -> CcbError:
    """Why no login to the host `box` succeeds."""
    with pytest.raises(CcbError) as caught:
        await connect(SshTarget("box", None, port, (), options), prompts or NobodyToAsk(), env=env, words=words)
    assert not list(Path(env["XDG_RUNTIME_DIR"]).glob("ccb-ssh-*"))
    return caught.value


async def test_a_proxy_command_gives_the_evidence(words: Words, env: Env, tmp_path: Path) -> None:
    proxy = shell_script(tmp_path / "proxy", "echo 'ERROR: your login \033[1mhas expired' >&2; exit 1")
    error = await refused(words, env, f"ProxyCommand={proxy}")
    assert type(error) is Unreachable and "does not reach box" in error.what
    assert "ERROR: your login" in error.evidence and "\033" not in error.evidence


@pytest.mark.parametrize(
    ("jump", "kind", "what", "evidence"),
    [
        ("closed", Unreachable, "cannot reach box", "127.0.0.1 port 1: Connection refused"),
        ("changed", HostKeyError, "a host key on the way to box has changed", "ssh-keygen -f"),
        ("unknown", HostKeyError, "a host key on the way to box cannot be verified", "verification"),
        ("refusing", AuthFailed, "box refused the login", "no-such-user@127.0.0.1: Permission denied"),
    ],
)
@pytest.mark.quick_rows(2)
async def test_a_jump_host_that_does_not_lead_on_is_named(
    words: Words, env: Env, jump: str, kind: type[CcbError], what: str, evidence: str
) -> None:
    error = await refused(words, env, f"ProxyJump={jump}")
    assert type(error) is kind and what in error.what and evidence in error.evidence


async def test_where_a_proxy_command_logs_in_is_shown_at_once(words: Words, env: Env, tmp_path: Path) -> None:
    visited = tmp_path / "visited"
    proxy = shell_script(
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


async def test_a_proxy_command_that_does_not_want_to_go_is_ended(words: Words, env: Env, tmp_path: Path) -> None:
    proxy = shell_script(tmp_path / "proxy", f"trap '' HUP TERM\n{' '.join(words)} -W 127.0.0.1:$1 hop\nsleep 600")
    where = SshTarget("box", options=(f"ProxyCommand={proxy} %p",))
    transport = await connect(where, NobodyToAsk(), env=env, words=words)
    assert commands_with(str(proxy))
    await transport.close()
    await until(lambda: not commands_with(str(proxy)))


async def test_who_did_not_trust_a_jump_host_is_not_asked_again(words: Words, env: Env) -> None:
    person = SshAsks("no")
    error = await refused(words, env, "ProxyJump=unknown", prompts=person)
    assert type(error) is HostKeyError and len(person.asked) == 1


async def test_a_revoked_host_key_is_refused(sshd: Sshd, words: Words, env: Env, tmp_path: Path) -> None:
    known = tmp_path / "revoked_known_hosts"
    known.write_text(f"@revoked * {sshd.host_key.with_suffix('.pub').read_text()}")
    for option in (f"UserKnownHostsFile={known}", f"RevokedHostKeys={sshd.host_key.with_suffix('.pub')}"):
        error = await refused(words, env, option)
        assert type(error) is HostKeyError and error.what == "a host key on the way to box is revoked"
        assert error.do.startswith("Do not connect.")


def test_which_ends_of_a_way_are_worth_another_try() -> None:
    error = ssh_failure("box", 255, NO_WAY)
    assert type(error) is Unreachable
    assert type(session_failure("box", 255, NO_WAY)) is Dropped
    assert type(session_failure("box", 255, "")) is Dropped
    assert type(session_failure("box", 255, "kex_exchange_identification: Connection closed by remote host")) is Dropped
    busy = "kex_exchange_identification: Connection closed by remote host\nConnection closed by 192.0.2.1 port 22\n"
    error = ssh_failure("box", 255, busy + NO_WAY)
    assert type(error) is Dropped and "box closed the connection" in error.what and "192.0.2.1" in error.evidence
    error = ssh_failure("box", 255, "Connection closed by UNKNOWN port 65535")
    assert type(error) is Unreachable and "to box over a jump host or ProxyCommand broke off" in error.what
