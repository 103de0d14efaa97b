"""Find the options that `ssh` would use for a host: from `ssh -G` if OpenSSH is installed, else from the files."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

from ..errors import ConfigError
from ..transports.command import said_by
from ..transports.environment import without_secrets
from .host_config import HostConfig, host_config
from .target import SshTarget

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")

_RESOLVE_DEADLINE_S = 10.0
_SEVERAL_FILES = ("userknownhostsfile", "globalknownhostsfile")
_PATH = re.compile(r"\s+(?=[/~]|none$)")
"""Where one path ends and the next begins: `ssh -G` prints several in one line and does not quote spaces in them."""


async def resolve(target: SshTarget, ssh: Sequence[str] = ("ssh",)) -> HostConfig:
    """Return the configuration of `target` for the ssh that the words `ssh` start.

    Raise ConfigError when ssh rejects its configuration or an option.
    """
    program = shutil.which(ssh[0])
    if program is None:
        from .files import read_config

        return host_config(with_identities(await asyncio.to_thread(read_config, target), target), {}, target)
    env = without_secrets(os.environ)
    plain = asyncio.create_task(ssh_says([program, "-G", "-F", "none"], target.host, env))
    try:
        given = await ssh_says(config_command(program, target, ssh[1:]), target.host, env)
        files = given.setdefault("identityfile", [])
        files += (file for file in target.identities if file not in files)  # ssh leaves missing files out
        return host_config(given, await plain, target, pwd.getpwuid(os.getuid()).pw_dir)
    finally:
        plain.cancel()
        await asyncio.gather(plain, return_exceptions=True)


async def ssh_says(argv: Sequence[str], host: str, env: Mapping[str, str]) -> dict[str, list[str]]:
    """Run `argv` (an `ssh -G`) for `host` and return its output: values by lower-case option name.

    Raise ConfigError when ssh rejects its configuration or takes 10 s, and UsageError when there is no such program.
    """
    try:
        status, out, err = await said_by([*argv, "--", host], env=env, deadline_s=_RESOLVE_DEADLINE_S)
    except TimeoutError:
        raise ConfigError(
            f"`ssh -G` did not answer in {_RESOLVE_DEADLINE_S:g} s",
            do="Look for a slow `Match exec` in your ssh_config.",
        ) from None
    if status:
        raise ConfigError(
            "ssh does not accept its configuration",
            evidence=err.strip(),
            do="Correct the -o option."
            if err.startswith("command-line")
            else f"Correct it until `{shlex.join([*argv, host])}` answers.",
        )
    lines: dict[str, list[str]] = {}
    for line in out.splitlines():
        key, _, value = line.partition(" ")
        lines.setdefault(key.lower(), []).extend(_PATH.split(value) if key in _SEVERAL_FILES else [value])
    return lines


def config_command(program: str, target: SshTarget, more: Sequence[str] = ()) -> list[str]:
    """Return `ssh -G` with the flags `more` and those of `target`. The caller appends `--` and the host."""
    return [program, *more, "-G", *target.flags()]


def with_identities(lines: Mapping[str, list[str]], target: SshTarget) -> dict[str, list[str]]:
    """Add the identity files that ssh adds to those of its files: of the command line, and by default ~/.ssh/id_*."""
    keys = [*target.identities, *lines.get("identityfile", ())]
    return {**lines, "identityfile": keys or [f"~/.ssh/{name}" for name in DEFAULT_KEYS]}
