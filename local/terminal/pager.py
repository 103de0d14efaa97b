"""The person's own pager, on a text."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


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
