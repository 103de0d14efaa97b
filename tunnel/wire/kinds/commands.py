"""The request for the slash commands that the worker knows."""

from __future__ import annotations

from ..requests import Json, RequestKind, client_kind

LIST_COMMANDS: RequestKind[None, Json] = client_kind("list_commands", lambda fields: None)
"""The answer holds `commands`: objects with `name`, `description` and `argumentHint`."""
