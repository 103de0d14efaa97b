"""Write: writes a whole file with exactly the content given."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire import tool_traits

from ..contract import Preview, Tool, ToolContext, ToolDeclaration, ToolResult
from .edit_common import (
    ChangeRefused,
    Current,
    current,
    path_refusal,
    peek_refusal,
    preview_of,
    refusal,
    store,
    text_error,
)
from .edit_text import NOT_UTF8, is_utf8
from .patch import bounded_text, structured_patch, whole_or_none
from .paths import os_error

Json = dict[str, Any]

_WRITE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "The absolute path to the file to write"},
        "content": {"type": "string", "description": "The content of the file"},
    },
    "required": ["file_path", "content"],
    "additionalProperties": False,
}


_WRITE_DESCRIPTION = (
    "Writes a file, replacing the one that is there. Directories that are missing are made.\n"
    "- A file that exists must have been read in this conversation first, and must not have changed since.\n"
    "- The content is written as it is given, line endings included.\n"
    "- Prefer Edit for changes to an existing file: it sends only what changes."
)


class Write(Tool):
    """Creates a file or replaces its whole content."""

    declaration = ToolDeclaration(tool_traits.WRITE, _WRITE_DESCRIPTION, _WRITE_SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        path = tool_input["file_path"]
        return path_refusal(path) or text_error(tool_input["content"]) or peek_refusal(context, path)

    async def preview(self, tool_input: Json, context: ToolContext) -> Preview | ToolResult | None:
        try:
            file = await _replaceable(tool_input, context)
        except ChangeRefused as refused:
            return refusal(str(refused))
        except OSError as error:
            return refusal(os_error(error, tool_input["file_path"]))
        # A new file is shown from the call itself: its content need not be sent twice.
        return preview_of(file, tool_input["content"].encode() if file.data is not None else b"")

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        content = tool_input["content"]
        try:
            file = await _replaceable(tool_input, context)
            await store(context, file, content.encode())
        except ChangeRefused as refused:
            return refusal(str(refused))
        except OSError as error:
            return refusal(os_error(error, tool_input["file_path"]))
        old = None if file.data is None else file.data.decode("utf-8", "replace")
        structured = {
            "type": "create" if old is None else "update",
            "filePath": file.path,
            "content": bounded_text(content),
            "structuredPatch": [] if old is None else structured_patch(old, content),
            "originalFile": whole_or_none(old),
            "userModified": False,
        }
        if old is None:
            return ToolResult(f"File created successfully at: {file.path}", structured=structured)
        return ToolResult(f"The file {file.path} has been updated successfully.", structured=structured)


async def _replaceable(tool_input: Json, context: ToolContext) -> Current:
    """Return the file if the call may replace it. Raise ChangeRefused or OSError."""
    file = await current(context, tool_input["file_path"])
    if file.data is not None and "\ufffd" in tool_input["content"] and not is_utf8(file.data):
        raise ChangeRefused(f"{NOT_UTF8} The content has replacement characters for what Read could not show.")
    return file
