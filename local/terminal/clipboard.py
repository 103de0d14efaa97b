"""Text and images. The system's program is asked first: it says whether it took the text, a terminal does not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable, Mapping

_PROGRAM_S = 3.0
_TMUX_TAKES = 1 << 20  # the most characters of an escape sequence that tmux reads
_SURE_BYTES = 74_994  # terminals with a limit take 100,000 characters of a sequence with the text in base64
_WITHOUT = ("linux", "dumb", "vt100", "vt220")  # values of TERM that stand for terminals without a clipboard


async def copy(text: str, environ: Mapping[str, str], write: Callable[[str], None]) -> str:
    """Copy `text`. Return what happened, in words that follow "it was". `write` writes to the terminal."""
    done = await _copied(text, environ, write)
    if "terminal" in done and "not copied" not in done and len(text.encode()) > _SURE_BYTES:
        done += f", but some terminals take no more than {_SURE_BYTES // 1000} KB (/export writes a file)"
    return done


async def _copied(text: str, environ: Mapping[str, str], write: Callable[[str], None]) -> str:
    system = await _taken_by_system(text, environ)
    sent, sequence = "sent to the terminal's clipboard", f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a"
    if environ.get("TMUX"):
        taken = await _taken_by_tmux(text, environ, sends=not system)
        if taken or system:
            return " and ".join(filter(None, (system, taken)))
    elif system:
        return system
    elif environ.get("STY"):
        return "not copied: GNU screen passes nothing on to the clipboard"
    elif environ.get("TERM", "") in _WITHOUT:
        return "not copied: this terminal has no clipboard"
    if environ.get("TMUX") or environ.get("TERM", "").startswith("tmux"):  # TERM alone: over ssh from a window of tmux
        if len(sequence) > _TMUX_TAKES:
            return f"not copied: tmux takes no more than {_TMUX_TAKES * 3 // 4 >> 10} KB"
        sent = "sent to tmux, which takes it only if its option set-clipboard is on"
    write(sequence)
    return sent


def _system_programs(environ: Mapping[str, str]) -> list[list[str]]:
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")):
        return []
    programs = [["pbcopy"]] if sys.platform == "darwin" else []
    if environ.get("WAYLAND_DISPLAY"):
        programs.append(["wl-copy"])
    if environ.get("DISPLAY"):
        programs += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return programs


async def _taken_by_system(text: str, environ: Mapping[str, str]) -> str:
    for program, *arguments in _system_programs(environ):
        path = shutil.which(program, path=environ.get("PATH", os.defpath))
        if path is not None and await _run([path, *arguments], text, environ, output=DEVNULL) is not None:
            return f"copied to the clipboard by {program}"
    return ""


async def _taken_by_tmux(text: str, environ: Mapping[str, str], *, sends: bool) -> str:
    """Return what tmux did with the text, or "" if it could not be asked. `sends`: it also sends it to its terminal."""
    load = ["tmux", "load-buffer"]
    if not sends:
        kept = await _run([*load, "-"], text, environ, output=PIPE)
        return "" if kept is None else "to the tmux buffer"
    report = ["display-message", "-p", "#{set-clipboard} #{client_termfeatures}"]
    said = await _run([*load, "-w", "-", ";", *report], text, environ, output=PIPE)
    if said is None:
        return "" if await _run([*load, "-"], text, environ, output=PIPE) is None else "copied to the tmux buffer"
    option, _, features = said.strip().partition(" ")
    sent = option != "off" and "clipboard" in features.split(",")
    return "copied to the tmux buffer" + (" and sent to the terminal's clipboard" if sent else "")


async def _run(command: list[str], text: str, environ: Mapping[str, str], *, output: int) -> str | None:
    """Run a command on `text`. A program that stays to serve the clipboard must get no pipe as its output."""
    try:
        async with asyncio.timeout(_PROGRAM_S), _started(command, environ, input=PIPE, output=output) as process:
            printed, _ = await process.communicate(text.encode())
    except (OSError, TimeoutError):
        return None
    return (printed or b"").decode(errors="replace") if process.returncode == 0 else None


@contextlib.asynccontextmanager
async def _started(
    command: list[str], environ: Mapping[str, str], *, input: int = DEVNULL, output: int = PIPE
) -> AsyncIterator[Process]:
    process = await create_subprocess_exec(*command, stdin=input, stdout=output, stderr=DEVNULL, env=dict(environ))
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


MAX_CLIPBOARD_BYTES = 64 << 20  # largest image that is taken out of the clipboard
_ANSWER_S = 10.0
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_OSASCRIPT = ["osascript", "-e", "get the clipboard as «class PNGf»"]
_HEX_START, _HEX_END = b"\xc2\xabdata PNGf", b"\xc2\xbb"


class NoImage(Exception):
    """There is no image to be had; the text says why."""


async def clipboard_image(environ: Mapping[str, str], platform: str = sys.platform) -> bytes:
    path = environ.get("PATH")
    if platform == "darwin":
        by_paste = shutil.which("pngpaste", path=path) is not None
        data = await (_printed(["pngpaste", "-"], environ) if by_paste else _by_osascript(environ))
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
    offered = listed.decode(errors="replace").split()
    found = next((each for each in _TYPES if each in offered), None)
    if found is None:
        raise NoImage("there is no image in the clipboard")
    return found


async def _by_osascript(environ: Mapping[str, str]) -> bytes:
    printed = (await _printed(_OSASCRIPT, environ)).strip()
    if not printed.startswith(_HEX_START):
        return b""
    try:
        return bytes.fromhex(printed.removeprefix(_HEX_START).removesuffix(_HEX_END).decode())
    except ValueError:
        return b""


async def _printed(command: list[str], environ: Mapping[str, str]) -> bytes:
    printed = bytearray()
    try:
        async with asyncio.timeout(_ANSWER_S), _started(command, environ) as process:
            assert process.stdout is not None
            while piece := await process.stdout.read(1 << 20):
                printed += piece
                if len(printed) > 2 * MAX_CLIPBOARD_BYTES:  # AppleScript prints two characters for each byte
                    raise NoImage("the image in the clipboard is too large")
            return bytes(printed) if await process.wait() == 0 else b""
    except TimeoutError:
        raise NoImage(f"{command[0]} did not say within {_ANSWER_S:.0f} s what the clipboard holds") from None
    except OSError:
        return b""
