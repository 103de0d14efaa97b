"""The person's editor and pager."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


class NoEditor(Exception):
    """No editor could be started, or it failed; the text says why."""


async def edited(text: str, environ: Mapping[str, str]) -> str:
    """Return what the person makes of `text` in the editor of VISUAL or EDITOR, or in vi. It has the terminal
    meanwhile. The file is only theirs to read, and goes afterwards. Raise NoEditor."""
    argv = _editor(environ)
    with tempfile.TemporaryDirectory(prefix="ccb-prompt-") as directory:
        path = Path(directory) / "prompt.md"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        await _run(argv, str(path))
        try:
            return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
        except OSError as error:
            raise NoEditor(f"what {argv[0]} wrote cannot be read: {error.strerror}") from None


async def edit_file(path: str, environ: Mapping[str, str]) -> None:
    """Let the person change a file in their editor. Raise NoEditor."""
    await _run(_editor(environ), path)


def _editor(environ: Mapping[str, str]) -> list[str]:
    wanted = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    try:
        argv = shlex.split(wanted)
    except ValueError as error:
        raise NoEditor(f"the editor {wanted!r} cannot be read: {error}") from None
    if not argv or shutil.which(argv[0], path=environ.get("PATH")) is None:
        raise NoEditor(f"there is no editor {wanted!r}: set EDITOR")
    return argv


async def _run(argv: list[str], path: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv, path)
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
    if code:
        raise NoEditor(f"{argv[0]} ended with code {code}: the text stays as it was")


class NoPager(Exception):
    """No pager could be started; the text says why."""


async def page(text: str, environ: Mapping[str, str]) -> None:
    """Show `text` in the pager of PAGER, or in less or more. It has the terminal meanwhile. The file is only theirs to
    read, and goes afterwards. Raise NoPager."""
    wanted = environ.get("PAGER") or ("less" if shutil.which("less", path=environ.get("PATH")) else "more")
    try:
        argv = shlex.split(wanted)
    except ValueError as error:
        raise NoPager(f"the pager {wanted!r} cannot be read: {error}") from None
    if not argv or shutil.which(argv[0], path=environ.get("PATH")) is None:
        raise NoPager(f"there is no pager {wanted!r}: set PAGER")
    with tempfile.TemporaryDirectory(prefix="ccb-pager-") as directory:
        path = Path(directory) / "conversation.md"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        process = await asyncio.create_subprocess_exec(*argv, str(path))
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
