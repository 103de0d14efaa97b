"""The text of /hooks."""

from __future__ import annotations

from .runner import HookRunner
from .table import EVENTS

_MOST_CHARS = 300  # of one command


def listing(runner: HookRunner | None) -> str:
    """Return the hooks by event, each with where it comes from, and what is wrong with others."""
    lines: list[str] = []
    hooks = runner.hooks if runner is not None else ()
    for event in EVENTS:
        of_event = [hook for hook in hooks if hook.event == event]
        if of_event:
            lines.append(event)
        for hook in of_event:
            does = " ".join((hook.command or f"callback {hook.callback}").split())
            matcher = f"{hook.matcher}: " if hook.matcher else ""
            where = hook.source + (f", {hook.path}" if hook.path else "")
            lines.append(f"  {matcher}{does[:_MOST_CHARS]}  ({where}; at most {hook.timeout_s:g} s)")
    if not lines:
        lines.append('No hooks run on this host. They are configured under "hooks" in the settings.')
    problems = runner.problems if runner is not None else []
    return "\n".join([*lines, *(["", "Not used:"] if problems else []), *(f"  {each}" for each in problems)])
