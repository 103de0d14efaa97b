"""The requests for the slash commands that the worker knows, for notes in the instruction file, and for the name and
the rules of a session."""

from __future__ import annotations

from ..requests import Json, RequestKind, client_kind

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

SHELL_CALL = "shell_"
"""The start of the id of the call that runs a command line of the person. No message names the call: there is only its
progress, while it runs."""

SHELL_COMMAND = "shell_command"
"""The field of a user message that is a command line of the person, `! make`, and the capability of a worker that runs
it. Only the field makes it one: a text that begins with `!` may come from anybody."""
