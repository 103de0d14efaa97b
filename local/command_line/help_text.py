"""The text of `ccb help`: all commands and options, or those of one command, made from the tables in `options`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from .option_declaration import Group, Option, Subcommand
from .options import OPTIONS, SUBCOMMANDS, options_of

_USAGE_WIDTH = 46
_OPTION_WIDTH = 38
_MIN_TEXT = 20

_ABOUT = """\
`ccb help COMMAND` (or `ccb COMMAND --help`) shows one command with its options. The host comes before every \
other word that is not an option. Without -p the terminal interface starts and PROMPT is its first message; \
with -p the answer to PROMPT, and to what is piped in, is printed."""

PATHS = (
    "Paths: host:/srv/app, host:~/app, host:app (below the home directory), "
    "ssh://user@host:2222/srv/app, '[::1]:/srv/app'."
)
HOSTS = "HOST: [user@]host or ssh://[user@]host[:port], with a path for trust only; write --local for this machine."


def help_text(width: int = 100, command: str = "") -> str:
    """Return the help of `command`, or the whole help for any other word, wrapped to `width` columns."""
    one = next((each for each in SUBCOMMANDS if command and each.name == command), None)
    if one is None or one.name == "help":
        return _whole_help(width)
    usage = "\n".join(f"{'Usage:' if number == 0 else '      '} {line}" for number, line in enumerate(one.usage))
    options = _grouped(options_of(one), width, command)
    footer = "" if one.words else f"\n{PATHS if command == 'ssh' else HOSTS}\n"
    return f"{usage}\n\n{textwrap.fill(one.description, width)}\n\n{options}\n{footer}"


def _whole_help(width: int) -> str:
    usage = "\n".join(_usage(command) for command in SUBCOMMANDS)
    return f"Usage:\n{usage}\n\n{textwrap.fill(_ABOUT, width)}\n\n{_grouped(OPTIONS, width)}\n\n{PATHS}\n"


def _usage(command: Subcommand) -> str:
    """Return the forms of a command, with its summary beside the last one."""
    *before, last = (f"  {form}" for form in command.usage)
    beside = f"{last:<{_USAGE_WIDTH}}  {command.summary}"
    return "\n".join([*before, beside])


def _grouped(options: Iterable[Option], width: int, command: str = "") -> str:
    """Return the options under the headings of their groups, with the commands and actions that they belong to. Of
    `command`, only its actions."""
    listed = list(options)
    parts = []
    for group in _in_order(listed):
        lines = [line for option in listed if option.group is group for line in _lines(option, width, command)]
        parts.append("\n".join([f"{group.title}:", *lines]))
    return "\n\n".join(parts)


def _in_order(options: Iterable[Option]) -> list[Group]:
    return list(dict.fromkeys(option.group for option in options))


def owners(option: Option, command: str = "") -> str:
    """Return the commands that an option belongs to, in words; of `command` its actions. "" if others have it, too."""
    names = [each for each in option.commands if not command or each.startswith(f"{command} ")]
    return " and ".join(each for each in (", ".join(names[:-1]), *names[-1:]) if each)


def _lines(option: Option, width: int, command: str) -> list[str]:
    spelled = ", ".join(sorted(option.names, key=len))
    left = f"  {spelled} <{option.metavar}>" if option.metavar else f"  {spelled}"
    text = option.help
    if names := owners(option, command):
        text = f"With {names}: {text[:1].lower()}{text[1:]}"
    wrapped = textwrap.wrap(text, max(_MIN_TEXT, width - _OPTION_WIDTH))
    lines = []
    if len(left) > _OPTION_WIDTH - 2:
        lines.append(left)
        left = ""
    lines.append(f"{left:<{_OPTION_WIDTH}}{wrapped[0]}")
    return [*lines, *(" " * _OPTION_WIDTH + line for line in wrapped[1:])]
