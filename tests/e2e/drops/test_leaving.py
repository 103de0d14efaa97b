"""Who is ended in the middle of a login gives everything back: the terminal, the children, the private directory."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay
from tests.support.person.laptop import Laptop, make_laptop
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


AT_MOST_S = 15.0


@pytest.mark.parametrize("noticed", [False, True], ids=["before it is noticed", "while it reconnects"])
@pytest.mark.thorough
async def test_leaving_is_quick_when_the_network_is_frozen(
    tmp_path: Path, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, noticed: bool
) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    async with relay(sshd.port) as between:
        sshd.trust(between.port)
        async with laptop.on_terminal(
            "ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(between.port)
        ) as running:
            await running.shows("F1 or /help")
            between.freeze()
            if noticed:
                await running.until(lambda: "no answer for" in running.text)
                assert "reconnecting" not in running.text
                await running.until(lambda: "reconnecting" in running.text)
            began = time.monotonic()
            running.type("\x04")
            assert await running.ended() == 0
            assert time.monotonic() - began < AT_MOST_S
            await running.shows("Come back with:")
            between.thaw()
