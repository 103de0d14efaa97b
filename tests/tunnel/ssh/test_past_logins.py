"""The files in which logins are remembered, also where somebody has put something else."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ccb.tunnel.ssh import past_logins
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh.past_logins import PastLogin, PastLogins
from ccb.tunnel.ssh_config.host_config import HostConfig
from ccb.tunnel.ssh_config.ssh_target import SshTarget

LOGIN = PastLogin("SHA256:host", "SSH-2.0-OpenSSH_9.2", "SHA256:key", "ssh-ed25519", "ssh-ed25519", channel=0)


@pytest.fixture(scope="module")
def config() -> HostConfig:
    return asyncio.run(route(SshTarget("127.0.0.1", "ann", 2222, (), ("ProxyJump=none",))))[-1].config


def test_the_last_login_to_each_place_is_remembered(tmp_path: Path, config: HostConfig) -> None:
    past = PastLogins(tmp_path / "a" / "logins")
    assert past.last(config) is None
    past.forget(config)
    past.remember(config, replace(LOGIN, channel=None))
    past.remember(config, LOGIN)
    assert past.last(config) == LOGIN
    for other in (replace(config, port=22), replace(config, user="bob"), replace(config, hostname="127.0.0.2")):
        assert past.last(other) is None
    past.forget(config)
    assert past.last(config) is None
    assert list((tmp_path / "a" / "logins").iterdir()) == []


def test_what_is_no_login_counts_as_none(tmp_path: Path, config: HostConfig) -> None:
    past = PastLogins(tmp_path)
    past.remember(config, LOGIN)
    [path] = tmp_path.iterdir()
    for content in (
        "",
        "[]",
        "[" * 4000,
        json.dumps({**asdict(LOGIN), "key": 1}),
        json.dumps({**asdict(LOGIN), "channel": "0"}),
        json.dumps({**asdict(LOGIN), "more": ""}),
        json.dumps({"key": "SHA256:key"}),
    ):
        path.write_text(content)
        assert past.last(config) is None, content
    path.write_text(json.dumps(asdict(LOGIN)))
    assert past.last(config) == LOGIN
    path.chmod(0o620)
    assert past.last(config) is None, "others may have written it"
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert past.last(config) is None
    path.unlink()
    os.mkfifo(path)
    assert past.last(config) is None


def test_a_place_that_cannot_be_written_is_no_obstacle(tmp_path: Path, config: HostConfig) -> None:
    (tmp_path / "logins").write_text("a file")
    past = PastLogins(tmp_path / "logins")
    past.remember(config, LOGIN)
    past.forget(config)
    assert past.last(config) is None


def test_only_so_many_hosts_are_remembered(tmp_path: Path, config: HostConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_logins, "MAX_HOSTS", 3)
    past = PastLogins(tmp_path)
    hosts = [replace(config, port=port) for port in range(1, 6)]
    for number, host in enumerate(hosts):
        past.remember(host, LOGIN)
        for path in tmp_path.iterdir():
            if path.stat().st_mtime > 1000:
                os.utime(path, (number, number))
    assert [past.last(host) for host in hosts] == [None, None, LOGIN, LOGIN, LOGIN]
