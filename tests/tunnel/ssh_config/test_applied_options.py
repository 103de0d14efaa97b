"""Which file and line an ssh option comes from, with the real `ssh -G`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ccb.tunnel.ssh.carrier import route, ssh_of_jump_hosts
from ccb.tunnel.ssh_config.applied_options import ELSEWHERE, applied_options
from ccb.tunnel.ssh_config.ssh_target import SshTarget


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
    assert found is not None
    assert {each.name: (each.value, each.where) for each in found} == {
        "user": ("bob", f"{config}:6"),
        "port": ("2222", f"{config}:5"),
        "compression": ("yes", f"{more}:2"),
        "serveraliveinterval": ("60", f"{config}:7"),
        "forwardagent": ("yes", "command line"),
    }


async def test_the_flags_of_an_ssh_of_ones_own_count_and_its_file_is_that_of_jump_hosts_too(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host shop\n  Port 2222\nHost hop\n  Port 77\n", encoding="ascii")
    words = ("ssh", "-F", str(config), "-o", "User=bob", "-CJhop")
    found = await applied_options(SshTarget("shop"), words)
    assert found is not None
    assert {each.name: (each.value, each.where) for each in found} == {
        "user": ("bob", "command line"),
        "port": ("2222", f"{config}:2"),
        "compression": ("yes", "command line"),
        "proxyjump": ("hop", "command line"),
    }
    (hop, jump), (_, shop) = await route(SshTarget("shop"), words)
    assert (hop.host, jump.port, shop.port, shop.user) == ("hop", 77, 2222, "bob")
    assert jump.user != "bob" and ssh_of_jump_hosts(words) == ["ssh", "-F", str(config)]


async def test_without_configuration_there_is_nothing_to_say(config: Path) -> None:
    config.write_text("", encoding="ascii")
    assert await applied_options(SshTarget("shop")) == []


async def test_a_flag_of_the_command_line_wins(config: Path) -> None:
    config.write_text("Port 99\n", encoding="ascii")
    found = await applied_options(SshTarget("shop", port=2200))
    assert found is not None
    assert [(each.name, each.value, each.where) for each in found] == [("port", "2200", "command line")]


async def test_match_blocks_and_included_files_are_traced_as_ssh_takes_them(config: Path, tmp_path: Path) -> None:
    more, never = tmp_path / "more", tmp_path / "never"
    more.write_text("Match user bob\n  ForwardX11 yes\nMatch user eve\n  Compression yes\n", encoding="ascii")
    never.write_text("IPQoS none\n", encoding="ascii")
    config.write_text(
        f"""Match host other
  ServerAliveInterval 1m
  Include {never}
Match host shop exec "true"
  ServerAliveInterval 1m
  SendEnv LANG LC_*
Host shop
  User bob
  Ciphers +aes128-cbc
  Include {more}
Match final user bob
  ConnectTimeout 7
Match all
  TCPKeepAlive no
  PubkeyAcceptedKeyTypes -rsa-sha2-256
""",
        encoding="ascii",
    )
    found = await applied_options(SshTarget("shop", options=("SetEnv A=1 B=2",)))
    assert found is not None
    assert [(each.name, each.where) for each in found if each.name == "sendenv"] == [("sendenv", f"{config}:6")] * 2
    assert {each.name: each.where for each in found} == {
        "user": f"{config}:8",
        "ciphers": f"{config}:9",
        "serveraliveinterval": f"{config}:5",
        "sendenv": f"{config}:6",
        "forwardx11": f"{more}:2",
        "connecttimeout": f"{config}:12",
        "tcpkeepalive": f"{config}:14",
        "pubkeyacceptedalgorithms": f"{config}:15",
        "setenv": "command line",
    }


async def test_what_ssh_derives_is_not_pinned_on_a_line(config: Path, tmp_path: Path) -> None:
    config.write_text(f"UserKnownHostsFile {tmp_path}/known\n", encoding="ascii")
    found = await applied_options(SshTarget("shop"))
    assert found is not None
    assert {each.name: each.where for each in found} == {
        "userknownhostsfile": f"{config}:1",
        "updatehostkeys": ELSEWHERE,
    }


async def test_an_ssh_that_refuses_its_configuration_lists_nothing(config: Path) -> None:
    config.write_text("NoSuchOption yes\n", encoding="ascii")
    assert await applied_options(SshTarget("shop")) is None
