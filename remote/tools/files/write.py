"""Write: writes a whole file with exactly the content given."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire import tool_traits

from ...system.text_encoding import shown, text_of
from ...system.threads import in_thread
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
from .edit_text import NO_TEXT, NOT_UTF8, ends_in_returns, with_endings_of
from .patch import bounded_text, structured_patch, whole_or_none
from .paths import os_error
from .read_text import LINE_CUT

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
    "- A file that exists keeps its encoding, its byte order mark and its line endings (unless the content has CRLF).\n"
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
        new = (await in_thread(_content, tool_input["content"], file))[0] if file.data is not None else b""
        return await in_thread(preview_of, file, new)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        content = tool_input["content"]
        try:
            file = await _replaceable(tool_input, context)
            data, kept = await in_thread(_content, content, file)
            notes = await store(context, file, data)
        except ChangeRefused as refused:
            return refusal(str(refused))
        except OSError as error:
            return refusal(os_error(error, tool_input["file_path"]))
        old = None if file.data is None else shown(file.data)
        structured = {
            "type": "create" if old is None else "update",
            "filePath": file.name,
            "content": bounded_text(content),
            "structuredPatch": [] if old is None else await in_thread(structured_patch, old, shown(data)),
            "originalFile": whole_or_none(old),
            "userModified": False,
        }
        if old is None:
            return ToolResult(f"File created successfully at: {file.name}{notes}", structured=structured)
        return ToolResult(f"The file {file.name} has been updated successfully.{kept}{notes}", structured=structured)


async def _replaceable(tool_input: Json, context: ToolContext) -> Current:
    """Return the file if the call may replace it. Raise ChangeRefused or OSError."""
    file = await current(context, tool_input["file_path"])
    content, text = tool_input["content"], text_of(file.data or b"")
    if text is None:
        raise ChangeRefused(NO_TEXT)
    if not text.codec:
        raise ChangeRefused(f"{NOT_UTF8} Write would lose what Read could not show.")
    for sign, stands_for in ((LINE_CUT, True), ("\ufffd", "\0" in text.text)):
        if stands_for and sign in content and sign not in text.text:
            raise ChangeRefused(f"The content has {sign!r}, which stands for what Read could not show. Use Edit.")
    return file


def _content(content: str, file: Current) -> tuple[bytes, str]:
    """Return the bytes that the file gets, in the encoding and with the line endings that it has, and a sentence about
    what was kept."""
    text = text_of(file.data) if file.data else None
    if text is None:
        return content.encode(), ""
    kept = [text.codec.upper()] if text.codec != "utf-8" else []
    kept += ["byte order mark"] if text.mark else []
    if ends_in_returns(text.text) and "\r" not in content:
        content = content.replace("\n", "\r")
        kept += ["CR line endings"]
    elif "\r" in text.text and "\r" not in content:
        content = with_endings_of(text.text, content, "\r\n" if "\r\n" in text.text else "\n")
        kept += ["CRLF line endings"] if "\r" in content else []
    data = text.encoded(content[1:] if text.mark and content.startswith("\ufeff") else content)
    return data, f" Kept as it was: {', '.join(kept)}." if kept else ""
