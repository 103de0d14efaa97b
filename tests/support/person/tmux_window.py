"""A program in a window of tmux, as a person sees it and types into it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccb.local.terminal.keymap import BURST_S

_LOOK_S = 0.03


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

    async def says_yes(self, marked: str) -> int:
        """Allow the call on the card with the fewest keys: Enter if the screen says with `marked` that yes is marked,
        or does so soon, else Tab, Enter. Return how many these were."""
        keys = ["Enter"]
        try:
            await self.until(lambda screen: marked in screen, 3)
        except AssertionError:
            keys = ["Tab", "Enter"]
        await self.press(*keys)
        return len(keys)

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
