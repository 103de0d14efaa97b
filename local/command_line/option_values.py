"""Values of options as a person writes them: each reader takes a text, and returns the value or raises UsageError."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.tool_traits import split_rules

ReadValue = Callable[[str, str], str | int | float | tuple[str, ...]]
"""Reads a value. The second argument is the option as messages show it: `--max-turns <n>`. Raises UsageError."""

EFFORTS = ("low", "medium", "high", "xhigh", "max")

_NAME = r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_BETA = re.compile(r"[a-z0-9-]{1,80}-\d{4}-\d{2}-\d{2}", re.ASCII)
_SESSION_ID = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]{0,27}", re.IGNORECASE)


def shortened(text: str) -> str:
    """Return `text` as error messages quote it: control characters neutralised, at most 80 characters."""
    return neutralise(text)[:80]


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6, *, most: int = 1) -> list[str]:
    import difflib  # only mistakes need it

    return difflib.get_close_matches(word, names, n=most, cutoff=cutoff)


def _wrong(value: str, shown: str, why: str, do: str = "") -> UsageError:
    return UsageError(f"error: option '{shown}' argument '{shortened(value)}' {why}", do=do)


def _matching(pattern: str, why: str, do: str = "") -> Callable[[str, str], str]:
    """Return a reader of texts that are such as a whole."""

    def read(value: str, shown: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII | re.DOTALL):
            raise _wrong(value, shown, why, do)
        return value

    return read


def one_of(value: str, shown: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise _wrong(value, shown, f"is invalid. Allowed choices are {', '.join(choices)}.")
    return value


def is_session_id(text: str) -> bool:
    """Return whether `text` looks like the ID of a session, or like at least the first four characters of one."""
    return _SESSION_ID.fullmatch(text) is not None


def is_worktree_name(text: str) -> bool:
    return re.fullmatch(_NAME, text) is not None


_DO_NAME = "Take letters, digits, dots, dashes and underscores, 64 at most."
read_worktree_name = _matching(f"({_NAME})?", "is no name for a worktree", _DO_NAME)
read_group_name = _matching(_NAME, "is no name of a group", _DO_NAME)
read_ssh_option = _matching(
    r"\s*[A-Za-z][A-Za-z0-9]*\s*[=\s]\s*[^\n\0]*[^\s\0][^\n\0]*", "is not an ssh option", "Write -o Name=value."
)
read_map = _matching(r"/[^=]*=/.*", "does not name two absolute paths", "Write --map /PATH/ON/HOST=/PATH/HERE.")
read_model = _matching(r".*\S.*", "is empty", "Name a model, or leave out the option.")
read_permission_tool = _matching(
    r"stdio|mcp__[\w-]+__[\w-]+", "is invalid. Allowed choices are stdio and mcp__SERVER__TOOL."
)


def read_number(unit: str, *, positive: bool = False) -> ReadValue:
    """Return a parser of numbers of `unit` (seconds, days, dollars): 0 and more, or with `positive` more than 0."""

    def read(value: str, shown: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            raise _wrong(value, shown, f"is not a number of {unit}")
        if positive and not number:
            raise _wrong(value, shown, "must be more than 0")
        return number

    return read


def read_count(value: str, shown: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:80]) < 1_000_000:
        raise _wrong(value, shown, "is not a number from 1 to 999999")
    return int(value)


def read_tokens(value: str, shown: str) -> int:
    return 0 if value == "0" else read_count(value, shown)


def read_minutes(value: str, shown: str) -> float:
    """Parse a time in minutes, or in hours with `h`."""
    found = re.fullmatch(r"([0-9]{1,4})([mh]?)", value, re.ASCII)
    if found is None:
        raise _wrong(value, shown, "is no time such as 30m or 2h")
    return int(found[1]) * (60.0 if found[2] == "h" else 1.0)


def read_forward(value: str, shown: str) -> str:
    if not re.fullmatch(r"([0-9]{1,5}:)?[0-9]{1,5}", value) or any(not 0 < int(n) < 65536 for n in value.split(":")):
        raise _wrong(value, shown, "is no port", "Write the port of the host, or LOCAL:PORT for another one here.")
    return value


def read_reverse(value: str, shown: str) -> str:
    if ":" in value:
        raise _wrong(value, shown, "is not one port, which is the same on both machines")
    return read_forward(value, shown)


def read_session_id(value: str, shown: str) -> str:
    """Parse the ID of an existing session, or the start of one; return it in lower case. "" lets the person choose."""
    if value and not is_session_id(value):
        raise UsageError(f"error: '{shortened(value)}' is not a session ID", do="`ccb ps HOST` lists them.")
    return value.lower()


def read_uuid(value: str, shown: str) -> str:
    import uuid  # it takes 3 ms, and few command lines have one

    try:
        return str(uuid.UUID(value))
    except ValueError:
        do = "`uuidgen` makes one; without it, ccb does."
        raise UsageError("Error: Invalid session ID. Must be a valid UUID.", do=do) from None


def read_json_object(value: str, shown: str) -> str:
    """Check that the value is a JSON object, and return it unchanged."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _wrong(value, shown, "is not a JSON object")
    return value


def read_sources(value: str, shown: str) -> str:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        one_of(name, shown, ("user", "project", "local"))
    return ",".join(names)


def read_rules(value: str, shown: str) -> tuple[str, ...]:
    return tuple(split_rules(value)[0])


def beta_features(names: list[str]) -> list[str]:
    """Return the beta features that the worker may ask the model API for. Raise UsageError."""
    for name in names:
        if not _BETA.fullmatch(name):
            raise UsageError(f"--betas {shortened(name)}: the name of a beta feature ends with its date")
    return names
