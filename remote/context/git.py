"""Runs git in a repository that anybody may have written: in a cage, without its hooks, and without variables that
would steer it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..permissions.sandbox_mode import Cages
from ..system.deadline import within
from ..system.host import Host
from ..system.owners import repository_top
from ..system.process import LIMITED

_SECONDS = 2.5
_MAX_BYTES = 1 << 20
_OPTIONS = (
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", "safe.bareRepository=explicit"),  # a bare repository inside a clone would bring its own configuration
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "log.showSignature=false"),
)
_CEILING = "GIT_CEILING_DIRECTORIES"  # git looks for a repository no further up than ccb
_NAME = re.compile(r"GIT_[A-Za-z0-9_]+")
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "LC_ALL": "C.UTF-8"}


class Git:
    """Git in the directory `cwd`, in the read-only cage where this host has one. It may change what is below `write`.
    Ask `why_unsafe` before a command that starts programs which a configuration can name."""

    def __init__(self, host: Host, cages: Cages, cwd: str, write: Sequence[str] = ()) -> None:
        self._program, self._shell = host.which("git"), host.which("sh")
        self._host = host
        self._cwd = cwd
        self._top = repository_top(cwd)
        self._home = cages.home
        self._environ = cages.environ
        cage = cages.read_only([cwd]) if self.available else None
        self._cage = cage if cage is None else replace(cage, write=tuple(write))

    @property
    def available(self) -> bool:
        """Whether there is a git, and the directory is in a repository."""
        return self._program is not None and self._shell is not None and self._top != ""

    async def why_unsafe(self) -> str:
        """Return why git may run a program that the repository names, "" if it does not."""
        from ..permissions.git.repository import why_unsafe  # imports much

        real, strict = os.path.realpath(self._cwd), self._cage is None
        return await asyncio.get_running_loop().run_in_executor(None, why_unsafe, real, [real], self._home, strict)

    async def run(self, *command: str) -> str | None:
        """Return the standard output of a command, up to a limit; None when it failed or did not end in time."""
        code, output = await self.end(command)
        return output if code == 0 else None

    async def end(
        self, command: Sequence[str], seconds: float = 0, errors: str = "/dev/null"
    ) -> tuple[int | None, str]:
        """Return the exit code of a command and its output, up to a limit. The code is None when it did not end in
        time or could not start. `errors` is where its errors go, `&1` for the output."""
        pieces: list[bytes] = []

        def take(data: bytes) -> None:
            if sum(map(len, pieces)) <= _MAX_BYTES:
                pieces.append(data)

        script = f'{LIMITED}{_unset(self._environ)}exec "$@" 2>{errors}'
        argv = [str(self._shell), "-c", script, "sh", str(self._program), *_OPTIONS, *command]
        try:
            variables = {**_QUIET, _CEILING: os.path.dirname(self._top).rstrip(os.sep)}
            process = await self._host.start(argv, self._cwd, take, variables, self._cage)
        except OSError as error:
            return None, str(error)
        code: int | None = None
        try:
            code = await within(seconds or _SECONDS, process.wait())
        except asyncio.TimeoutError:
            pass
        finally:
            await process.stop()
        return code, b"".join(pieces).decode("utf-8", "replace")


def _unset(environ: Mapping[str, str]) -> str:
    """Return the line that removes the variables of an environment that would steer git."""
    named = " ".join(name for name in environ if _NAME.fullmatch(name) and name not in (_CEILING, *_QUIET))
    return f"unset {named}\n" if named else ""
