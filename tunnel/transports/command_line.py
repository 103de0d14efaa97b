"""Pass a command line to a local command that leads to a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from ..errors import UsageError

HOST = "{host}"
COMMAND = "{command}"

_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh")
_TAKES_A_LINE = re.compile(r"-[il]{0,2}c|--command")


def words_of(text: str, option: str) -> tuple[str, ...]:
    """Split `text` into words as a shell does, without expanding anything. Raise UsageError naming `option`."""
    if "\0" in text or "\n" in text:
        raise UsageError(f"{option} must be one line", do=f"Write {option} 'COMMAND ARGUMENTS…'.")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} cannot be read: {error}", evidence=text[:200], do="Close the quotes.") from None
    if not words or not words[0]:
        raise UsageError(f"{option} names no command", do=f"Write {option} 'COMMAND ARGUMENTS…'.")
    return tuple(words)


def shell_argv(words: Sequence[str], line: str) -> list[str]:
    """Return `words` with the command line `line` added, so that a shell runs it.

    It replaces `{command}`, follows a shell's `-c`, follows a shell as `-c LINE`, or else as `sh -c LINE`.
    """
    if any(COMMAND in word for word in words):
        return [word.replace(COMMAND, line) for word in words]
    if len(words) > 1 and _TAKES_A_LINE.fullmatch(words[-1]):
        return [*words, line]
    if PurePath(words[0]).name == "ssh":
        return [*words, line]
    if PurePath(words[-1]).name in _SHELLS:
        return [*words, "-c", line]
    return [*words, "sh", "-c", line]


def wrapper_argv(words: Sequence[str], login: str, line: str) -> list[str]:
    """Return the words of a wrapper of ssh that run `line` on `login` (`[user@]host`).

    They replace `{host}` and `{command}`, or stand at the end.
    """
    if tuple(words[:1]) == ("gcloud",) and words[-1] == "ssh":
        return [*words, login, "--command", line]
    argv = [word.replace(HOST, login).replace(COMMAND, line) for word in words]
    if not any(HOST in word for word in words):
        argv.append(login)
    if not any(COMMAND in word for word in words):
        argv.append(line)
    return argv


def is_openssh(words: Sequence[str]) -> bool:
    """Return whether `words` start the ssh of OpenSSH, so that its options may be added."""
    return PurePath(words[0]).name == "ssh" and not any(mark in word for word in words for mark in (HOST, COMMAND))
