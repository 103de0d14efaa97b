"""The help of the command line, made from the table of options: all of it, or that of one command."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from .options import OPTIONS, Option

_USAGE = """\
Usage: ccb ssh [user@]host[:/path] [DIR] [PROMPT]   an agent on another machine, seen from this terminal
       ccb ssh host --local [DIR] [PROMPT]          the same, with the worker on this machine
       ccb [PATH] [PROMPT]                          an agent in a directory of this machine
       ccb auth login|status|logout                 the model credential of this machine
       ccb ps [HOST]                                the sessions of a host (of this machine)
       ccb attach HOST [ID] [--view]                go on with a session that runs there, or watch it
       ccb logs|stop HOST ID                        what a session did; end its worker (stop HOST --all: every one)
       ccb gc|clean HOST [--dry-run]                remove what is stale; remove everything of ccb
       ccb doctor [HOST] [--json]                   what is in the way, on this machine and on the host
"""
_ABOUT = """\
`ccb help COMMAND` (or `ccb COMMAND --help`) shows one command with its options. The host comes before everything else that \
is not an option. Without -p the terminal interface starts and PROMPT is sent first; with -p PROMPT (and what is piped in) \
is answered on stdout."""

_PATHS = """
Paths: host:/srv/app, host:~/app, host:app (below the home directory), ssh://user@host:2222/srv/app, '[::1]:/srv/app'.
"""
_HOSTS = "\nHOST: [user@]host or ssh://[user@]host[:port], without a path; --local in its place is this machine.\n"

_WAY = frozenset(("identities", "port", "ssh_options", "transport", "ssh_command", "container", "local"))
_ALWAYS = frozenset(("debug", "help"))
_OF_HOST_COMMANDS = frozenset(("view", "all", "dry_run", "older_than", "yes", "lines", "json"))
_OF_ONE_SESSION = frozenset(("session_id", "continue_latest", "resume", "fork_session"))
_WHICH_COMMAND = re.compile(r"^With [^:]*: ")
_EVERY = frozenset(option.field for option in OPTIONS)


@dataclass(frozen=True)
class _Help:
    """`usage` lines, what the command `does`, and the fields of the options it takes."""

    usage: tuple[str, ...]
    does: str
    fields: Collection[str]


_COMMANDS = {
    "ssh": _Help(
        ("ccb ssh [user@]host[:/path] [DIR] [PROMPT]", "ccb ssh host --local [DIR] [PROMPT]"),
        "An agent on another machine, seen from this terminal. Without -p the terminal interface starts and PROMPT is sent "
        "first; with -p PROMPT (and what is piped in) is answered on stdout.",
        _EVERY - _OF_HOST_COMMANDS - {"version"},
    ),
    "ps": _Help(
        ("ccb ps [HOST] [--json]",),
        "The sessions of a host, or of this machine: ID, state, age, time since it was used, memory, driver, directory and last "
        "prompt.",
        _WAY | _ALWAYS | {"json"},
    ),
    "attach": _Help(
        ("ccb attach HOST [ID] [--view]",),
        "Go on with a session that runs there: the one of this ID, the only one, or one chosen from a list. The terminal that "
        "drove it is told, and can take it back. With --view it is only watched.",
        _EVERY - _OF_HOST_COMMANDS - _OF_ONE_SESSION - {"version"} | {"view"},
    ),
    "logs": _Help(
        ("ccb logs HOST ID [-n LINES]",),
        "The last lines of what a session did, and of its worker's log.",
        _WAY | _ALWAYS | {"lines"},
    ),
    "stop": _Help(
        ("ccb stop HOST ID", "ccb stop HOST --all"),
        "End the worker of a session and all it has started. The session stays and can be resumed.",
        _WAY | _ALWAYS | {"all"},
    ),
    "gc": _Help(
        ("ccb gc HOST [--dry-run] [--older-than DAYS]",),
        "Remove what dead workers have left, bundles that nobody uses, and old sessions. Each is named.",
        _WAY | _ALWAYS | {"dry_run", "older_than"},
    ),
    "clean": _Help(
        ("ccb clean HOST [--dry-run] [--yes]",),
        "Stop and remove every session and everything else of ccb on the host. Asks first.",
        _WAY | _ALWAYS | {"dry_run", "yes"},
    ),
    "doctor": _Help(
        ("ccb doctor [HOST] [--json]",),
        "Examine this machine, the way to the host and the host, each finding with its evidence and a fix. Exit code 1 when "
        "something blocks. Without HOST this machine alone.",
        _WAY | _ALWAYS | {"json"},
    ),
}


def help_text(width: int = 100, command: str = "") -> str:
    """The help of `command`, or all of it; ready to print."""
    one = _COMMANDS.get(command)
    if one is None:
        return f"{_USAGE}\n{textwrap.fill(_ABOUT, width)}\n\nOptions:\n{_options(OPTIONS, width)}\n{_PATHS}"
    usage = "\n".join(f"{'Usage:' if number == 0 else '      '} {line}" for number, line in enumerate(one.usage))
    taken = [option for option in OPTIONS if option.field in one.fields]
    own = [option for option in taken if option.field in _OF_HOST_COMMANDS]
    options = [replace(option, help=_alone(option.help)) for option in own]
    options += [option for option in taken if option not in own]
    footer = _PATHS if command == "ssh" else _HOSTS
    return f"{usage}\n\n{textwrap.fill(one.does, width)}\n\nOptions:\n{_options(options, width)}\n{footer}"


def _alone(text: str) -> str:
    text = _WHICH_COMMAND.sub("", text)
    return text[:1].upper() + text[1:]


def _options(options: Iterable[Option], width: int) -> str:
    return "\n".join(line for option in options for line in _lines(option, width))


def _lines(option: Option, width: int) -> list[str]:
    names = ", ".join(sorted(option.names, key=len))
    left = f"  {names} <{option.metavar}>" if option.metavar else f"  {names}"
    wrapped = textwrap.wrap(option.help, max(20, width - 38)) or [""]
    lines = []
    if len(left) > 36:
        lines.append(left)
        left = ""
    lines.append(f"{left:<38}{wrapped[0]}")
    return [*lines, *(" " * 38 + line for line in wrapped[1:])]
