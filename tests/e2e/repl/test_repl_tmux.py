"""A working day in one window of tmux, over a real sshd and a link that breaks. What counts is the screen."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses
from tests.support.network.relay import relay

from ccb.local.terminal.keymap import BURST_S

pytestmark = pytest.mark.visited

_LOOK_S = 0.03
PASTED = [f"line {number} of what was pasted" for number in range(3)]


class Window:
    """The only window of a tmux server of its own."""

    def __init__(self, directory: Path) -> None:
        self._socket = directory / "socket"
        self.exit_code = directory / "exit-code"

    async def tmux(self, *arguments: str, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """Give a command to the server. Return what it prints. The first one starts it, with the environment `env`."""
        process = await asyncio.create_subprocess_exec(
            "tmux", "-f", "/dev/null", "-S", str(self._socket), *arguments,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
        )  # fmt: skip
        out, err = await process.communicate(stdin)
        assert process.returncode == 0, f"tmux {arguments}: {err.decode()}"
        return out.decode()

    async def type(self, text: str) -> None:
        """Type characters, as fast as tmux passes them on."""
        await self.tmux("send-keys", "-l", text)

    async def press(self, *keys: str) -> None:
        """Press keys by their tmux names, with the pause of a person before each: without it they are a paste."""
        for key in keys:
            await asyncio.sleep(4 * BURST_S)
            await self.tmux("send-keys", key)

    async def paste(self, text: str) -> None:
        """Paste text, bracketed if the program has asked for that."""
        await self.tmux("load-buffer", "-", stdin=text.encode())
        await self.tmux("paste-buffer", "-p")

    async def resize(self, columns: int, lines: int) -> None:
        await self.tmux("resize-window", "-x", str(columns), "-y", str(lines))

    async def until(self, condition: Callable[[str], object], deadline_s: float = 30) -> str:
        """Wait until what is on the screen fulfils `condition`. Return it."""
        screen = ""
        try:
            async with asyncio.timeout(deadline_s):
                while not condition(screen := await self.tmux("capture-pane", "-p")):
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise AssertionError(f"it did not happen; the screen:\n{screen}") from None
        return screen

    async def shows(self, *texts: str) -> str:
        """Wait until all of these are on the screen. Return it."""
        return await self.until(lambda screen: all(text in screen for text in texts))

    async def ended(self) -> int:
        """Wait for the end of the program. Return its exit code."""
        await self.until(lambda _: self.exit_code.exists())
        return int(self.exit_code.read_text())


@asynccontextmanager
async def tmux_window(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> AsyncIterator[Window]:
    """Run a program in a window. It ends with the server of the window."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    with tempfile.TemporaryDirectory(prefix="tmux") as directory:  # the path of a socket must be short
        window = Window(Path(directory))
        try:
            await window.tmux(
                *("set-option", "-g", "remain-on-exit", "on", ";", "new-session", "-d", "-c", cwd),
                # tmux 3.3 tells the exit code only if it hears of the end of the program before that of its output
                *("--", "sh", "-c", '"$@"; echo $? >"$0.new" && mv "$0.new" "$0"', str(window.exit_code), *argv),
                env={"TERM": "xterm-256color", **env},  # as arguments, everybody could read the key in them
            )
            await window.tmux("set-option", "-g", "window-size", "manual")
            await window.resize(100, 30)
            yield window
        finally:
            await window.tmux("kill-server")


async def answer(window: Window, key: str) -> None:
    """Go to the card and answer it. Right after it appears, a card takes no focus; each press is waited for, because a
    second one would go back."""
    await window.shows("to answer")
    for _ in range(10):
        await window.press("M-a")
        with suppress(AssertionError):
            await window.until(lambda screen: "Esc back" in screen, 6)
            break
    await window.press(key)
    await window.press("Enter")


async def test_paste_approve_deny_interrupt_reconnect_resize_and_quit(host: Host) -> None:
    host.model.add(uses("Bash", command="echo one >> approved"), {"text": "Approved-work-is-done."})
    host.model.add(uses("Bash", command="echo one >> denied"), {"text": "Then-I-do-not."})
    host.model.add(uses("Bash", command="echo started; sleep 600"), {"text": "The-link-is-back."})
    async with relay(host.server.port) as link:
        argv = [sys.executable, "-m", "ccb", *host.ssh(port=link.port)]
        async with tmux_window(argv, host.laptop.env, str(host.laptop.home)) as window:
            await window.shows("F1 or /help", host.user.name)

            await window.paste("\n".join(PASTED))
            await window.shows(*PASTED)
            assert not host.model.requests, "a paste sends nothing"
            await window.press("Enter")
            await answer(window, "1")
            await window.shows("Approved-work-is-done.")
            assert (host.home / "approved").read_text() == "one\n"

            await window.type("and again\r")
            await answer(window, "4")
            await window.shows("Why not?")
            await window.type("not-on-a-friday")
            await window.shows("not-on-a-friday")
            await window.press("Enter")
            await window.until(lambda screen: "Then-I-do-not." in screen and "to answer" not in screen)
            assert not (host.home / "denied").exists()
            assert "not-on-a-friday" in str(host.model.requests[-1].messages)

            await window.type("run it\r")
            await window.shows("❯ run it", "started")
            await window.press("Escape")
            await window.shows("Interrupted.")

            link.cut()
            await window.resize(60, 20)
            await window.type("are you there?\r")
            screen = await window.shows("The-link-is-back.")
            assert all(len(line) <= 60 for line in screen.splitlines())
            assert len(screen.splitlines()) <= 20

            await window.press("C-d")
            assert await window.ended() == 0
            await window.shows("Come back with:")
    assert all(line in host.model.requests[0].messages[0]["content"][-1]["text"] for line in PASTED)


@pytest.mark.thorough  # on a machine that is busy, more than two seconds pass between two questions
async def test_twenty_approvals_take_one_key_each(host: Host) -> None:
    commands = [f"echo {number}. >> approved" for number in range(20)]
    host.model.add(*(uses("Bash", command=command) for command in commands), {"text": "All-is-done."})
    argv = [sys.executable, "-m", "ccb", *host.ssh()]
    pressed = []
    async with tmux_window(argv, host.laptop.env, str(host.laptop.home)) as window:
        await window.shows("F1 or /help")
        await window.type("go\r")
        for command in commands:
            await window.shows(f"$ {command}")
            keys = ["Enter"]
            try:
                await window.until(lambda screen: "Esc back" in screen, 3)
            except AssertionError:
                keys = ["Tab", "Enter"]
            for key in keys:
                await window.press(key)
            pressed.append(len(keys))
        await window.shows("All-is-done.")
    assert (host.home / "approved").read_text().split() == [f"{number}." for number in range(20)]
    assert median(pressed) == 1, pressed
