"""Run a command of the settings that prints a secret."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from ccb.tunnel.errors import CredentialError

TIMEOUT_S = 10.0
MAX_SECRET = 16 * 1024
_BY_HAND = "Run that command by hand to see what is wrong."


async def output_of(command: str, setting: str, environ: Mapping[str, str], timeout: float = TIMEOUT_S) -> str:
    """Return what `sh -c COMMAND` prints. `setting` names the command. Raise CredentialError."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(timeout):
            out, err = await asyncio.gather(_limited(process.stdout), _limited(process.stderr))
            status = await process.wait()
    except TimeoutError:
        raise CredentialError(f"{setting} of the settings did not end within {timeout:g} s.", do=_BY_HAND) from None
    finally:
        with suppress(ProcessLookupError, PermissionError):  # of one that has ended, macOS says the latter
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if status != 0:
        raise CredentialError(
            f"{setting} of the settings failed with exit code {status}.", evidence=_printable(err[-2000:]), do=_BY_HAND
        )
    return out.decode("utf-8", "replace")


async def _limited(stream: asyncio.StreamReader) -> bytes:
    """Return the beginning of a stream, longer than any credential. Read and discard the rest."""
    kept = bytearray()
    while chunk := await stream.read(65536):
        kept += chunk[: 2 * MAX_SECRET - len(kept)]
    return bytes(kept)


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
