"""What ssh_config means for our connection, resolved by the real `ssh -G` and, without OpenSSH, by our reader."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.person.login import no_openssh, only_config

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.secret import SECRET_VARIABLES
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config import config_files
from ccb.tunnel.ssh_config import config_files as ssh_config
from ccb.tunnel.ssh_config.config_files import read_config, resolve
from ccb.tunnel.ssh_config.host_config import HostConfig, host_config
from ccb.tunnel.ssh_config.ssh_target import SshTarget


@pytest.fixture(params=["ssh -G", "without OpenSSH"])
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only ssh_config."""
    if request.param == "ssh -G":
        return only_config(tmp_path, monkeypatch)
    return no_openssh(tmp_path, monkeypatch)


async def test_a_proxy_command_has_its_tokens_and_leaves_the_rest_to_the_shell(config: Path) -> None:
    config.write_text("Host Far\n  HostName %h.example.com\n  User me\n  ProxyCommand p %% %n %h %p %r ${HOME} %C #\n")
    resolved = await resolve(SshTarget("Far", port=77))
    assert resolved.route.proxy_command == "p % Far far.example.com 77 me ${HOME} %C #"


async def test_a_jump_host_has_its_tokens(config: Path) -> None:
    config.write_text("Host far\n  User me\n  HostName 10.0.0.1\n  ProxyJump %r@jump-%h.%n:24\n")
    jump, _ = await route(SshTarget("far"))
    assert (jump[0].user, jump[0].host, jump[0].port) == ("me", "jump-10.0.0.1.far", 24)


async def test_what_the_command_line_says_of_the_host_is_not_said_of_its_jump_hosts(
    config: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.touch()
    config.write_text("Host hop\n  IdentityFile ~/.ssh/hop\n  StrictHostKeyChecking yes\n")
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ProxyJump=hop,last", "User=me")
    hop, last, far = await route(SshTarget("far", None, 77, (str(key),), options))
    assert far.config.trust.strict == "no" and far.config.identities.files == (key,)
    assert hop.config.trust.strict == "yes" and hop.config.identities.files == (Path("~/.ssh/hop").expanduser(),)
    assert (
        last.config.trust.strict == "ask"
        and last.config.trust.known_hosts[0] == Path("~/.ssh/known_hosts").expanduser()
    )
    assert Path("~/.ssh/id_ed25519").expanduser() in last.config.identities.files and last.config.port == 22


async def test_the_hash_of_a_connection_is_a_token(config: Path) -> None:
    config.write_text("Host far\n  User me\n  IdentityFile /keys/%C\n")
    said = hashlib.sha1(f"{socket.gethostname()}far22me".encode(), usedforsecurity=False).hexdigest()
    assert (await resolve(SshTarget("far"))).identities.files == (Path("/keys") / said,)


async def test_the_name_of_a_host_is_lower_case_for_who_looks_it_up(config: Path) -> None:
    config.write_text("Host other\n  HostName FAR.Example\n")
    assert (await resolve(SshTarget("FAR"))).hostname == "far"
    assert (await resolve(SshTarget("other"))).hostname == "far.example"


async def test_home_is_that_of_ssh_which_does_not_look_at_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_config(tmp_path, monkeypatch).write_text("IdentityFile ~/mine\nCertificateFile %d/mine\n")
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
async def test_the_agent_that_is_meant(
    config: Path, monkeypatch: pytest.MonkeyPatch, value: str, means: str | None
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/env/%d")
    monkeypatch.setenv("MINE", "/mine")
    config.write_text(f"IdentityAgent {value}\n")
    assert (await resolve(SshTarget("far"))).identities.agent == means


async def test_what_the_configuration_starts_inherits_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, "sk-secret")
    seen = tmp_path / "seen"
    only_config(tmp_path, monkeypatch).write_text(f'Match exec "export > {seen}; true"\n  Port 77\n')
    assert (await resolve(SshTarget("far"))).port == 77
    assert "HOME=" in seen.read_text() and "sk-secret" not in seen.read_text()


@pytest.mark.slow
async def test_a_condition_that_takes_too_long_is_given_up_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_config(tmp_path, monkeypatch).write_text('Match exec "sleep 4321; true"\n')
    monkeypatch.setattr(ssh_config, "_RESOLVE_DEADLINE_S", 1.0)
    with pytest.raises(ConfigError, match="did not answer"):
        await resolve(SshTarget("far"))
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True, env=os.environ).stdout
    assert "sleep 4321" not in said.splitlines()


