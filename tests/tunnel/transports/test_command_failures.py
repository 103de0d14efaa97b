"""What is made of ssh's words, and not of those that a host, its banner or a ProxyCommand says beside them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.ssh_asks import SshAsks, ssh_environment

from ccb.tunnel.errors import AuthFailed, CcbError, Dropped, HostKeyError, Unreachable
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.ssh import asyncssh_transport as ssh
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_failures import last_words, ssh_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk

PLAIN = ("ssh", "-F", "/dev/null")
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
        (
            "Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures",
            AuthFailed,
            "too many failed tries",
        ),
        ("Host key ED25519 SHA256:abc revoked by file /x", HostKeyError, "is revoked"),
        ("ED25519 host key for box was revoked and you have requested strict checking.", HostKeyError, "is revoked"),
        ("@   WARNING: REVOKED HOST KEY DETECTED!   @", HostKeyError, "is revoked"),
        ("No ED25519 host key is known for box and you have requested strict checking.", HostKeyError, "be verified"),
        ("ssh: Could not resolve hostname box: Name or service not known", Unreachable, "does not resolve"),
        ("ssh: connect to host box port 22: Connection refused", Unreachable, "cannot reach box"),
        ("ssh: connect to host box port 22: Permission denied", Unreachable, "cannot reach box"),  # a firewall's EACCES
        (
            "Connection timed out during banner exchange\nConnection to 192.0.2.1 port 22 timed out",
            Unreachable,
            "reach",
        ),
        ("Timeout, server box not responding.", Unreachable, "cannot reach box"),
        (
            "mux_client_request_session: session request failed: Session open refused by peer",
            Dropped,
            "another session",
        ),
        ("client_loop: send disconnect: Broken pipe", Dropped, "broke off"),
        ("Connection to box closed by remote host.", Dropped, "broke off"),
        ("Connection reset by 192.0.2.1 port 22", Dropped, "broke off"),
        ("ssh_dispatch_run_fatal: Connection to 192.0.2.1 port 22: Connection corrupted", Dropped, "broke off"),
    ],
)
def test_what_ssh_itself_says_is_understood(said: str, kind: type[CcbError], what: str) -> None:
    error = failure(said)
    assert type(error) is kind and what in error.what


def test_a_way_that_stays_silent_is_not_blamed_on_the_host() -> None:
    for words in ("", "Opening a tunnel …\n"):
        error = failure(words + SILENT_WAY)
        assert type(error) is Unreachable and error.what == "the jump host or ProxyCommand does not reach box"
    jump = failure("ssh: connect to host hop port 22: Connection timed out\n" + NO_WAY)
    assert jump.what == "cannot reach hop port 22 (on the way to box)"


def test_what_the_last_jump_host_cannot_open_is_the_host_and_what_one_before_it_cannot_open_is_not() -> None:
    assert failure(f"{NOT_OPENED}\n{NO_WAY}").what == "cannot reach box"
    assert failure(f"{NOT_OPENED}\n{NO_WAY}\n{NO_WAY}").what == "cannot reach a host (on the way to box)"


def test_a_changed_host_key_comes_with_the_command_that_removes_the_old_one() -> None:
    for debian in ("", "  remove with:\n  ssh-keygen -f '/home/ann/my hosts' -R '[192.0.2.1]:2222'\n"):
        error = failure(CHANGED + debian + CHECKED)
        assert type(error) is HostKeyError
        command = error.do.removeprefix("If the host was really reinstalled: ")
        assert shlex.split(command) == ["ssh-keygen", "-f", "/home/ann/my hosts", "-R", "[192.0.2.1]:2222"]
    goes_on = failure(f"{CHANGED}Password authentication is disabled to avoid man-in-the-middle attacks.\n{REFUSED}")
    assert goes_on.do == "If the host was really reinstalled, remove line 3 of /home/ann/my hosts."


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


async def test_both_transports_name_the_command_that_goes_to_this_very_server(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    options = (f"UserKnownHostsFile={sshd.known_hosts}", "IdentityAgent=none")
    target = SshTarget("127.0.0.1", host_user.name, sshd.port, (str(tmp_path / "none"),), options)
    with ssh_environment(tmp_path) as env, pytest.raises(AuthFailed) as over_ssh:
        await openssh.connect(target, NobodyToAsk(), env=env, words=PLAIN)
    assert f"`{target.shell_command(PLAIN)}`" in over_ssh.value.do
    with pytest.raises(AuthFailed) as built_in:
        await ssh.connect(target, NobodyToAsk())
    assert f"`{target.shell_command()}`" in built_in.value.do
    assert f"-p {sshd.port}" in built_in.value.do and options[0] in built_in.value.do


async def test_a_banner_that_was_shown_is_not_the_evidence(host_user: HostUser, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("NOTICE: the SSH host key of this machine was revoked.\nAll is recorded.\n")
    async with serve(tmp_path / "host", [f"Banner {banner}"]) as host:
        target = SshTarget("127.0.0.1", host_user.name, host.port, (), (f"UserKnownHostsFile={host.known_hosts}",))
        with ssh_environment(tmp_path) as env:
            for person in (SshAsks(), NobodyToAsk()):
                with pytest.raises(AuthFailed) as caught:
                    await openssh.connect(target, person, env=env, words=PLAIN)
                recorded = "All is recorded." in caught.value.evidence
                assert recorded == isinstance(person, NobodyToAsk)
                assert "Permission denied (publickey" in caught.value.evidence
                assert not isinstance(person, SshAsks) or "All is recorded." in person.told


async def test_a_proxy_command_that_may_not_be_run_is_no_refused_login(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with ssh_environment(tmp_path) as env, pytest.raises(Unreachable, match="does not reach box") as caught:
        await openssh.connect(
            SshTarget("box", options=(f"ProxyCommand={script} %p",)), NobodyToAsk(), env=env, words=PLAIN
        )
    assert "ermission denied" in caught.value.evidence


async def test_a_proxy_command_that_goes_silent_is_named_and_not_the_host(tmp_path: Path) -> None:
    proxy = tmp_path / "proxy"
    proxy.write_text("#!/bin/sh\necho 'Opening a tunnel' >&2\nexec sleep 60\n")
    proxy.chmod(0o755)
    options = (f"ProxyCommand={proxy}", "ConnectTimeout=3")
    with ssh_environment(tmp_path) as env, pytest.raises(Unreachable, match="does not reach box") as caught:
        await openssh.connect(SshTarget("box", options=options), NobodyToAsk(), env=env, words=PLAIN)
    assert "Opening a tunnel" in caught.value.evidence and "timed out" in caught.value.evidence


async def test_a_host_in_the_middle_of_a_chain_that_cannot_be_reached_is_not_the_last_one(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        f"Host dead\nPort 1\nHost *\nHostName 127.0.0.1\nPort {sshd.port}\nUser {host_user.name}\nIdentitiesOnly yes\n"
        f"IdentityFile {sshd.identity}\nUserKnownHostsFile {sshd.known_hosts}\n"
    )
    target = SshTarget("box", options=("ProxyJump=hop,dead",))
    with ssh_environment(tmp_path) as env, pytest.raises(Unreachable) as caught:
        await openssh.connect(target, NobodyToAsk(), env=env, words=("ssh", "-F", str(config)))
    assert caught.value.what == "cannot reach a host (on the way to box)"
