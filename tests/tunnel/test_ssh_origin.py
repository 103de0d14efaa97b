"""Which file and line an ssh option comes from, with the real `ssh -G`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ccb.tunnel.ssh_config import SshTarget
from ccb.tunnel.ssh_origin import applied_options


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only configuration that ssh reads."""
    path, real = tmp_path / "config", shutil.which("ssh")
    wrapper = tmp_path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {real} -F "{path}" "$@"\n', encoding="ascii")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return path


async def test_each_option_is_traced_to_its_line(config: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.write_text("Host shop*\n  Compression yes\n", encoding="ascii")
    config.write_text(
        f"Include {more}\nHost other\n  Port 99\nHost shop\n  Port=2222\n  User bob\n  ServerAliveInterval 1m\n",
        encoding="ascii",
    )
    found = await applied_options(SshTarget("shop", options=("ForwardAgent=yes",)))
    assert {each.name: (each.value, each.where) for each in found} == {
        "user": ("bob", f"{config}:6"),
        "port": ("2222", f"{config}:5"),
        "compression": ("yes", f"{more}:2"),
        "serveraliveinterval": ("60", f"{config}:7"),
        "forwardagent": ("yes", "command line"),
    }


async def test_without_configuration_there_is_nothing_to_say(config: Path) -> None:
    config.write_text("", encoding="ascii")
    assert await applied_options(SshTarget("shop")) == []


async def test_a_flag_of_the_command_line_wins(config: Path) -> None:
    config.write_text("Port 99\n", encoding="ascii")
    found = await applied_options(SshTarget("shop", port=2200))
    assert [(each.name, each.value, each.where) for each in found] == [("port", "2200", "command line")]
