"""Read the ssh options of a host from `ssh -G`; without OpenSSH, only those of the command line."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ConfigError
from ..secret import without_secrets
from ..tasks import cancelled
from ..transports.command_transport import said_by
from .host_config import ALGORITHMS, HostConfig, host_config, with_tokens
from .ssh_target import SshTarget

CONFIG_FILES = (Path("~/.ssh/config"), Path("/etc/ssh/ssh_config"))
_INSTALL = "Install the OpenSSH client: ccb asks it what the configuration means."
_EVERY_LINE = ("identityfile", "certificatefile", "sendenv")  # options of which every value counts, not the first alone
_LISTS = ("sendenv", "setenv", "userknownhostsfile", "globalknownhostsfile")
_YES_NO = "yes|no|true|false"
_UNDERSTOOD = {
    **dict.fromkeys((*_EVERY_LINE, *_LISTS, *ALGORITHMS), ".+"),
    **dict.fromkeys((
        "bindaddress", "hostkeyalias", "hostname", "identityagent", "loglevel", "preferredauthentications",
        "proxycommand", "proxyjump", "revokedhostkeys", "user",
    ), ".+"),
    **dict.fromkeys((
        "port", "connectionattempts", "connecttimeout", "numberofpasswordprompts", "serveralivecountmax",
        "serveraliveinterval",
    ), "[0-9]+"),
    **dict.fromkeys((
        "batchmode", "compression", "hashknownhosts", "identitiesonly", "kbdinteractiveauthentication",
        "passwordauthentication", "pubkeyauthentication",
    ), _YES_NO),
    "addressfamily": "any|inet|inet6",
    "stricthostkeychecking": f"{_YES_NO}|off|ask|accept-new",
}  # fmt: skip
"""The options of the command line that are understood without OpenSSH, and what their values are."""


def command_line_options(target: SshTarget) -> dict[str, list[str]]:
    """Return the options of the command line, as `ssh -G` prints them, for a machine without OpenSSH. Blocking. Raise
    ConfigError for what only ssh understands, which is every file: the connection could take another way."""
    _refuse_files()
    options: dict[str, list[str]] = {}
    for option in target.options:
        name, value = (part.strip() for part in re.split(r"[\s=]+", option.strip() + " ", maxsplit=1))
        name = name.lower()
        values = [value] if name == "proxycommand" else _words(value)
        one = len(values) == 1 or (len(values) > 1 and name in _LISTS)
        if name not in _UNDERSTOOD or not one or not re.fullmatch(_UNDERSTOOD[name], values[0], re.IGNORECASE):
            raise _error(f"-o {option}", "not understood without OpenSSH")
        if name == "hostkeyalias":
            values = [values[0].lower()]
        elif name == "hostname":
            values = [with_tokens(values[0], {"h": target.host, "%": "%"})]
        if name in _EVERY_LINE:
            options.setdefault(name, []).extend(values)
        else:
            options.setdefault(name, values)
    if options.keys() >= {"proxycommand", "proxyjump"}:
        raise _error("-o ProxyCommand and -o ProxyJump", "only one of them is understood without OpenSSH")
    return options


def _refuse_files() -> None:
    """Raise ConfigError if a file says anything."""
    for path in (each.expanduser() for each in CONFIG_FILES):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _error(str(path), str(error.strerror)) from error
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                raise _error(f"{path} line {number}", "this machine has no OpenSSH client")


def _words(text: str) -> list[str]:
    """Split a value as ssh does, [] for one with an escaped character or an open quote."""
    if re.search(r"""\\[\\'" ]""", text):
        return []
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.escape, lexer.commenters = True, "", ""
    try:
        return list(lexer)
    except ValueError:
        return []


def _error(where: str, what: str) -> ConfigError:
    return ConfigError("the ssh configuration cannot be read", evidence=f"{where}: {what}", do=_INSTALL)


DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_RESOLVE_DEADLINE_S = 10.0
_SEVERAL_FILES = ("userknownhostsfile", "globalknownhostsfile")
_PATH = re.compile(r"\s+(?=[/~]|none$)")  # between two paths of a line, in which spaces are not quoted


async def resolve(target: SshTarget, ssh: Sequence[str] = ("ssh",)) -> HostConfig:
    """Return the configuration for the ssh that the words `ssh` start. Raise ConfigError when ssh rejects it."""
    program = shutil.which(ssh[0])
    if program is None:
        lines = await asyncio.to_thread(command_line_options, target)
        keys = [*target.identities, *lines.get("identityfile", ())] or [f"~/.ssh/{name}" for name in DEFAULT_KEYS]
        return host_config({**lines, "identityfile": keys}, {}, target)
    env = without_secrets(os.environ)
    plain = asyncio.create_task(ssh_says([program, "-G", "-F", "none"], target.host, env))
    try:
        given = await ssh_says([program, *ssh[1:], "-G", *target.flags()], target.host, env)
        files = given.setdefault("identityfile", [])
        files += (file for file in target.identities if file not in files)  # ssh leaves missing files out
        return host_config(given, await plain, target, pwd.getpwuid(os.getuid()).pw_dir)
    finally:
        await cancelled(plain)


async def ssh_says(argv: Sequence[str], host: str, env: Mapping[str, str]) -> dict[str, list[str]]:
    """Run `argv` (an `ssh -G`) for `host` and return its output by lower-case option name. Raise ConfigError when ssh
    rejects its configuration or takes 10 s, and UsageError when there is no such program."""
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
