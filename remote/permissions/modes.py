"""Permission modes, who may choose them, and how far the reading of a command line is trusted."""

from __future__ import annotations

import os
from enum import Enum

DEFAULT, ACCEPT_EDITS, PLAN, BYPASS = "default", "acceptEdits", "plan", "bypassPermissions"
DONT_ASK = "dontAsk"
MODES = (ACCEPT_EDITS, BYPASS, DEFAULT, DONT_ASK, PLAN)
_BY_FREEDOM = (PLAN, DONT_ASK, DEFAULT, ACCEPT_EDITS, BYPASS)


class Trust(Enum):
    """How far the reading of a line is trusted: which commands can be let through because they only read."""

    ANY = "any: a cage stands behind the judgement"
    LITERAL_COMMANDS = "commands of literal words: other commands of the line are allowed to run without a cage"
    LITERAL_LINES = "commands of lines that have only literal words: this host has no cage"


class ModeError(ValueError):
    """The mode cannot be chosen. `code` says why, as in the public protocol."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def stricter(one: str, other: str) -> str:
    """Return the mode that lets less happen without a question. A mode that is not known counts as the strictest."""
    return min(one, other, key=lambda mode: _BY_FREEDOM.index(mode) if mode in _BY_FREEDOM else -1)


def is_root_without_sandbox() -> bool:
    """Whether the user is root on a machine that is not declared a sandbox: then permissions may not be bypassed."""
    return os.geteuid() == 0 and os.environ.get("IS_SANDBOX") != "1"


def check_mode(mode: str, allow_bypass: bool, is_root: bool) -> None:
    """Raise ModeError if the mode does not exist or cannot be chosen."""
    if mode not in MODES:
        raise ModeError("invalid_mode", f"Cannot set permission mode: must be one of {', '.join(MODES)}")
    if mode != BYPASS:
        return
    if not allow_bypass:
        raise ModeError(
            "bypass_not_launched",
            "Cannot set permission mode to bypassPermissions because the session was not launched with"
            " --dangerously-skip-permissions",
        )
    if is_root:
        raise ModeError(
            "bypass_as_root",
            "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
            " (set IS_SANDBOX=1 on the host if it is a throw-away machine)",
        )
