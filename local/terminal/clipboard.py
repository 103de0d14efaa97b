"""The clipboard of the person's terminal: which program takes a text, and what is known about where it went.

A terminal takes text with the escape sequence OSC 52 and never says whether it did. tmux drops that sequence from
programs unless its option set-clipboard is "on", but has a command of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Mapping

_TMUX_S = 3.0
_WITHOUT = ("linux", "dumb", "vt100", "vt220")
"""Values of TERM that stand for terminals without a clipboard."""


async def copy(text: str, environ: Mapping[str, str], write: Callable[[str], None]) -> str:
    """Copy `text`. Return what happened, in words that follow "it was". `write` writes to the terminal."""
    sent = "sent to the terminal's clipboard"
    if environ.get("TMUX"):
        taken = await _taken_by_tmux(text, environ)
        if taken:
            return taken
        sent = "sent to tmux, which takes it only if its option set-clipboard is on"
    elif environ.get("STY"):
        return "not copied: GNU screen passes nothing on to the clipboard"
    elif environ.get("TERM", "") in _WITHOUT:
        return "not copied: this terminal has no clipboard"
    write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
    return sent


async def _taken_by_tmux(text: str, environ: Mapping[str, str]) -> str:
    """Return what tmux did with the text, or "" if it could not be asked."""
    report = ["display-message", "-p", "#{set-clipboard} #{client_termfeatures}"]
    said = await _tmux(["load-buffer", "-w", "-", ";", *report], text, environ)
    if said is None:
        return "" if await _tmux(["load-buffer", "-"], text, environ) is None else "copied to the tmux buffer"
    option, _, features = said.strip().partition(" ")
    sent = option != "off" and "clipboard" in features.split(",")
    return "copied to the tmux buffer" + (" and sent to the terminal's clipboard" if sent else "")


async def _tmux(arguments: list[str], text: str, environ: Mapping[str, str]) -> str | None:
    """Run a command of tmux with `text` as its input. Return its output, or None if it failed."""
    try:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(_TMUX_S):
            output, _ = await process.communicate(text.encode())
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode(errors="replace") if process.returncode == 0 else None
