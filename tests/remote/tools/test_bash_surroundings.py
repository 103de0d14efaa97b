"""What a command finds around it: a directory that exists, and nobody who could be asked."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remote.tools_kit import Toolbox
from tests.support.machine.programs import shell_script

from ccb.remote.system.host import Host
from ccb.remote.tools import bash

GONE = {"removed": "rmdir $1", "renamed": "mv $1 $1-2", "a file now": "rmdir $1 && touch $1"}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("caged", [True, False])
async def test_commands_run_above_a_root_that_is_gone_and_say_so(box: Toolbox, how: str, caged: bool) -> None:
    if caged:
        cage = box.context.cages.read_only([str(box.root)])
        assert cage is not None
        box.context = box.context.for_call(replace(box.context.call, cage=cage))
    subprocess.run(["sh", "-c", GONE[how], "sh", str(box.root)], check=True)
    above = box.root.parent
    gone = f"{box.root} is no directory any more: the command ran in {above}"
    assert gone in await box.text("Bash", command="pwd", run_in_background=True)
    assert await box.text("Bash", command="pwd && cd / && ls -d usr") == f"{above}\nusr\n{gone}"
    if how == "removed":
        box.root.mkdir()
        assert await box.text("Bash", command="pwd") == str(box.root)


async def test_a_command_says_once_that_the_directory_of_the_last_cd_is_gone(box: Toolbox) -> None:
    away = box.root / "sub" / "away"
    await box.text("Bash", command="mkdir -p sub/away next && cd sub/away")
    await box.text("Bash", command="rm -r ../../sub")
    said = await box.text("Bash", command="pwd; cd next")
    assert said == f"{box.root}\n{away} is no directory any more: the command ran in {box.root}"
    assert await box.text("Bash", command="pwd") == f"{box.root}/next"


async def test_a_disk_that_hangs_holds_up_only_the_command(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, goes_on = asyncio.get_running_loop(), threading.Event()

    def look(path: str) -> str:
        loop.call_soon_threadsafe(goes_on.set)
        assert goes_on.wait(10), "the event loop waits for the disk"
        return path

    monkeypatch.setattr(bash, "nearest_directory", look)
    assert await box.text("Bash", command="echo ran") == "ran"


@pytest.fixture
def waiting(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that the login names as editor and askpass; it waits for ever, and notes that it was started."""
    noted = box.root.parent / "started"
    program = shell_script(box.root.parent / "waits", f"touch {noted}\nexec sleep 1000")
    named = ("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS")
    asks = dict.fromkeys(named, str(program))
    more = {"DISPLAY": ":99", "WAYLAND_DISPLAY": "wayland-9", "SSH_ASKPASS_REQUIRE": "force"}
    environ = {**os.environ, **asks, **more, "HOME": str(box.root.parent)}
    box.context = replace(box.context, host=Host(untrusted=[str(box.root)], environ=environ))
    return noted


_COMMIT = "git -c user.name=n -c user.email=e commit -q --allow-empty -m "


async def test_git_opens_no_editor_and_takes_the_ssh_that_a_command_names(box: Toolbox, waiting: Path) -> None:
    script = f"git init -q . && {_COMMIT}1 && {_COMMIT}2 && {_COMMIT}3"
    await box.text("Bash", command=script)
    await box.text("Bash", command="git -c user.name=n -c user.email=e rebase -i HEAD~2", timeout=60_000)
    assert not waiting.exists()
    script = "git init -q .; git -c core.sshCommand='echo mine >&2; false' ls-remote ssh://h/x"
    assert "mine" in await box.error("Bash", command=script)


async def test_a_push_that_would_ask_for_a_password_ends_and_says_how_to_go_on(box: Toolbox, waiting: Path) -> None:
    server = (
        "import http.server\n"
        "class Asks(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(401); self.send_header('WWW-Authenticate', 'Basic realm=x'); self.end_headers()\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Asks); print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen(["python3", "-c", server], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asks:
        assert asks.stdout is not None
        port = int(asks.stdout.readline())
        script = f"git init -q . && {_COMMIT}1 && git push http://127.0.0.1:{port}/x HEAD"
        said = await box.error("Bash", command=script, timeout=60_000)
        asks.kill()
    assert "There is no terminal, and nobody can be asked here." in said
    assert not waiting.exists()


async def test_a_key_with_a_passphrase_is_not_asked_for(box: Toolbox, waiting: Path) -> None:
    await box.text("Bash", command="ssh-keygen -q -t ed25519 -a 1 -N secret -f key")
    said = await box.error("Bash", command="eval $(ssh-agent); ssh-add key; s=$?; kill $SSH_AGENT_PID; exit $s")
    assert not waiting.exists(), said


@pytest.mark.parametrize(
    "command",
    [
        *("cat </dev/tty", "python3 -c 'open(\"/dev/tty\")'", "stty -a", "python3 -c 'input()'"),
        *("git init -q . && git -c user.name=n -c user.email=e commit --allow-empty", "printf 'Sure?'; exit 1"),
        *("printf 'package name: (app) '; exit 1", "printf 'Current password: passwd: unchanged\n'; exit 10"),
        "printf 'Continue? [Y/n] Abort.\n'; exit 1",
    ],
)
async def test_a_program_that_wants_a_terminal_gets_its_end_and_the_model_a_way_on(box: Toolbox, command: str) -> None:
    assert "ask the user to run this in a terminal of their own" in await box.error("Bash", command=command)


async def test_a_command_that_waits_for_a_terminal_until_its_time_is_up_tells_the_model_a_way_on(box: Toolbox) -> None:
    script = "echo 'Vim: Warning: Input is not from a terminal'; sleep 100"
    said = await box.error("Bash", command=script, timeout=500)
    assert "timed out" in said and "ask the user to run this in a terminal of their own" in said


@pytest.mark.parametrize(
    "said",
    ["ls: cannot access 'x'", "error: no such key: x", "FAILED (errors=2)", "wrong answer: password\n", "a: b:\nc"],
)
async def test_a_failure_that_asks_nothing_says_nothing_about_terminals(box: Toolbox, said: str) -> None:
    (box.root / "said").write_text(said, encoding="utf-8")
    assert "terminal" not in await box.error("Bash", command="cat said; exit 1")
