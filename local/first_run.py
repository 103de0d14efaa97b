"""The set-up of the first run, in lines, for a person who has set no credential. Each step can be skipped."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .command_line.arguments import Arguments
from .config.log import state_dir
from .terminal.console import say

log = logging.getLogger(__name__)

_MARK = "set-up"
_VARIABLES = ("CI", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")  # where one of these is set, nobody is asked
_WELCOME = """\
Welcome to ccb. Two short steps; Enter skips a step. Ctrl+C leaves: then ccb
asks again the next time."""
_TRUST = """\
2 of 2: trust.
  The agent works on the host, and asks here before it changes anything that
  your rules do not allow.
  The files of a project may bring settings, hooks and servers: ccb shows them
  once and asks before any of them counts.
  Nothing that a host sends can run on this machine, or read a file of it."""


def set_up(arguments: Arguments, environ: Mapping[str, str] = os.environ) -> None:
    """Raise KeyboardInterrupt if the person leaves."""
    mark = state_dir(environ) / _MARK
    somebody = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if any(environ.get(name) for name in _VARIABLES) or not somebody or os.path.exists(mark):  # noqa: PTH110 - no error
        return  # at once, because the first frame waits
    try:
        _steps(environ, samples=not arguments.screen.plain)
    except EOFError:
        raise KeyboardInterrupt from None
    _keep(mark)
    say("The set-up is done. /theme and /trust change this later.", "")


def _keep(mark: Path) -> None:
    try:
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch(mode=0o600)
    except OSError as error:
        log.warning("%s cannot be written: %s", mark, error)


def _steps(environ: Mapping[str, str], *, samples: bool) -> None:
    from .terminal.terminal_prompts import ask

    say(*_WELCOME.splitlines())
    _ask_theme(environ, samples=samples)
    say("", *_TRUST.splitlines())
    ask("Press Enter to begin: ")


def _ask_theme(environ: Mapping[str, str], *, samples: bool) -> None:
    from .tui.rendering.themes import THEME_NAMES, ThemeStore, sample

    say("", "1 of 2: colours. /theme changes them at any time.")
    for number, name in enumerate(THEME_NAMES, start=1):
        shown = sample(name, environ) if samples else ""
        say(f"  {number}  {name:<20} {shown}".rstrip(" "))
    say("  Enter  as the background of the terminal asks for")
    chosen = _choice(f"1 to {len(THEME_NAMES)} or Enter: ", len(THEME_NAMES))
    store = ThemeStore.of(environ)
    if store is not None and chosen:
        store.keep(THEME_NAMES[int(chosen) - 1])


def _choice(question: str, most: int) -> str:
    """Return the number that the person types, from 1 to `most`, or "" for Enter. Raise EOFError, KeyboardInterrupt."""
    from .terminal.terminal_prompts import ask

    while True:
        answer = ask(question)
        if answer in ("", *map(str, range(1, most + 1))):
            return answer
        say("Type one of the numbers, or Enter.")
