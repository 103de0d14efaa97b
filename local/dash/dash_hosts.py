"""The hosts of `ccb dash`, by what the command line names, or else those of past sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import Arguments
from ..command_line.target import parse_target
from ..command_line.transport_choice import LOCAL_HOST, host_key
from ..commands.completion_words import configured_hosts
from ..config.policy import ledger_folder
from ..ledger.call_ledger import read_ledger

MAX_HOSTS = 500
_MAX_PLACES = 2_000
_PATTERN = frozenset("*?[!")


def dash_hosts(arguments: Arguments, environ: Mapping[str, str]) -> dict[str, Arguments]:
    """Return the command line of a session on each host, by the name of the host. Raises CcbError."""
    words = [each for word in arguments.rest for each in _words_of(word)]
    found = [each for word in words for each in _matching(word, arguments)] if words else _past(arguments, environ)
    if arguments.connection.local or not found:
        found.append(_local(arguments))
    hosts: dict[str, Arguments] = {}
    for each in found:
        name, port = host_key(each.connection), each.connection.port
        same = name in hosts and hosts[name].connection.port == port
        hosts[name if same or name not in hosts else f"{name}:{port or 22}"] = each
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"these are {len(hosts)} hosts", do=f"Name at most {MAX_HOSTS}.")
    return hosts


def _past(arguments: Arguments, environ: Mapping[str, str]) -> list[Arguments]:
    none: list[tuple[str, str, float]] = []
    places = read_ledger(ledger_folder(environ), lambda ledger: ledger.places(_MAX_PLACES), none)
    return [each for key in dict.fromkeys(host for host, _, _ in places) for each in _of_the_past(key, arguments)]


def _words_of(word: str) -> Sequence[str]:
    """Return the hosts in a file for `@FILE`: one a line, `#` begins a comment."""
    if not word.startswith("@"):
        return [word]
    try:
        lines = Path(word[1:]).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the list of hosts {word[1:]} cannot be read", evidence=why or "") from None
    return [text for line in lines if (text := line.partition("#")[0].strip())]


def _matching(word: str, arguments: Arguments) -> Iterable[Arguments]:
    if not _PATTERN & {*word}:
        return [_local(arguments) if word == LOCAL_HOST else _remote(word, arguments)]
    user, at, pattern = word.rpartition("@")
    names = [each for each in configured_hosts() if not _PATTERN & {*each} and fnmatchcase(each, pattern)]
    if not names:
        raise UsageError(f"no host of ssh_config matches {word!r}", do="Name a host, or write another pattern.")
    return [_remote(user + at + each, arguments) for each in names]


def _of_the_past(key: str, arguments: Arguments) -> Iterable[Arguments]:
    """Return the host of the ledger; not one that a container or a command leads to, which the ledger cannot tell."""
    try:
        return [_local(arguments) if key == LOCAL_HOST else _remote(key, arguments)]
    except UsageError:
        return []


def _local(arguments: Arguments) -> Arguments:
    connection = replace(arguments.connection, local=True, target=None, port=None)
    return replace(arguments, command="", rest=(), connection=connection)


def _remote(word: str, arguments: Arguments) -> Arguments:
    target = parse_target(word)
    if target.path is not None:
        raise UsageError("ccb dash takes hosts without a path", do=f"Write `ccb dash {target.login}`.")
    connection = arguments.connection
    here = replace(connection, local=False, target=target, port=target.port or connection.port)
    return replace(arguments, command="ssh", rest=(), connection=here)
