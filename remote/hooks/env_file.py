"""The file in which SessionStart hooks put variables for the commands of the session (`CLAUDE_ENV_FILE`)."""

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
    path = os.path.join(directory, "hook-env.sh")
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path
    return ""


async def read_env_file(host: Host, path: str, cwd: str) -> dict[str, str]:
    """Return the variables that the file sets, as a shell reads it. Raise OSError."""
    if not os.path.getsize(path):
        return {}
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
