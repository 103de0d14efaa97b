"""The agent's world is that of the person's own terminal on the host, over a real sshd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited

GUARD = "case $- in *i*) ;; *) return;; esac\n"
"""How the .bashrc of Debian begins: commands over ssh read no further."""


def bash(fake_model: FakeModel, command: str) -> None:
    call = {"type": "tool_use", "name": "Bash", "input": {"command": command}}
    fake_model.add({"blocks": [call], "when": {"has_tool_result": False}}, {"text": "done", "times": 0})


def write(user: HostUser, name: str, text: str, mode: int = 0o644) -> None:
    path = user.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    for each in (path, *path.parents):
        if each.is_relative_to(user.home):
            shutil.chown(each, user.name)


def nvm(user: HostUser, start_up: str, line: str) -> None:
    write(user, ".nvm/versions/node/v22/bin/node", "#!/bin/sh\necho v22\n", 0o755)
    write(user, start_up, line)
    if start_up == ".bashrc":
        write(user, ".profile", '[ -n "$BASH_VERSION" ] && . ~/.bashrc\n')


async def run(laptop: Laptop, server: Sshd, user: HostUser, *more: str) -> str:
    words = ["ssh", *server.client_options(), f"{user.name}@127.0.0.1:~", "-p", "go", "--allowedTools", "Bash", *more]
    done = await laptop.run(words)
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
    bash(fake_model, "node && echo $NVM_DIR")
    with host_user(tmp_path, shell) as user:
        nvm(user, *STARTED[shell])
        assert "PATH" not in await run(laptop, sshd, user)
        assert fake_model.requests[-1].tool_result_text == f"v22\n{user.home}/.nvm"


async def test_a_caged_command_finds_it_too(
    sshd: Sshd, host_user: HostUser, laptop: Laptop, fake_model: FakeModel
) -> None:
    bash(fake_model, "node --version")
    nvm(host_user, *STARTED["/bin/bash"])
    write(host_user, "project/file", "")
    words = ["ssh", *sshd.client_options(), f"{host_user.name}@127.0.0.1:~/project", "-p", "go"]
    assert (await laptop.run(words)).code == 0
    assert fake_model.requests[-1].tool_result_text == "v22"


async def test_start_up_files_that_end_the_shell_are_said_with_the_path_that_counts(
    tmp_path: Path, host_user: HostUser, laptop: Laptop, fake_model: FakeModel
) -> None:
    bash(fake_model, "echo $PATH")
    write(host_user, ".profile", "exec tmux\n")
    async with serve(tmp_path / "narrow", ["SetEnv PATH=/opt/only"]) as server:
        said = await run(laptop, server, host_user)
        assert fake_model.requests[-1].tool_result_text == "/opt/only"
    assert said.count("was ended by its start-up files") == 1
    assert "Commands get the PATH of the connection, /opt/only;" in said


@pytest.mark.parametrize("change", ["chmod 0 .", "rmdir ../project", "mv ../project ../other && touch ../project"])
@pytest.mark.quick_rows(1)
async def test_commands_and_hooks_run_on_when_the_directory_of_the_session_is_gone(
    sshd: Sshd, host_user: HostUser, laptop: Laptop, fake_model: FakeModel, change: str
) -> None:
    project = host_user.home / "project"
    project.mkdir()
    shutil.chown(project, host_user.name)
    for each in (change, "cd / && ls -d usr"):
        call = {"type": "tool_use", "name": "Bash", "input": {"command": each}}
        fake_model.add({"blocks": [call]})
    fake_model.add({"text": "done"})
    hook = {"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": f"pwd >>{host_user.home}/hooked"}]}]}}
    words = ["ssh", *sshd.client_options(), f"{host_user.name}@127.0.0.1:~/project", "-p", "go"]
    done = await laptop.run([*words, "--allowedTools", "Bash", "--settings", json.dumps(hook)])
    assert done.code == 0, done.stderr
    why = "cannot be entered" if "chmod" in change else "is no directory any more"
    assert fake_model.requests[-1].tool_result_text == (f"usr\n{project} {why}: the command ran in {host_user.home}")
    assert (host_user.home / "hooked").read_text() == f"{project}\n{host_user.home}\n"
    if project.is_dir():
        project.chmod(0o700)
