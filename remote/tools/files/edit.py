"""Edit and MultiEdit: replace exact texts in a file that has been read, in one atomic step."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire import tool_traits

from ..contract import Preview, Tool, ToolContext, ToolDeclaration, ToolResult
from .edit_common import (
    ChangeRefused,
    Current,
    current,
    path_refusal,
    peek,
    peek_refusal,
    preview_of,
    refusal,
    store,
    text_error,
)
from .edit_text import EditRefused, replaced
from .patch import bounded_text, structured_patch, whole_or_none
from .paths import missing, os_error

Json = dict[str, Any]

_OLD = {"type": "string", "description": "The text to replace, exactly as it is in the file, with its indentation"}
_NEW = {"type": "string", "description": "The text to put in its place (must be different from old_string)"}
_ALL = {"type": "boolean", "default": False, "description": "Replace all occurrences of old_string (default false)"}
_PATH = {"type": "string", "description": "The absolute path to the file to modify"}

_EDIT_SCHEMA: Json = {
    "type": "object",
    "properties": {"file_path": _PATH, "old_string": _OLD, "new_string": _NEW, "replace_all": _ALL},
    "required": ["file_path", "old_string", "new_string"],
    "additionalProperties": False,
}


_EDIT_DESCRIPTION = (
    "Replaces text in a file.\n"
    "- Read the file in this conversation first; the edit fails otherwise, or when the file has changed since.\n"
    "- old_string must match the file exactly, indentation included. Do not include the line number and the tab "
    "that Read puts in front of each line.\n"
    "- old_string must be unique in the file: give enough of the lines around it, or set replace_all.\n"
    "- An empty old_string creates the file with new_string as its content, if it does not exist.\n"
    "- The mode and the line endings of the file are kept."
)


class Edit(Tool):
    """Makes one replacement in a file."""

    declaration = ToolDeclaration(tool_traits.EDIT, _EDIT_DESCRIPTION, _EDIT_SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return _validate(tool_input["file_path"], [tool_input], context)

    async def preview(self, tool_input: Json, context: ToolContext) -> Preview | ToolResult | None:
        return await _preview(tool_input["file_path"], [tool_input], context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        path, replace_all = tool_input["file_path"], bool(tool_input.get("replace_all"))
        done = await _run(path, [tool_input], context)
        if isinstance(done, ToolResult):
            return done
        old, new, path, count = done
        if old is None:
            text = f"File created successfully at: {path}"
        elif replace_all:
            text = f"The file {path} has been updated. {count} occurrences were replaced."
        else:
            text = f"The file {path} has been updated successfully."
        structured = {
            "filePath": path,
            "oldString": bounded_text(tool_input["old_string"]),
            "newString": bounded_text(tool_input["new_string"]),
            **_outcome(old, new),
            "replaceAll": replace_all,
        }
        return ToolResult(text, structured=structured)


_MULTI_EDIT_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "file_path": _PATH,
        "edits": {
            "type": "array",
            "minItems": 1,
            "description": "The replacements, in order",
            "items": {
                "type": "object",
                "properties": {"old_string": _OLD, "new_string": _NEW, "replace_all": _ALL},
                "required": ["old_string", "new_string"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["file_path", "edits"],
    "additionalProperties": False,
}


_MULTI_EDIT_DESCRIPTION = (
    "Makes several replacements in one file, in the order given, each on the result of the one before. All are made "
    "or none is. The rules of Edit hold for each of them. With an empty old_string, the first one creates a new "
    "file."
)


class MultiEdit(Tool):
    """Makes several replacements in one file, all or none."""

    declaration = ToolDeclaration(tool_traits.MULTI_EDIT, _MULTI_EDIT_DESCRIPTION, _MULTI_EDIT_SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return _validate(tool_input["file_path"], tool_input["edits"], context)

    async def preview(self, tool_input: Json, context: ToolContext) -> Preview | ToolResult | None:
        return await _preview(tool_input["file_path"], tool_input["edits"], context)

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        done = await _run(tool_input["file_path"], tool_input["edits"], context)
        if isinstance(done, ToolResult):
            return done
        old, new, path, count = done
        edits = [
            {
                "old_string": bounded_text(edit["old_string"], 1000),
                "new_string": bounded_text(edit["new_string"], 1000),
                "replace_all": bool(edit.get("replace_all")),
            }
            for edit in tool_input["edits"][:20]
        ]
        structured = {"filePath": path, "edits": edits, **_outcome(old, new)}
        verb = "created" if old is None else "updated"
        noun = "replacement" if count == 1 else "replacements"
        return ToolResult(f"The file {path} has been {verb}: {count} {noun} made.", structured=structured)


def _outcome(old: bytes | None, new: bytes) -> Json:
    before = "" if old is None else old.decode("utf-8", "replace")
    return {
        "originalFile": whole_or_none(before),
        "structuredPatch": structured_patch(before, new.decode("utf-8", "replace")),
        "userModified": False,
    }


def _validate(path: str, edits: list[Json], context: ToolContext) -> str | None:
    reason = path_refusal(path)
    if reason is not None:
        return reason
    for edit in edits:
        reason = text_error(edit["old_string"]) or text_error(edit["new_string"])
        if reason is None and edit["old_string"] == edit["new_string"]:
            reason = "No changes to make: old_string and new_string are exactly the same."
        if reason is not None:
            return reason
    _, data = peek(context, path)
    if data is None or _creates(edits, data):
        return None
    reason = peek_refusal(context, path)
    if reason is not None:
        return reason
    try:
        _apply(data, edits)
    except EditRefused as refused:
        return str(refused)
    return None


def _creates(edits: list[Json], data: bytes | None) -> bool:
    """Return whether the edits create the file: the first old_string is empty, and the file is absent or empty."""
    return edits[0]["old_string"] == "" and not data


def _apply(data: bytes, edits: list[Json]) -> tuple[bytes, int]:
    total = 0
    for number, edit in enumerate(edits, 1):
        try:
            data, count = replaced(data, edit["old_string"], edit["new_string"], bool(edit.get("replace_all")))
        except EditRefused as refused:
            if len(edits) == 1:
                raise
            raise EditRefused(f"No edit was made. Edit {number} of {len(edits)}: {refused}") from None
        total += count
    return data, total


async def _run(
    file_path: str, edits: list[Json], context: ToolContext
) -> ToolResult | tuple[bytes | None, bytes, str, int]:
    """Make the edits. Return (old content or None, new content, absolute path, number of replacements), or a
    refusal."""
    try:
        file, data, count = await _planned(file_path, edits, context)
        await store(context, file, data)
    except (ChangeRefused, EditRefused) as refused:
        return refusal(str(refused))
    except OSError as error:
        return refusal(os_error(error, file_path))
    return file.data, data, file.path, count


async def _preview(file_path: str, edits: list[Json], context: ToolContext) -> Preview | ToolResult:
    try:
        file, data, _ = await _planned(file_path, edits, context)
    except (ChangeRefused, EditRefused) as refused:
        return refusal(str(refused))
    except OSError as error:
        return refusal(os_error(error, file_path))
    return preview_of(file, data)


async def _planned(file_path: str, edits: list[Json], context: ToolContext) -> tuple[Current, bytes, int]:
    """Return the file, its new content and the number of replacements. Raise ChangeRefused, EditRefused or OSError."""
    file = await current(context, file_path)
    if _creates(edits, file.data):
        data, count = _apply_rest(edits)
    elif file.data is None:
        raise ChangeRefused(await missing(context.host, file.path, context.cwd))
    else:
        data, count = _apply(file.data, edits)
    return file, data, count


def _apply_rest(edits: list[Json]) -> tuple[bytes, int]:
    data = edits[0]["new_string"].encode()
    if len(edits) == 1:
        return data, 1
    data, count = _apply(data, edits[1:])
    return data, count + 1
