"""A machine on which tasks run: this one, or a host that `ssh` reaches. Each attempt has a directory there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shlex
import signal
import sys
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

_SETUP_S = 120


class Unusable(Exception):
    """Nothing can be run on a machine."""


class Machine:
    """`host` is a host as `ccb ssh` names it, without a path; None is this machine."""

    def __init__(self, host: str | None) -> None:
        self._host = host

    @property
    def name(self) -> str:
        return self._host or "local"

    @asynccontextmanager
    async def directory(self) -> AsyncIterator[str]:
        """A new directory, for this user alone, until the context ends."""
        made = (await self.shell("mktemp -d", seconds=_SETUP_S)).strip()
        try:
            yield made
        finally:
            await self.shell(f"rm -rf {shlex.quote(made)}", seconds=_SETUP_S)

    async def put(self, folder: Path, directory: str) -> None:
        """Copy what is in `folder` into a directory, which may not be there yet."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, ".")
        where = shlex.quote(directory)
        await self.shell(f"mkdir -p {where} && tar -C {where} -xf -", packed.getvalue(), seconds=_SETUP_S)

    async def shell(self, script: str, stdin: bytes = b"", *, seconds: float) -> str:
        """The output of a script. Raises Unusable if it fails or takes longer than `seconds`."""
        argv = ["ssh", self._host, script] if self._host else ["sh", "-c", script]
        code, out, err = await _run(argv, stdin, seconds)
        if code != 0:
            reason = f"no end after {seconds:.0f} s" if code is None else err.strip() or f"exit code {code}"
            raise Unusable(f"{self.name}: {script}: {reason}")
        return out

    async def ask(
        self, prompt: str, directory: str, options: Sequence[str], *, seconds: float
    ) -> Mapping[str, Any] | None:
        """The result message of one run of the agent; None if it has not ended after `seconds`. Raises Unusable if
        there is no result."""
        place = ["ssh", f"{self._host}:{directory}"] if self._host else [directory]
        argv = [sys.executable, "-m", "ccb", *place, "-p", "--output-format", "json", *options]
        code, out, err = await _run(argv, prompt.encode(), seconds)
        if code is None:
            return None
        try:
            result = json.loads(out)
        except ValueError:
            raise Unusable(f"{self.name}: ccb ended with code {code}: {err.strip()}") from None
        return dict(result)


async def _run(argv: Sequence[str], stdin: bytes, seconds: float) -> tuple[int | None, str, str]:
    """Exit code (None if it has not ended after `seconds`), stdout and stderr. What it has started ends with it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate(stdin)
        return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    except TimeoutError:
        process.terminate()  # ccb ends its session first
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
        return None, "", ""
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
