"""Made-up configurations mean to our own reading of files, without OpenSSH, what they mean to the real `ssh -G`."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from tests.support.person.login import only_config

from ccb.tunnel.ssh_config.files import read_config
from ccb.tunnel.ssh_config.host_config import HostConfig, host_config
from ccb.tunnel.ssh_config.resolve import resolve, with_identities
from ccb.tunnel.ssh_config.target import SshTarget

VALUES = {
    "HostName": ["%h.x.org", "h1", "10.1.1.1", "%h", "Web2.Example.com"],
    "User": ["me", "you", '"quoted"'],
    "Port": ["22", "2022"],
    "IdentityFile": ["~/.ssh/%h", "/k/%r", '"/k/with space"', "/k/%n-%p"],
    "CertificateFile": ["/c/1", "~/c2"],
    "UserKnownHostsFile": ["/kh1 /kh2", '"/k h" ~/x', "none", "/kh-%k"],
    "StrictHostKeyChecking": ["yes", "no", "ask", "accept-new", "off"],
    "ProxyCommand": ["nc %h %p", "none", 'sh -c "x # %r"', "a | b"],
    "ProxyJump": ["j1", "u@j2:22,j3", "none"],
    "ServerAliveInterval": ["10", "1m", "0", "2m30s"],
    "ConnectTimeout": ["5", "1h", "1m"],
    "SetEnv": ["A=1 B=2", 'C="x y"', "A=3"],
    "SendEnv": ["LANG LC_*", "X", "Y Z"],
    "HostKeyAlias": ["al", "none"],
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
    "AddKeysToAgent": ["yes", "confirm", "1h", "ask"],
}
PATTERNS = ["a", "b", "web*", "*.example.com", "w?b1", "*", "10.0.*", "WEB1"]
CONDITIONS = {
    "user": ["root", "me", "m*", "!me,*"],
    "localuser": ["root", "nobody"],
    "exec": ['"true"', '"false"', '"test %h = a"', '"test x%n = xweb1"', '"test %p = 22"', "true"],
}


def configuration(rng: random.Random, directory: Path, depth: int = 0) -> str:
    lines = []
    for number in range(rng.randint(1, 9)):
        kind = rng.random()
        if kind < 0.2:
            patterns = " ".join(_pattern(rng) for _ in range(rng.randint(1, 3)))
            lines.append("Host" + rng.choice([" ", "=", "  ", " = "]) + patterns)
        elif kind < 0.35:
            lines.append("Match " + " ".join(_condition(rng) for _ in range(rng.randint(1, 2))))
        elif kind < 0.42 and depth < 2:
            part = directory / f"part{depth}{number}"
            part.write_text(configuration(rng, directory, depth + 1))
            lines.append(f"Include {part}")
        else:
            name = rng.choice(list(VALUES))
            comment = "  # why" if rng.random() < 0.15 and name != "ProxyCommand" else ""
            spelt = rng.choice([name, name, name.lower()])
            lines.append("  " + spelt + rng.choice([" ", "=", "  "]) + rng.choice(VALUES[name]) + comment)
    return "\n".join(lines) + "\n"


def _pattern(rng: random.Random) -> str:
    return ("!" if rng.random() < 0.15 else "") + rng.choice(PATTERNS)


def _condition(rng: random.Random) -> str:
    name = rng.choice(["host", "originalhost", "final", *CONDITIONS])
    if name == "final":
        return name
    value = rng.choice(CONDITIONS[name]) if name in CONDITIONS else ",".join(_pattern(rng) for _ in range(2))
    return ("!" if rng.random() < 0.2 else "") + f"{name} {value}"


def meaning(config: HostConfig) -> dict[str, object]:
    """What is to be the same: not the names of default keys, nor that a pass over the files lists a variable again, nor
    the digest of the lines that `ssh -G` prints."""
    found = dataclasses.asdict(config)
    del found["no_effect"], found["digest"], found["stream"]["algorithms"]
    found["stream"]["send_env"] = set(config.stream.send_env)
    found["identities"]["files"] = [path for path in config.identities.files if not path.name.startswith("id_")]
    return found


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.quick_rows(4)
async def test_both_readings_agree(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = only_config(tmp_path, monkeypatch)
    for each in range(seed * 10, seed * 10 + 10):
        rng = random.Random(each)
        text = configuration(rng, tmp_path)
        file.write_text(text)
        host = rng.choice(["a", "b", "web1", "web2.example.com", "db", "10.0.0.1"])
        options = rng.choice([(), (), ("User=cli",), ("Port=9",), ("ProxyJump=none",)])
        target = SshTarget(host, rng.choice([None, "me"]), rng.choice([None, 2222]), (), options)
        lines, _ = read_config(target, [file])
        ours = host_config(with_identities(lines, target), {}, target)
        assert meaning(ours) == meaning(await resolve(target)), f"{target}\n{text}"
