"""The image in the clipboard of the laptop. No terminal passes images on, so a program of the system is asked."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Mapping

MAX_CLIPBOARD_BYTES = 64 << 20
"""Largest image that is taken out of the clipboard."""

_ANSWER_S = 10.0
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_OSASCRIPT = ["osascript", "-e", "get the clipboard as «class PNGf»"]
_HEX_START, _HEX_END = b"\xc2\xabdata PNGf", b"\xc2\xbb"


class NoImage(Exception):
    """There is no image to be had; the text says why."""


async def clipboard_image(environ: Mapping[str, str], platform: str = sys.platform) -> bytes:
    """Return the image in the clipboard as it lies there. Raise NoImage."""
    path = environ.get("PATH")
    if platform == "darwin":
        data = await (
            _printed(["pngpaste", "-"], environ) if shutil.which("pngpaste", path=path) else _by_osascript(environ)
        )
    elif environ.get("WAYLAND_DISPLAY"):
        _need("wl-paste", "wl-clipboard", path)
        listed = await _printed(["wl-paste", "--list-types"], environ)
        data = await _printed(["wl-paste", "--no-newline", "--type", _best_type(listed)], environ)
    elif environ.get("DISPLAY"):
        _need("xclip", "xclip", path)
        command = ["xclip", "-selection", "clipboard", "-o", "-t"]
        data = await _printed([*command, _best_type(await _printed([*command, "TARGETS"], environ))], environ)
    else:
        raise NoImage("no clipboard is known here (WAYLAND_DISPLAY and DISPLAY are not set)")
    if not data:
        raise NoImage("there is no image in the clipboard")
    return data


def _need(program: str, package: str, path: str | None) -> None:
    if shutil.which(program, path=path) is None:
        raise NoImage(f"the clipboard cannot be read: install {package}, which brings {program}")


def _best_type(listed: bytes) -> str:
    """Return the first type that the model takes among those that the clipboard offers. Raise NoImage."""
    offered = listed.decode(errors="replace").split()
    found = next((each for each in _TYPES if each in offered), None)
    if found is None:
        raise NoImage("there is no image in the clipboard")
    return found


async def _by_osascript(environ: Mapping[str, str]) -> bytes:
    """Return the image as AppleScript prints it: «data PNGf89504E47…»."""
    printed = (await _printed(_OSASCRIPT, environ)).strip()
    if not printed.startswith(_HEX_START):
        return b""
    try:
        return bytes.fromhex(printed.removeprefix(_HEX_START).removesuffix(_HEX_END).decode())
    except ValueError:
        return b""


async def _printed(command: list[str], environ: Mapping[str, str]) -> bytes:
    """Return what a program prints, b"" if it fails. Raise NoImage if it does not answer, or prints too much."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
        )
    except OSError:
        return b""
    assert process.stdout is not None
    printed = bytearray()
    try:
        async with asyncio.timeout(_ANSWER_S):
            while piece := await process.stdout.read(1 << 20):
                printed += piece
                if len(printed) > 2 * MAX_CLIPBOARD_BYTES:  # AppleScript prints two characters for each byte
                    raise NoImage("the image in the clipboard is too large")
            return bytes(printed) if await process.wait() == 0 else b""
    except TimeoutError:
        raise NoImage(f"{command[0]} did not say within {_ANSWER_S:.0f} s what the clipboard holds") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
