"""Who is ended in the middle of a login gives everything back: the terminal, the children, the private directory."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.reached_host import Host
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
async def test_sigterm_at_a_question_of_ssh(host: Host, command: list[str]) -> None:
    words = [word.format(host.login) for word in command]
    async with host.laptop.on_terminal(*words, *host.locked_key(), "--transport", "ssh") as running:
        await running.shows("Enter passphrase for")
        await running.until(lambda: not running.echoes)
        assert await ended_by(running, signal.SIGTERM) == 143
        assert running.echoes
        assert "ccb: terminated" in running.text
    assert not list(Path(host.laptop.env["XDG_RUNTIME_DIR"]).iterdir())


async def test_a_window_closed_while_a_proxy_command_says_nothing(host: Host) -> None:
    proxy = "echo looking for a way >&2; sleep 1000"
    async with host.laptop.on_terminal("ssh", f"{host.login}:~", "-o", f"ProxyCommand={proxy}") as running:
        await running.shows("looking for a way")
        assert await ended_by(running, signal.SIGHUP) == 129
