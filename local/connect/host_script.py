"""A command line that runs on a host by /bin/sh, without a worker."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from dataclasses import dataclass

from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, UsageError
from ccb.tunnel.transports.pipe import Pipe, Transport

MAX_BYTES = 64 << 20
"""The most bytes that a command may print."""
_NO_DIRECTORY = 97
_BEGUN = b"\x1eccb\x1e"  # stands between the words of a login shell and the output
_PIECE = 64 << 10


@dataclass(frozen=True)
class Completed:
    """A command on the host that has ended. `stderr` is its end, at most 8 KB."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")


async def run_command(transport: Transport, command: str, place: str = "~", data: bytes = b"") -> Completed:
    """Run a command line with /bin/sh in a directory of the host, with `data` on stdin. Raises CcbError."""
    run, fed = f"/bin/sh -c {shlex.quote(command)}", f"head -c {len(data)} |" if data else "</dev/null exec"
    script = f"cd -- {_quoted(place)} || exit {_NO_DIRECTORY}\nprintf '\\036ccb\\036'\n{fed} {run}".encode()
    read = f'C=$(dd bs=1 count={len(script)} 2>/dev/null) && exec /bin/sh -c "$C"'
    pipe = await transport.execute(f"exec /bin/sh -c '{read}'")
    try:
        _, begun, output = (await _exchanged(pipe, script + data)).partition(_BEGUN)
        code = await pipe.exit_status()
    finally:
        await pipe.close()
    said = pipe.stderr_tail()
    if not begun and code is not None and (error := transport.failure(code, said)) is not None:
        raise error
    if code is None:
        raise ConnectionLost("the command was lost with its connection, or ended by a signal", evidence=said)
    if code == _NO_DIRECTORY and not begun:
        raise UsageError(f"there is no directory {place} on {transport.name}", evidence=said)
    return Completed(code, output, said)


def _quoted(path: str) -> str:
    """Return a path as a word of a shell; `~` at its start is the home."""
    if path == "~":
        return '"$HOME"'
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


async def _exchanged(pipe: Pipe, data: bytes) -> bytes:
    """Write `data`, end the input, and return all output. Raises CcbError."""

    async def feed() -> None:
        with suppress(CcbError):  # a command need not read its input
            for start in range(0, len(data), _PIECE):
                await pipe.write(data[start : start + _PIECE])

    feeding = asyncio.create_task(feed(), name="input of a command")
    output = bytearray()
    try:
        while piece := await pipe.read():
            output += piece
            if len(output) > MAX_BYTES:
                raise CopyFailed(
                    f"the command printed more than {MAX_BYTES >> 20} MB", do="Write it into a file there."
                )
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return bytes(output)
