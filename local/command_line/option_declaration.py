"""What is declared of an option of the command line, and how values are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.dataclass import dataclass

ReadValue = Callable[[str, str], str | int | float | tuple[str, ...]]
"""Reads a value. The second argument is the option as messages show it: `--max-turns <n>`. Raises UsageError."""

SETTING_SOURCES = ("user", "project", "local")

_SSH_OPTION = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*\s*[=\s]\s*[^\n\0]*[^\s\0][^\n\0]*")
_BETA = re.compile(r"[a-z0-9-]{1,80}-\d{4}-\d{2}-\d{2}", re.ASCII)
_SESSION_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}", re.IGNORECASE)


def shortened(text: str) -> str:
    """Return `text` as error messages quote it: control characters neutralised, at most 80 characters."""
    return neutralise(text)[:80]


def check_choice(value: str, choices: tuple[str, ...], shown: str) -> None:
    if value not in choices:
        allowed = ", ".join(choices)
        raise UsageError(
            f"error: option '{shown}' argument '{shortened(value)}' is invalid. Allowed choices are {allowed}."
        )


def is_session_id(text: str) -> bool:
    """Return whether `text` looks like the ID of a session, or like at least the first four characters of one."""
    return _SESSION_ID.fullmatch(text) is not None


def is_worktree_name(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None and ".." not in text


def read_number(unit: str, *, positive: bool = False) -> ReadValue:
    """Return a parser of numbers of `unit` (seconds, days, dollars): 0 and more, or with `positive` more than 0."""

    def read(value: str, shown: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a number of {unit}")
        if positive and not number:
            raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' must be more than 0")
        return number

    return read


def read_count(value: str, shown: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:80]) < 1_000_000:
        raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a number from 1 to 999999")
    return int(value)


def read_tokens(value: str, shown: str) -> int:
    return 0 if value == "0" else read_count(value, shown)


def read_session_id(value: str, shown: str) -> str:
    """Parse the ID of an existing session, or the start of one; return it in lower case. "" lets the person choose."""
    if value and not is_session_id(value):
        raise UsageError(f"error: '{shortened(value)}' is not a session ID", do="`ccb ps HOST` lists them.")
    return value.lower()


def read_worktree_name(value: str, shown: str) -> str:
    if value and not is_worktree_name(value):
        raise UsageError(
            f"error: {shown}: '{shortened(value)}' is no name for a worktree",
            do="Take letters, digits, dots, dashes and underscores, 64 at most.",
        )
    return value


def read_uuid(value: str, shown: str) -> str:
    import uuid  # it takes 3 ms, and few command lines have one

    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise UsageError(
            "Error: Invalid session ID. Must be a valid UUID.", do="`uuidgen` makes one; without it, ccb does."
        ) from None


def read_ssh_option(value: str, shown: str) -> str:
    if not _SSH_OPTION.fullmatch(value):
        raise UsageError(f"error: '-o {shortened(value)}' is not an ssh option", do="Write -o Name=value.")
    return value


def read_model(value: str, shown: str) -> str:
    """Check that a model is named. Which names there are is known when the settings are read."""
    if not value.strip():
        raise UsageError(f"error: option '{shown}' argument is empty", do="Name a model, or leave out the option.")
    return value


def read_permission_tool(value: str, shown: str) -> str:
    """Check who decides on permissions: `stdio`, or the name of a tool of an MCP server."""
    if value != "stdio" and not re.fullmatch(r"mcp__[\w-]+__[\w-]+", value, re.ASCII):
        raise UsageError(
            f"error: option '{shown}' argument '{shortened(value)}' is invalid. "
            "Allowed choices are stdio and mcp__SERVER__TOOL."
        )
    return value


def read_json_object(value: str, shown: str) -> str:
    """Check that the value is a JSON object, and return it unchanged."""
    try:
        found = json_object(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"error: option '{shown}' argument '{shortened(value)}' is not a JSON object")
    return value


def json_object(text: str) -> object:
    import json  # few starts have such an option

    return json.loads(text)


def read_sources(value: str, shown: str) -> str:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        check_choice(name, SETTING_SOURCES, shown)
    return ",".join(names)


def read_rules(value: str, shown: str) -> tuple[str, ...]:
    from ccb.tunnel.wire.tool_traits import split_rules  # most starts have no rules

    return tuple(split_rules(value)[0])


def offered_tools(names: list[str]) -> list[str] | None:
    """Return the built-in tools that the model is offered, None for all."""
    return None if "default" in names else names


def beta_features(names: list[str]) -> list[str]:
    """Return the beta features that the worker may ask the model API for. Raise UsageError."""
    for name in names:
        if not _BETA.fullmatch(name):
            raise UsageError(f"--betas {shortened(name)}: the name of a beta feature ends with its date")
    return names


class Group(Enum):
    """Options that belong together: the attribute of `Arguments` that holds them, and their heading."""

    SESSION = "session", "Session"
    AGENT = "agent", "Model and permissions"
    SCREEN = "screen", "Terminal interface"
    STREAMS = "streams", "Without the terminal interface (headless)"
    CONNECTION = "connection", "Connection"
    HOST_COMMAND = "host_command", "Options of single commands"
    ACCOUNT = "account", "Options of `ccb auth`"
    SDK = "sdk", "For programs that drive ccb (SDKs)"
    GENERAL = "", "General"

    def __init__(self, attribute: str, title: str) -> None:
        self.attribute = attribute
        self.title = title


class OptionKind(Enum):
    ONE = "one"  # one value, or none for an option without a metavar
    VARIADIC = "variadic"  # every word up to the next option
    REPEAT = "repeat"  # one value, and the option may be given again
    OPTIONAL = "optional"  # the next word, if it is such a value


@dataclass(frozen=True)
class Option:
    """One option of the command line, whose value is the attribute `field` of `group`.

    `spellings` are all names, the preferred one first. `help` is one plain sentence. An option without `metavar` takes
    no value. `commands` are the only commands that take the option, each alone or with its action (`auth login`); empty
    when the group decides (see `Subcommand`).

    A session takes the value as the field `wire` of `SessionOptions`, made by `to_wire`. Without the option, `setting`
    counts: an attribute of `Settings`, with dots inside a section. Lists of both are joined.
    """

    group: Group
    field: str
    spellings: str
    help: str
    metavar: str = ""
    kind: OptionKind = OptionKind.ONE
    choices: tuple[str, ...] = ()
    read: ReadValue | None = None
    commands: tuple[str, ...] = ()
    setting: str = ""
    wire: str = ""
    to_wire: Callable[[Any], object] = lambda value: value

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.spellings.split())

    @property
    def shown(self) -> str:
        return f"{self.names[0]} <{self.metavar}>" if self.metavar else self.names[0]

    @property
    def takes_one(self) -> bool:
        return bool(self.metavar) and self.kind in (OptionKind.ONE, OptionKind.REPEAT)

    def value(self, text: str) -> str | int | float | tuple[str, ...]:
        """Read a value of this option. Raise UsageError."""
        if self.choices:
            check_choice(text, self.choices, self.shown)
        return self.read(text, self.shown) if self.read else text


_MISSING = object()


def option(spellings: str, help: str, metavar: str = "", *, default: object = _MISSING, **more: object) -> Any:
    if default is _MISSING:
        several = more.get("kind") in (OptionKind.VARIADIC, OptionKind.REPEAT)
        default = () if several else None if metavar else False
    declared: Mapping[str, object] = {"spellings": spellings, "help": help, "metavar": metavar, **more}
    return field(default=default, metadata=declared)
