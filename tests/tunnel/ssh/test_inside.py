"""What the pipelined login needs of asyncssh's inside, in the oldest and the newest version that ccb supports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from asyncssh.auth import ClientAuth
from asyncssh.channel import SSHClientChannel
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import target

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.ssh import pipelined_connection
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.transports.login_prompts import NobodyToAsk

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent.relative_to(ROOT)
CHOSEN = (
    "test_inside.py::test_asyncssh_is_as_expected",
    "test_pipelined_login.py::test_the_second_login_saves_five_round_trips",
    "test_pipelined_login.py::test_another_key_logs_in_on_the_same_try[TCP]",
    "test_servers.py::test_a_server_that_does_not_bear_a_command_ahead_is_logged_in_to_again",
    "test_servers.py::test_later_commands_and_their_ends_are_as_ever",
)


def test_asyncssh_is_as_expected() -> None:
    assert pipelined_connection.unexpected() == ""


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(ClientAuth, "auth_failed")
        assert pipelined_connection.unexpected() == "ClientAuth.auth_failed"
    with monkeypatch.context() as patch:
        patch.setattr(SSHClientChannel, "_open", lambda self, chantype, window, *args: None)
        assert pipelined_connection.unexpected() == "SSHClientChannel._open"
    with monkeypatch.context() as patch:
        patch.setattr(SSHClientChannel, "process_open_confirmation", ClientAuth.auth_succeeded)
        assert pipelined_connection.unexpected() == "SSHClientChannel.process_open_confirmation"


async def test_an_asyncssh_that_is_different_is_not_used(
    sshd: Sshd, host_user: HostUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the window of a command would be opened for what nobody has read."""
    monkeypatch.setattr("ccb.tunnel.ssh.ssh_login.unexpected", lambda: "SSHClientChannel._deliver_data")
    with pytest.raises(ConfigError, match="does not know this version of asyncssh") as caught:
        await connect(target(sshd, host_user), NobodyToAsk())
    assert "SSHClientChannel._deliver_data" in caught.value.evidence
    assert "--transport ssh" in caught.value.do


@pytest.mark.thorough
def test_the_oldest_asyncssh_logs_in_alike() -> None:
    """The newest one is installed here, and all tests run with it."""
    oldest = _oldest()
    if version("asyncssh") == oldest:
        return
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_installed(oldest)), *sys.path])}
    shown = subprocess.run(
        [sys.executable, "-c", "import asyncssh; print(asyncssh.__version__)"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.strip() == oldest
    tests = [f"{HERE}/{name}" for name in CHOSEN]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *tests]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def _oldest() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [needed] = [each for each in project["project"]["dependencies"] if each.startswith("asyncssh")]
    found = re.search(r">=(\d+)\.(\d+)", needed)
    assert found is not None
    return f"{found[1]}.{found[2]}.0"


def _installed(wanted: str) -> Path:
    """The directory that holds asyncssh `wanted`, from the registry at first."""
    directory = ROOT / ".make" / "asyncssh" / wanted
    if directory.exists():
        return directory
    fresh = directory.with_name(f"{wanted}-{os.getpid()}")
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(fresh)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, f"asyncssh=={wanted}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"asyncssh {wanted} is not to be had: {done.stderr.strip()[-200:]}")
    fresh.rename(directory)
    return directory
