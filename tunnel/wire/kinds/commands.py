"""The requests for the slash commands that the worker knows, for notes in the instruction file, and for the name and
the rules of a session."""

from __future__ import annotations

from ..requests import Json, RequestKind, RequestRefused, client_kind

LIST_COMMANDS: RequestKind[None, Json] = client_kind("list_commands", lambda fields: None)
"""The answer holds `commands`: objects with `name`, `description` and `argumentHint`."""

REMEMBER: RequestKind[str, Json] = client_kind(
    "remember", lambda fields: str(fields.get("note") or ""), lambda note: {"note": note}
)
"""Add a line to the instruction file of the session's directory. The answer holds its `path`."""

RENAME_SESSION: RequestKind[str, Json] = client_kind(
    "rename_session", lambda fields: str(fields.get("title") or ""), lambda title: {"title": title}
)
"""Give the session a name, which lists of sessions show."""

LIST_RULES: RequestKind[None, Json] = client_kind("list_permission_rules", lambda fields: None)
"""The answer holds `state`, with `rules`: objects with `behavior`, `source` and `rule`."""


def _rule_changes(fields: Json) -> list[Json]:
    updates = fields.get("updates")
    changes = [each for each in updates if isinstance(each, dict)] if isinstance(updates, list) else []
    if not changes or any(each.get("type") not in ("addRules", "removeRules") for each in changes):
        raise RequestRefused("change_permission_rules takes addRules and removeRules")
    return changes


CHANGE_RULES: RequestKind[list[Json], Json] = client_kind(
    "change_permission_rules", _rule_changes, lambda updates: {"updates": updates}
)
"""The person adds permission rules, or removes rules of theirs: updates in the public shape."""

SHELL_CALL = "shell_"
"""The start of the id of the call that runs a command line of the person. No message names the call: there is only its
progress, while it runs."""

SHELL_COMMAND = "shell_command"
"""The field of a user message that is a command line of the person, `! make`, and the capability of a worker that runs
it. Only the field makes it one: a text that begins with `!` may come from anybody."""
