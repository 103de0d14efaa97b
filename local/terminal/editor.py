"""The person's editor and pager."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class NoEditor(Exception):
    """No editor or pager could be started, or it failed; the text says why."""


async def edited(text: str, environ: Mapping[str, str]) -> str:
    """Return what the person makes of `text` in their editor, which has the terminal meanwhile. Raise NoEditor."""
    argv = _editor(environ)
    with _private_file("prompt", text) as path:
        await _edit(argv, str(path))
        try:
            return path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
        except OSError as error:
            raise NoEditor(f"what {argv[0]} wrote cannot be read: {error.strerror}") from None


async def edit_file(path: str, environ: Mapping[str, str]) -> None:
    await _edit(_editor(environ), path)


async def page(text: str, environ: Mapping[str, str]) -> None:
    """Show `text` in the pager of PAGER, or in less or more. It has the terminal meanwhile. Raise NoEditor."""
    default = "less" if shutil.which("less", path=environ.get("PATH")) else "more"
    argv = _words("pager", environ.get("PAGER") or default, "PAGER", environ)
    with _private_file("conversation", text) as path:
        await _ended([*argv, str(path)])


def _editor(environ: Mapping[str, str]) -> list[str]:
    return _words("editor", environ.get("VISUAL") or environ.get("EDITOR") or "vi", "EDITOR", environ)


def _words(what: str, wanted: str, variable: str, environ: Mapping[str, str]) -> list[str]:
    try:
        argv = shlex.split(wanted)
    except ValueError as error:
        raise NoEditor(f"the {what} {wanted!r} cannot be read: {error}") from None
    if not argv or shutil.which(argv[0], path=environ.get("PATH")) is None:
        raise NoEditor(f"there is no {what} {wanted!r}: set {variable}")
    return argv


@contextmanager
def _private_file(name: str, text: str) -> Iterator[Path]:
    """Yield a file in a folder that only this user can enter."""
    with tempfile.TemporaryDirectory(prefix=f"ccb-{name}-") as directory:
        path = Path(directory) / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        yield path


async def _edit(argv: list[str], path: str) -> None:
    if code := await _ended([*argv, path]):
        raise NoEditor(f"{argv[0]} ended with code {code}: the text stays as it was")


async def _ended(argv: list[str]) -> int:
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
