"""What a row says; values read."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.dataclass import dataclass

from .target import parse_port

OptionValue = bool | str | int | float | tuple[str, ...]

ReadValue = Callable[[str, str], str | int | float]
"""Reads a value. The second argument is the option as messages show it: `--max-turns <n>`."""

SETTING_SOURCES = ("user", "project", "local")

_SSH_OPTION = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*\s*[=\s]\s*[^\n\0]*[^\s\0][^\n\0]*")
_SESSION_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}", re.IGNORECASE)


def is_session_id(text: str) -> bool:
    """Return whether `text` looks like the ID of a session, or like at least the first four characters of one."""
    return _SESSION_ID.fullmatch(text) is not None


def read_text(value: str, shown: str) -> str:
    """Return the value unchanged."""
    return value


def read_duration(unit: str) -> ReadValue:
    """Return a parser of non-negative numbers of `unit` (seconds, days)."""

    def read(value: str, shown: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a number of {unit}")
        return number

    return read


def read_count(value: str, shown: str) -> int:
    """Parse a whole number from 1 to 999999."""
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:80]) < 1_000_000:
        raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a number from 1 to 999999")
    return int(value)


def read_session_id(value: str, shown: str) -> str:
    """Parse the ID of an existing session, or the start of one; return it in lower case."""
    if not is_session_id(value):
        raise UsageError(f"error: '{shortened(value)}' is not a session ID", do="`ccb ps HOST` lists them.")
    return value.lower()


def is_worktree_name(text: str) -> bool:
    """Return whether a worktree can have this name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None and ".." not in text


def read_worktree_name(value: str, shown: str) -> str:
    """Check the name of a worktree."""
    if not is_worktree_name(value):
        raise UsageError(
            f"error: {shown}: '{shortened(value)}' is no name for a worktree",
            do="Take letters, digits, dots, dashes and underscores, 64 at most.",
        )
    return value


def read_uuid(value: str, shown: str) -> str:
    """Parse a UUID in its usual spelling."""
    import uuid  # it takes 3 ms, and few command lines have one

    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise UsageError(
            "Error: Invalid session ID. Must be a valid UUID.", do="`uuidgen` makes one; without it, ccb does."
        ) from None


def read_port(value: str, shown: str) -> int:
    """Parse a TCP port."""
    return parse_port(value)


def read_ssh_option(value: str, shown: str) -> str:
    """Parse an option of ssh_config: `Name=value` or `Name value`."""
    if not _SSH_OPTION.fullmatch(value):
        raise UsageError(f"error: '-o {shortened(value)}' is not an ssh option", do="Write -o Name=value.")
    return value


def read_model(value: str, shown: str) -> str:
    """Parse the name of a model. Whether a word is one is known when the settings are read: it may be a short name."""
    if not value.strip():
        raise UsageError(f"error: option '{shown}' argument is empty", do="Name a model, or leave out the option.")
    return value


def read_tokens(value: str, shown: str) -> int:
    """Parse a number of tokens, which may be 0."""
    return 0 if value == "0" else read_count(value, shown)


def read_permission_tool(value: str, shown: str) -> str:
    """Parse who decides on permissions: `stdio`, or the name of a tool of an MCP server."""
    if value != "stdio" and not re.fullmatch(r"mcp__[\w-]+__[\w-]+", value, re.ASCII):
        raise UsageError(
            f"error: option '{shown}' argument '{shortened(value)}' is invalid. "
            "Allowed choices are stdio and mcp__SERVER__TOOL."
        )
    return value


def read_dollars(value: str, shown: str) -> float:
    """Parse a positive amount of dollars."""
    amount = read_duration("dollars")(value, shown)
    assert isinstance(amount, float)
    if not amount:
        raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' must be more than 0")
    return amount


def read_json_object(value: str, shown: str) -> str:
    """Check that the value is a JSON object, and return it unchanged."""
    import json  # few starts have such an option

    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a JSON object")
    return value


def read_sources(value: str, shown: str) -> str:
    """Check a list of the sources of settings, and return it without blanks."""
    names = [name.strip() for name in value.split(",") if name.strip()]
    wrong = [name for name in names if name not in SETTING_SOURCES]
    if wrong:
        raise UsageError(
            f"error: option '{shown}' argument '{shortened(wrong[0])}' is invalid. "
            f"Allowed choices are {', '.join(SETTING_SOURCES)}."
        )
    return ",".join(names)


def split_rules(text: str) -> list[str]:
    """Cut a list of tool rules at commas and white space outside parentheses."""
    from ccb.tunnel.wire.tool_traits import split_rules as split  # most starts have no rules

    return split(text)[0]


def shortened(text: str) -> str:
    """Return `text` as error messages quote it: control characters neutralised, at most 80 characters."""
    return neutralise(text)[:80]


class Group(Enum):
    """Options that belong together. The value is the attribute of `Arguments` that holds them (`""`: `Arguments`
    itself)."""

    SESSION = "session"
    AGENT = "agent"
    SCREEN = "screen"
    STREAMS = "streams"
    CONNECTION = "connection"
    HOST_COMMAND = "host_command"
    SDK = "sdk"
    GENERAL = ""

    @property
    def title(self) -> str:
        """The heading of the group in the help text."""
        return _TITLES[self]


_TITLES = {
    Group.SESSION: "Session",
    Group.AGENT: "Model and permissions",
    Group.SCREEN: "Terminal interface",
    Group.STREAMS: "Without the terminal interface (headless)",
    Group.CONNECTION: "Connection",
    Group.HOST_COMMAND: "Options of single commands",
    Group.SDK: "For programs that drive ccb (SDKs)",
    Group.GENERAL: "General",
}


class OptionKind(Enum):
    """The kind of value that follows an option."""

    FLAG = "flag"
    VALUE = "value"
    VARIADIC = "variadic"  # every word up to the next option
    REPEAT = "repeat"  # one value, and the option may be given again
    OPTIONAL = "optional"  # a session ID when the next word looks like one


@dataclass(frozen=True)
class Option:
    """One option of the command line.

    `names` are all spellings, the preferred one first. `field` is the attribute of `group`. `help` is one plain
    sentence. `commands` are the only commands that take the option; empty when the group decides (see `Subcommand`).
    """

    names: tuple[str, ...]
    group: Group
    field: str
    kind: OptionKind
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    read: ReadValue = read_text
    commands: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Return the option as messages name it: `--output-format <format>`."""
        return f"{self.names[0]} <{self.metavar}>" if self.metavar else self.names[0]


@dataclass(frozen=True)
class Subcommand:
    """One command of `ccb`.

    `usage` are its forms, `summary` is one line for the overview, `description` a paragraph. It takes the options of
    `groups` except those named in `without`, its own host-command options, and the general ones.
    """

    name: str
    usage: tuple[str, ...]
    summary: str
    description: str
    groups: tuple[Group, ...] = ()
    without: tuple[str, ...] = ()

    def takes(self, option: Option) -> bool:
        """Return whether the option has an effect with this command."""
        if option.commands:
            return self.name in option.commands
        if option.group is Group.GENERAL:
            return option.field != "version"
        return option.group in self.groups and option.names[0] not in self.without