VALUES = {
    "HostName": ["%h.x.org", "h1", "10.1.1.1", "%h", "Web2.Example.com"],
    "User": ["me", "you", '"jane doe"', r"back\\slash"],
    "Port": ["22", "2022"],
    "IdentityFile": ["~/.ssh/%h", "/k/%r", '"/k/with space"', "/k/%n-%p", r"/k/with\ space", r"'/k/one \" two'"],
    "CertificateFile": ["/c/1", "~/c2"],
    "UserKnownHostsFile": ["/kh1 /kh2", '"/k h" ~/x', "none", "/kh-%k"],
    "StrictHostKeyChecking": ["yes", "no", "ask", "accept-new", "off"],
    "ProxyCommand": ["nc %h %p", "none", 'sh -c "x # %r"', "a | b", "nc '%n' %%p"],
    "ProxyJump": ["j1", "u@j2:22,j3", "none", "%r@J-%h"],
    "ServerAliveInterval": ["10", "1m", "0", "2m30s"],
    "ConnectTimeout": ["5", "1h", "1M"],
    "SetEnv": ["A=1 B=2", 'C="x y"', "A=3"],
    "SendEnv": ["LANG LC_*", "X", "Y Z"],
    "HostKeyAlias": ["al", "none", "AL"],
    "Compression": ["yes", "no"],
    "IdentitiesOnly": ["yes", "no"],
    "IdentityAgent": ["none", "SSH_AUTH_SOCK", "~/s"],
    "PreferredAuthentications": ["publickey,password", "password"],
    "AddressFamily": ["inet", "any"],
    "RekeyLimit": ["1G 1h", "2K 30"],
    "NumberOfPasswordPrompts": ["1", "5"],
    "PubkeyAuthentication": ["yes", "no", "unbound"],
    "ConnectionAttempts": ["3"],
    "RevokedHostKeys": ["/rk", "~/rk"],
    "AddKeysToAgent": ["yes", "confirm", "1h", "ask", "confirm 5m"],
    "ChallengeResponseAuthentication": ["yes", "no"],
    "LogLevel": ["ERROR"],
    "IgnoreUnknown": ["UseKeychain,Fancy*"],
}

ALIASES = ["a", "b", "web1", "Web1", "DB", "web2.example.com", "10.0.0.1", "a[b]"]
PATTERNS = ["a", "b", "B", "web*", "*.example.com", "w?b1", "*", "10.0.*", "WEB1", "a[b]", "[ab]", "Web2.Example.com"]


def host_line() -> st.SearchStrategy[str]:
    patterns = st.lists(pattern(), min_size=1, max_size=3).map(" ".join)
    return st.builds("".join, st.tuples(st.sampled_from(["Host", "host"]), between(), patterns))


def between() -> st.SearchStrategy[str]:
    return st.sampled_from([" ", " ", "=", "  ", " = ", "\t"])


def pattern() -> st.SearchStrategy[str]:
    return st.builds("".join, st.tuples(st.sampled_from(["", "", "", "", "!"]), st.sampled_from(PATTERNS)))


def match_line() -> st.SearchStrategy[str]:
    return st.sampled_from(["Match all", "match ALL"])


@st.composite
def option_line(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(VALUES)))
    spelt = draw(st.sampled_from([name, name.lower(), name.upper()]))
    comment = draw(st.sampled_from(["", "", "  # why"])) if name != "ProxyCommand" else ""
    end = draw(st.sampled_from(["", "", " ", "\r"]))
    return f"  {spelt}{draw(between())}{draw(st.sampled_from(VALUES[name]))}{comment}{end}"


