"""The agent's world is that of the person's own terminal on the host, over a real sshd."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import Sshd, host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited

GUARD = "case $- in *i*) ;; *) return;; esac\n"
"""How the .bashrc of Debian begins: commands over ssh read no further."""


def bash(host: Host, command: str) -> None:
    call = uses("Bash", command=command)
    host.model.add({**call, "when": {"has_tool_result": False}}, {"text": "done", "times": 0})


def nvm(host: Host, start_up: str, line: str) -> None:
    host.put(".nvm/versions/node/v22/bin/node", b"#!/bin/sh\necho v22\n").chmod(0o755)
    host.put(start_up, line.encode())
    if start_up == ".bashrc":
        host.put(".profile", b'[ -n "$BASH_VERSION" ] && . ~/.bashrc\n')


async def run(host: Host) -> str:
    done = await host.run("-p", "go", "--allowedTools", "Bash")
    assert done.code == 0, done.stderr
    return done.stderr


STARTED = {
    "/bin/bash": (".bashrc", GUARD + 'export NVM_DIR=$HOME/.nvm PATH="$HOME/.nvm/versions/node/v22/bin:$PATH"\n'),
    "/usr/bin/zsh": (".zshrc", 'export NVM_DIR=$HOME/.nvm PATH="$HOME/.nvm/versions/node/v22/bin:$PATH"\n'),
    "/usr/bin/fish": (
        ".config/fish/config.fish",
        "status is-interactive; or exit\nset -gx NVM_DIR ~/.nvm\nfish_add_path ~/.nvm/versions/node/v22/bin\n",
    ),
}


@pytest.mark.parametrize("shell", STARTED)
@pytest.mark.quick_rows(1)
async def test_a_command_finds_the_program_that_the_persons_terminal_finds(
    tmp_path: Path, sshd: Sshd, laptop: Laptop, fake_model: FakeModel, shell: str
) -> None:
    with host_user(tmp_path, shell) as user:
        host = Host(laptop, fake_model, sshd, user)
        bash(host, "node && echo $NVM_DIR")
        nvm(host, *STARTED[shell])
        assert "PATH" not in await run(host)
        assert fake_model.requests[-1].tool_result_text == f"v22\n{user.home}/.nvm"


async def test_a_caged_command_finds_it_too(host: Host) -> None:
    bash(host, "node --version")
    nvm(host, *STARTED["/bin/bash"])
    host.put("project/file", b"")
    assert (await host.run("-p", "go", path="~/project")).code == 0
    assert host.model.requests[-1].tool_result_text == "v22"


async def test_start_up_files_that_end_the_shell_are_said_with_the_path_that_counts(host: Host, tmp_path: Path) -> None:
    bash(host, "echo $PATH")
    host.put(".profile", b"exec tmux\n")
    async with serve(tmp_path / "narrow", ["SetEnv PATH=/opt/only"]) as server:
        said = await run(replace(host, server=server))
        assert host.model.requests[-1].tool_result_text == "/opt/only"
    assert said.count("was ended by its start-up files") == 1
    assert "Commands get the PATH of the connection, /opt/only;" in said


@pytest.mark.parametrize("change", ["chmod 0 .", "rmdir ../project", "mv ../project ../other && touch ../project"])
@pytest.mark.quick_rows(1)
async def test_commands_and_hooks_run_on_when_the_directory_of_the_session_is_gone(host: Host, change: str) -> None:
    project = host.put("project")
    host.model.add(uses("Bash", command=change), uses("Bash", command="cd / && ls -d usr"), {"text": "done"})
    hook = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": f"pwd >>{host.home}/hooked"}]}]}}
    words = ["-p", "go", "--allowedTools", "Bash", "--settings", json.dumps(hook)]
    done = await host.run(*words, path="~/project")
    assert done.code == 0, done.stderr
    why = "cannot be entered" if "chmod" in change else "is no directory any more"
    assert host.model.requests[-1].tool_result_text == (f"usr\n{project} {why}: the command ran in {host.home}")
    assert (host.home / "hooked").read_text() == f"{project}\n{host.home}\n"
    if project.is_dir():
        project.chmod(0o700)
