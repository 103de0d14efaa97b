"""Run a program on a document, in the cage of commands that only read, and take what it prints. Documents are foreign
data: what parses them can be killed, and its time and memory are limited."""

from __future__ import annotations

import importlib.util
import sys
from asyncio import TimeoutError as Late
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ...system.deadline import within
from ...system.process import LIMITED
from ..contract import ToolContext

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

SECONDS = 60.0
"""Seconds that a program may take."""

_MAX_OUTPUT = 32 << 20
_OUR_SECONDS = 20.0
_QUIET = LIMITED + 'f=$1; shift; exec "$@" <"$f" 2>/dev/null'


async def printed_by_ours(context: ToolContext, program: str, path: str, *arguments: str) -> bytes | None:
    """Return what a program of this package prints that gets the path of the file and other `arguments`. It is one
    module that imports the standard library only. None if it fails, or takes too long or too much memory."""
    spec = importlib.util.find_spec(f"{__package__}.{program}")
    assert spec is not None
    source = cast("InspectLoader", spec.loader).get_source(spec.name)
    real = context.call.pinned or context.host.real_path(path)
    argv = [sys.executable, "-I", "-S", "-c", source or "", real, *arguments]
    return await printed_by(context, path, argv, piped=False, seconds=_OUR_SECONDS)


async def printed_by(
    context: ToolContext, path: str, argv: Sequence[str], *, piped: bool = True, seconds: float = SECONDS
) -> bytes | None:
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
        code = await within(seconds, process.wait())
        ended = True
    except Late:
        return None
    finally:
        if not ended or process.has_leftovers():
            await process.stop()
    return bytes(output) if code == 0 and 0 < len(output) <= _MAX_OUTPUT else None