line = st.one_of(host_line(), match_line(), option_line(), option_line(), option_line(), st.sampled_from(["", "# x"]))

configuration = st.recursive(
    st.lists(line, max_size=8),
    lambda part: st.lists(line | part, max_size=9),
    max_leaves=4,
)
"""The lines of a file; a list among them is a file that it includes."""

target = st.builds(
    SshTarget,
    st.sampled_from(ALIASES),
    st.sampled_from([None, "me", "Me"]),
    st.sampled_from([None, 2222]),
    st.just(()),
    st.sampled_from([(), (), ("User=cli",), ("Port=9",), ("ProxyJump=none",), ("HostName=%h.Cli",)]),
)


def write(directory: Path, part: list[object], names: Iterator[int]) -> Path:
    """Write a file with what it includes."""
    path = directory / f"part{next(names)}"
    lines = [f"Include {write(directory, each, names)}" if isinstance(each, list) else str(each) for each in part]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def both_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The only configuration of `ssh`, and of a laptop without it, on which the words `no-ssh` start ssh."""
    directory = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as patch:
        path = only_config(directory, patch)
        (directory / ".ssh").mkdir()
        (directory / ".ssh" / "config").symlink_to(path)
        patch.setattr(config_files, "SYSTEM_CONFIG", directory / "nothing")
        yield path


def meaning(config: HostConfig) -> dict[str, object]:
    """What is to be the same: not the names of default keys, nor that a pass over the files lists a variable again, nor
    the digest of the lines that `ssh -G` prints."""
    found = dataclasses.asdict(config)
    del found["given"], found["no_effect"], found["digest"], found["stream"]["algorithms"]
    found["stream"]["send_env"] = set(config.stream.send_env)
    found["identities"]["files"] = [path for path in config.identities.files if not path.name.startswith("id_")]
    return found


@given(configuration, target)
def test_both_readings_agree(both_config: Path, lines: list[object], target: SshTarget) -> None:
    shutil.copy(write(both_config.parent, lines, itertools.count()), both_config)
    options = read_config(target, [both_config])
    keys = [*target.identities, *options.get("identityfile", ())]
    ours = host_config({**options, "identityfile": keys}, {}, target)
    assert meaning(ours) == meaning(asyncio.run(resolve(target))), both_config.read_text()


names = st.sampled_from(["far", "Far", "hop1", "HOP1", "Hop2"])

chain_line = st.one_of(
    st.builds("Host {}".format, names),
    st.builds("  ProxyJump {}".format, st.lists(names, min_size=1, max_size=2).map(",".join)),
    st.builds("  HostName {}".format, st.sampled_from(["%h.lan", "10.9.8.7", "FAR"])),
    st.builds("  User {}".format, st.sampled_from(["me", "you"])),
    st.sampled_from(["  ProxyJump me@%h-gate:2222", "  ProxyJump none", "  ProxyCommand nc %h %p"]),
)


@given(st.lists(chain_line, max_size=8), names)
@example(["  ProxyCommand nc %h %p", "  ProxyJump hop1"], "far")
@example(["  ProxyJump hop1", "  ProxyCommand nc %h %p"], "far")
@example(["  ProxyJump none", "  ProxyCommand nc %h %p"], "far")
@example(["  ProxyCommand none", "  ProxyJump hop1"], "far")
def test_both_readings_find_the_same_jump_hosts(both_config: Path, lines: list[str], host: str) -> None:
    both_config.write_text("\n".join(lines) + "\n")

    async def found(ssh: str) -> list[tuple[object, ...]] | None:
        try:
            hops = await route(SshTarget(host), (ssh,))
        except ConfigError:
            return None
        return [(hop.config.hostname, hop.config.user, hop.config.port, hop.config.route) for hop in hops]

    with pytest.MonkeyPatch.context() as patch:
        theirs = asyncio.run(found("ssh"))
        patch.setenv("HOME", str(both_config.parent))
        ours = asyncio.run(found("no-ssh"))
    assert ours == theirs or theirs is None  # ssh refuses some loops that ccb goes once
