"""Where a copied text goes, and that nothing else is claimed: a real tmux with and without a terminal."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.person.terminal import terminal

from ccb.local.terminal.clipboard import copy

TEXT = "the answer: ünïcode\n"
SEQUENCE = f"\x1b]52;c;{base64.b64encode(TEXT.encode()).decode()}\a"


@pytest.mark.parametrize(
    ("environ", "what", "written"),
    [
        ({"TERM": "xterm-256color"}, "sent to the terminal's clipboard", SEQUENCE),
        ({"TERM": "linux"}, "not copied: this terminal has no clipboard", ""),
        ({"TERM": "screen", "STY": "1.pts"}, "not copied: GNU screen passes nothing on to the clipboard", ""),
        (
            {"TERM": "tmux-256color", "TMUX": "/nowhere/socket,1,0", "PATH": os.defpath},
            "sent to tmux, which takes it only if its option set-clipboard is on",
            SEQUENCE,
        ),
    ],
    ids=["a terminal", "the Linux console", "screen", "a tmux that has gone"],
)
async def test_what_is_said_is_what_is_known(environ: dict[str, str], what: str, written: str) -> None:
    wrote: list[str] = []
    assert await copy(TEXT, environ, wrote.append) == what
    assert "".join(wrote) == written


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of our own; the start of commands to it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    command = ["tmux", "-f", os.devnull, "-S", str(tmp_path / "tmux")]
    subprocess.run([*command, "new-session", "-d", "sleep 100"], check=True, timeout=20)
    yield command
    subprocess.run([*command, "kill-server"], check=True, timeout=20)


@pytest.mark.programs
@pytest.mark.parametrize("attached", [False, True], ids=["without a terminal", "in a terminal"])
async def test_tmux_takes_the_text_and_gives_it_to_its_terminal(tmux: list[str], attached: bool) -> None:
    environ = {**os.environ, "TMUX": f"{tmux[-1]},1,0", "TERM": "tmux-256color"}
    if not attached:
        assert await copy(TEXT, environ, pytest.fail) == "copied to the tmux buffer"
    else:
        async with terminal([*tmux, "attach"], os.environ, os.getcwd()) as at:
            await at.until(lambda: b"\x1b[?1049h" in at.written)
            said = await copy(TEXT, environ, pytest.fail)
            assert said == "copied to the tmux buffer and sent to the terminal's clipboard"
            await at.until(lambda: base64.b64encode(TEXT.encode()) in at.written)
    kept = subprocess.run([*tmux, "show-buffer"], check=True, capture_output=True, timeout=20)
    assert kept.stdout.decode() == TEXT
