"""What ssh_config means for our connection, resolved by the real `ssh -G`."""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import subprocess
from pathlib import Path

import pytest
from tests.support.person.login import only_config

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.secret import SECRET_VARIABLES
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config import config_files as ssh_config
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only ssh_config."""
    return only_config(tmp_path, monkeypatch)


async def test_proxy_commands_jump_hosts_and_keys_have_their_tokens(config: Path) -> None:
    config.write_text("Host Far\n  HostName %h.example.com\n  User me\n  ProxyCommand p %% %n %h %p %r ${HOME} %C #\n")
    resolved = await resolve(SshTarget("Far", port=77))
    assert resolved.route.proxy_command == "p % Far far.example.com 77 me ${HOME} %C #"
    config.write_text("Host far\n  User me\n  HostName 10.0.0.1\n  ProxyJump %r@jump-%h.%n:24\n")
    jump, _ = await route(SshTarget("far"))
    assert (jump[0].user, jump[0].host, jump[0].port) == ("me", "jump-10.0.0.1.far", 24)
    config.write_text("Host far\n  User me\n  IdentityFile /keys/%C\n")
    said = hashlib.sha1(f"{socket.gethostname()}far22me".encode(), usedforsecurity=False).hexdigest()
    assert (await resolve(SshTarget("far"))).identities.files == (Path("/keys") / said,)


async def test_what_the_command_line_says_of_a_host_is_not_said_of_its_jump_hosts(config: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    config.write_text("Host hop\n  IdentityFile ~/.ssh/hop\n  StrictHostKeyChecking yes\n")
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ProxyJump=hop,last", "User=me")
    hop, last, far = await route(SshTarget("far", None, 77, (str(key),), options))
    assert far.config.trust.strict == "no" and far.config.identities.files == (key,)
    assert hop.config.trust.strict == "yes" and hop.config.identities.files == (Path("~/.ssh/hop").expanduser(),)
    trust, known = last.config.trust, Path("~/.ssh/known_hosts").expanduser()
    assert trust.strict == "ask" and trust.known_hosts[0] == known
    assert Path("~/.ssh/id_ed25519").expanduser() in last.config.identities.files and last.config.port == 22


async def test_the_name_of_a_host_is_lower_case_for_who_looks_it_up(config: Path) -> None:
    config.write_text("Host other\n  HostName FAR.Example\n")
    assert (await resolve(SshTarget("FAR"))).hostname == "far"
    assert (await resolve(SshTarget("other"))).hostname == "far.example"


async def test_home_is_not_of_the_environment(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("IdentityFile ~/mine\nCertificateFile %d/mine\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    resolved = await resolve(SshTarget("far"))
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert resolved.identities.files == resolved.identities.certificates == (home / "mine",)
    assert resolved.trust.known_hosts[0] == home / ".ssh" / "known_hosts"


async def test_the_home_of_nobody_is_an_error(config: Path) -> None:
    config.write_text("IdentityFile ~nosuchuser/key\n")
    with pytest.raises(ConfigError, match="who does not exist"):
        await resolve(SshTarget("far"))


@pytest.mark.parametrize(
    ("value", "means"),
    [("SSH_AUTH_SOCK", "/env/%d"), ("$MINE", "/mine"), ("${MINE}/x", "/mine/x"), ("$UNSET", None), ("none", None)],
)
async def test_the_chosen_agent(config: Path, monkeypatch: pytest.MonkeyPatch, value: str, means: str | None) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env/%d")
    monkeypatch.setenv("MINE", "/mine")
    config.write_text(f"IdentityAgent {value}\n")
    assert (await resolve(SshTarget("far"))).identities.agent == means


async def test_what_it_starts_gets_no_credential(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "sk-secret")
    seen = tmp_path / "seen"
    config.write_text(f'Match exec "export > {seen}; true"\n  Port 77\n')
    assert (await resolve(SshTarget("far"))).port == 77
    assert "HOME=" in seen.read_text() and "sk-secret" not in seen.read_text()


@pytest.mark.slow
async def test_a_slow_condition_ends_with_children(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('Match exec "sleep 4321; true"\n')
    monkeypatch.setattr(ssh_config, "_RESOLVE_DEADLINE_S", 1.0)
    with pytest.raises(ConfigError, match="did not answer"):
        await resolve(SshTarget("far"))
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True, env=os.environ).stdout
    assert "sleep 4321" not in said.splitlines()
