"""Who is ended in the middle of a login gives everything back: the terminal, the children, the private directory."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.person.laptop import Laptop
from tests.support.person.terminal import Terminal

pytestmark = pytest.mark.visited


async def ended_by(running: Terminal, number: signal.Signals) -> int:
    """Send the signal; the exit code, once nothing that was started is left."""
    children = psutil.Process(running.process.pid).children(recursive=True)
    assert children
    running.process.send_signal(number)
    code = await running.ended()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    return code


@pytest.mark.parametrize("command", [["ssh", "{}:~"], ["doctor", "{}"]])
async def test_sigterm_at_a_question_of_ssh(
    laptop: Laptop, sshd: Sshd, host_user: HostUser, command: list[str]
) -> None:
    key = make_key(laptop.home / "locked", passphrase="open sesame")
    (sshd.identity.parent / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    options = sshd.client_options()
    options[options.index("-i") + 1] = str(key)
    words = [word.format(f"{host_user.name}@127.0.0.1") for word in command]
    async with laptop.on_terminal(*words, *options, "--transport", "ssh") as running:
        await running.shows("Enter passphrase for")
        await running.until(lambda: not running.echoes)
        assert await ended_by(running, signal.SIGTERM) == 143
        assert running.echoes
        assert "ccb: terminated" in running.text
    assert not list(Path(laptop.env["XDG_RUNTIME_DIR"]).iterdir())


async def test_a_window_closed_while_a_proxy_command_says_nothing(
    laptop: Laptop, sshd: Sshd, host_user: HostUser
) -> None:
    proxy = "echo looking for a way >&2; sleep 1000"
    async with laptop.on_terminal("ssh", f"{host_user.name}@127.0.0.1:~", "-o", f"ProxyCommand={proxy}") as running:
        await running.shows("looking for a way")
        assert await ended_by(running, signal.SIGHUP) == 129
