"""Permission modes and who may choose them."""

from __future__ import annotations

import os

DEFAULT, ACCEPT_EDITS, PLAN, BYPASS = "default", "acceptEdits", "plan", "bypassPermissions"
MODES = (ACCEPT_EDITS, BYPASS, DEFAULT, PLAN)


class ModeError(ValueError):
    """The mode cannot be chosen. `code` is the public protocol's word for why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def is_root_without_sandbox() -> bool:
    """Root may not skip permissions, unless the environment says that the machine is a sandbox."""
    return os.geteuid() == 0 and os.environ.get("IS_SANDBOX") != "1"


def check_mode(mode: str, allow_bypass: bool, is_root: bool) -> None:
    """Raises ModeError."""
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
