"""How soon the REPL shows a composer that takes typing, against the first frame of an empty Textual application.

Each is a process on a pseudo terminal of 120 columns and 40 lines. The host does not answer: nothing of it is needed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.ratio import compare, in_turn
from tests.support.network.silent_port import silent_port
from tests.support.person.terminal import terminal

EMPTY = "from textual.app import App\nApp().run()\n"
COMPOSER = "k for a change, or /help"  # without the letter under the cursor
SIZE = (120, 40)
LIMIT = 1.2
LAST_LINE = b"\x1b[%d;1H" % SIZE[1]


async def first_frame(argv: list[str], home: Path, shows: str = "") -> float:
    """Return the seconds from the start of a program until its first frame with the text `shows` is complete."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "COLORTERM": "truecolor", "ANTHROPIC_API_KEY": "sk-none"}
    began = time.monotonic()
    async with terminal(argv, env, str(home), SIZE) as running:
        await running.until(lambda: LAST_LINE in running.written and shows.encode() in running.written)
        return time.monotonic() - began


async def main() -> None:
    """Print how the first frames compare."""
    with tempfile.TemporaryDirectory() as top, silent_port() as port:
        home = Path(top)
        ccb = [sys.executable, str(Path(sys.executable).with_name("ccb")), "ssh", "127.0.0.1:/", "-P", str(port)]
        ours, empty = await in_turn(
            partial(first_frame, ccb, home, COMPOSER), partial(first_frame, [sys.executable, "-c", EMPTY], home)
        )
        compare("the REPL takes typing", ours, "empty Textual app", empty, LIMIT)
