"""What runs, looked at while it may end."""

from __future__ import annotations

import contextlib

import psutil


def name_of(process: psutil.Process) -> str:
    """Its name, "" when it has ended meanwhile."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def commands_with(word: str) -> list[str]:
    """The command lines of this moment that contain `word`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return [line for line in found if word in line]
