"""The file in which hooks of an event put variables for the commands of the session (`CLAUDE_ENV_FILE`)."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress

from ..system.host import Host
from .command import run_command

_OF_THE_SHELL = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "CLAUDE_ENV_FILE"))
_MAX_CHARS = 32_768  # of all variables
_SECONDS = 10.0


def make_env_file(directory: str) -> str:
    """Make an empty file in the session's own directory, and return its path; "" where that is not possible."""
    with suppress(OSError):
        import tempfile

        handle, path = tempfile.mkstemp(".sh", "hook-env-", directory)
        os.close(handle)
        return path
    return ""


async def take_env_file(host: Host, path: str, cwd: str) -> dict[str, str]:
    """Remove the file, and return the variables that it sets, as a shell reads it. Raise OSError."""
    try:
        return await _read(host, path, cwd) if os.path.getsize(path) else {}
    finally:
        with suppress(OSError):
            os.unlink(path)


async def _read(host: Host, path: str, cwd: str) -> dict[str, str]:
    command = f"env -0; printf '\\0'; set -a; . {shlex.quote(path)} >/dev/null 2>&1; env -0"
    end = await run_command(host, command, cwd, b"", _SECONDS)
    before, _, after = end.stdout.partition("\0\0")
    known, left, found = set(before.split("\0")), _MAX_CHARS, {}
    for each in after.split("\0"):
        name, equals, value = each.partition("=")
        left -= len(each) if each not in known else 0
        if equals and each not in known and name not in _OF_THE_SHELL and left >= 0:
            found[name] = value
    return found
