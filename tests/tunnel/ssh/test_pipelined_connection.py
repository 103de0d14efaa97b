"""asyncssh's inside, which the limits against a hostile server override."""

from __future__ import annotations

import tomllib
from pathlib import Path

import asyncssh
import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import target

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.pipelined_connection import VERSION
from ccb.tunnel.transports.login_prompts import NobodyToAsk

ROOT = Path(__file__).parents[3]


def test_no_other_asyncssh_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [needed] = [each for each in project["project"]["dependencies"] if each.startswith("asyncssh")]
    major, minor = VERSION.split(".")[:2]
    assert needed == f"asyncssh[bcrypt]>={major}.{minor},<{major}.{int(minor) + 1}"


async def test_an_asyncssh_that_is_different_is_not_used(
    sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the window of a command could be opened for what nobody has read."""
    monkeypatch.setattr(asyncssh, "__version__", "2.25.0")
    with pytest.raises(ConfigError, match="does not know this version of asyncssh") as caught:
        await connect(target(sshd, host_user), NobodyToAsk())
    assert "asyncssh 2.25.0" in caught.value.evidence and "--transport ssh" in caught.value.do
