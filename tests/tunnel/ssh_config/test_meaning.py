"""Generated configurations mean to our own reading of files, without OpenSSH, what they mean to the real `ssh -G`."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.person.login import only_config

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config import config_files
from ccb.tunnel.ssh_config.config_files import read_config, resolve, with_identities
from ccb.tunnel.ssh_config.host_config import HostConfig, host_config
from ccb.tunnel.ssh_config.ssh_target import SshTarget

VALUES = {
    "HostName": ["%h.x.org", "h1", "10.1.1.1", "%h", "Web2.Example.com"],
    "User": ["me", "you", '"quoted"', r"back\\slash"],
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
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
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
    del found["no_effect"], found["digest"], found["stream"]["algorithms"]
    found["stream"]["send_env"] = set(config.stream.send_env)
    found["identities"]["files"] = [path for path in config.identities.files if not path.name.startswith("id_")]
    return found


@given(configuration, target)
def test_both_readings_agree(config: Path, lines: list[object], target: SshTarget) -> None:
    shutil.copy(write(config.parent, lines, itertools.count()), config)
    ours = host_config(with_identities(read_config(target, [config]), target), {}, target)
    assert meaning(ours) == meaning(asyncio.run(resolve(target))), config.read_text()


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
def test_both_readings_find_the_same_jump_hosts(config: Path, lines: list[str], host: str) -> None:
    config.write_text("\n".join(lines) + "\n")

    async def found(ssh: str) -> list[tuple[object, ...]] | None:
        try:
            hops = await route(SshTarget(host), (ssh,))
        except ConfigError:
            return None
        return [(hop.config.hostname, hop.config.user, hop.config.port, hop.config.route) for hop in hops]

    with pytest.MonkeyPatch.context() as patch:
        theirs = asyncio.run(found("ssh"))
        patch.setenv("HOME", str(config.parent))
        ours = asyncio.run(found("no-ssh"))
    assert ours == theirs or theirs is None  # ssh refuses some loops that ccb goes once
