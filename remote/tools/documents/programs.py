"""Run a program of the host on a document, in the cage of commands that only read, and take what it prints."""

from __future__ import annotations

from asyncio import TimeoutError as Late
from collections.abc import Sequence

from ...system.deadline import within
from ...system.process import LIMITED
from ..contract import ToolContext

SECONDS = 60.0
"""Seconds that a program may take."""

_MAX_OUTPUT = 32 << 20
_QUIET = LIMITED + 'f=$1; shift; exec "$@" <"$f" 2>/dev/null'


async def printed_by(context: ToolContext, path: str, argv: Sequence[str], *, piped: bool = True) -> bytes | None:
    """Return what a program prints that gets the file at `path` on its stdin, or opens it itself (`piped` is False).
    None if it fails or takes too long."""
    host = context.host
    real = context.call.pinned or host.real_path(path)
    cage = context.cages.read_only([context.cwd, *context.add_dirs], [real])
    output = bytearray()

    def take(data: bytes) -> None:
        if len(output) <= _MAX_OUTPUT:
            output.extend(data)

    command = ["/bin/sh", "-c", _QUIET, "sh", real if piped else "/dev/null", *argv]
    try:
        process = await host.start(command, "/", take, cage=cage)
    except OSError:
        return None
    ended = False
    try:
        code = await within(SECONDS, process.wait())
        ended = True
    except Late:
        return None
    finally:
        if not ended or process.has_leftovers():
            await process.stop()
    return bytes(output) if code == 0 and 0 < len(output) <= _MAX_OUTPUT else None
