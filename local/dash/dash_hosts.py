"""The hosts of `ccb dash`, by what the command line names, or else those of past sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import Arguments, Group
from ..command_line.parser import parse_arguments
from ..command_line.target import parse_target
from ..command_line.transport_choice import LOCAL_HOST, host_key, option_words
from ..commands.completion_words import configured_hosts
from ..config.policy import ledger_folder
from ..ledger.call_ledger import read_ledger

MAX_HOSTS = 500
_MAX_PLACES = 2_000
_PATTERN = frozenset("*?[!")


def dash_hosts(
    arguments: Arguments, environ: Mapping[str, str], inventory: Mapping[str, Sequence[str]]
) -> dict[str, Arguments]:
    """Return the command line of a session on each host, by the name of the host. `inventory` has the words that lead
    to its hosts. Raises CcbError."""
    hosts: dict[str, Arguments] = {}
    for each in _named(arguments, environ, from_ledger=not inventory):
        name, port = host_key(each.connection), each.connection.port
        same = name not in hosts or hosts[name].connection.port == port
        hosts[name if same else f"{name}:{port or 22}"] = each
    given = option_words(arguments, Group.CONNECTION)
    for name, way in inventory.items():
        there = parse_arguments(["ssh", *given, *way]).connection
        far = replace(arguments, command="ssh", rest=(), connection=there)
        hosts[name] = _session_on(LOCAL_HOST, arguments) if there.local else far
    if arguments.connection.local or not hosts:
        hosts[LOCAL_HOST] = _session_on(LOCAL_HOST, arguments)
    if len(hosts) > MAX_HOSTS:
        raise UsageError(f"these are {len(hosts)} hosts", do=f"Name at most {MAX_HOSTS}.")
    return hosts


def _named(arguments: Arguments, environ: Mapping[str, str], *, from_ledger: bool) -> Iterator[Arguments]:
    words = named_places(arguments.rest)
    for word in words:
        yield _session_on(word, arguments)
    if from_ledger and not words:
        none = list[tuple[str, str, float]]()
        places = read_ledger(ledger_folder(environ), lambda ledger: ledger.places(_MAX_PLACES), none)
        for word in dict.fromkeys(host for host, _, _ in places):
            with suppress(UsageError):  # what a container or a command leads to
                yield _session_on(word, arguments)


def _session_on(host: str, arguments: Arguments) -> Arguments:
    connection = arguments.connection
    if host == LOCAL_HOST:
        here = replace(connection, local=True, target=None, port=None)
        return replace(arguments, command="", rest=(), connection=here)
    target = parse_target(host)
    if target.path is not None:
        raise UsageError("ccb dash takes hosts without a path", do=f"Write `ccb dash {target.login}`.")
    there = replace(connection, local=False, target=target, port=target.port or connection.port)
    return replace(arguments, command="ssh", rest=(), connection=there)


def named_places(words: Iterable[str]) -> list[str]:
    """Return `[user@]host[:path]` of each place that the words name: a host, `@FILE`, a pattern. Raises UsageError."""
    return [place for word in words for each in _words_of(word) for place in _matching(each)]


def _words_of(word: str) -> Sequence[str]:
    """Return the hosts in a file for `@FILE`: one a line, `#` begins a comment."""
    if not word.startswith("@"):
        return [word]
    try:
        lines = Path(word[1:]).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the list of hosts {word[1:]} cannot be read", evidence=str(error)) from None
    return [text for line in lines if (text := line.partition("#")[0].strip())]


def _matching(word: str) -> Sequence[str]:
    """Return the places that a word means: the same path on each host of ssh_config that fits its pattern."""
    host, colon, path = word.partition(":")
    user, at, pattern = host.rpartition("@")
    if not _PATTERN & {*pattern} or pattern.startswith("["):  # an address in brackets
        return [word]
    names = [each for each in configured_hosts() if not _PATTERN & {*each} and fnmatchcase(each, pattern)]
    if not names:
        raise UsageError(f"no host of ssh_config matches {host!r}", do="Name a host, or write another pattern.")
    return [f"{user}{at}{each}{colon}{path}" for each in names]
