"""The program of the laptop that shows a file."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ...terminal.stdio import in_thread

_STARTS_S = 3.0
"""Seconds in which a viewer says that it cannot show the file. Some run as long as the person looks."""


class NoViewer(Exception):
    """No viewer could be started; the text says why."""


def viewer_command(open_with: str, environ: Mapping[str, str], platform: str = sys.platform) -> list[str]:
    """Return the command that shows the file whose path is put behind it: `open_with`, the person's setting, or else
    what the system has. Raise NoViewer."""
    if open_with:
        try:
            command = shlex.split(open_with)
        except ValueError as error:
            raise NoViewer(f"the setting openWith cannot be read: {error}") from None
    elif platform == "darwin":
        command = ["open"]
    elif environ.get("WSL_DISTRO_NAME") and shutil.which("wslview", path=environ.get("PATH")):
        command = ["wslview"]
    elif environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"):
        command = ["xdg-open"]
    else:
        raise NoViewer("no display is known here (DISPLAY and WAYLAND_DISPLAY are not set)")
    if not command or shutil.which(command[0], path=environ.get("PATH")) is None:
        raise NoViewer(f"there is no program {' '.join(command[:1])!r}: set openWith in your settings")
    return command


async def start_viewer(command: list[str], path: Path, environ: Mapping[str, str]) -> None:
    """Start a viewer without the terminal. It outlives this process. Raise NoViewer if it fails at once."""
    try:
        process = subprocess.Popen(  # noqa: ASYNC220 - asyncio's own would kill it at the end
            [*command, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=dict(environ),
        )
    except OSError as error:
        raise NoViewer(f"{command[0]} cannot be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(_STARTS_S):
            code = await in_thread(process.wait)  # which also reaps one that runs longer
    except TimeoutError:
        return
    if code:
        raise NoViewer(f"{command[0]} could not show it (it ended with code {code})")
