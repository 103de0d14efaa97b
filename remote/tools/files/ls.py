"""LS: lists a directory."""

from __future__ import annotations

import fnmatch
from typing import Any

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.spelling import spelled

from ...system.regular_files import FileKind
from ..contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ..output import limited
from .edit_common import refusal
from .paths import absolute, host_of, missing, os_error, path_error

Json = dict[str, Any]

_MAX_ENTRIES = 1000

_LS_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "The absolute path to the directory to list"},
        "ignore": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Glob patterns of names to leave out",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


_LS_DESCRIPTION = (
    "Lists the entries of a directory, hidden ones included: directories end in /, links show where they point. "
    "ignore takes glob patterns of names to leave out. Use Glob to find files by pattern in a whole tree."
)


class LS(Tool):
    """Lists the direct entries of one directory."""

    declaration = ToolDeclaration(tool_traits.LS, _LS_DESCRIPTION, _LS_SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return path_error(tool_input["path"])

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        path = absolute(tool_input["path"], context.cwd)
        shown = spelled(path)
        ignored = tool_input.get("ignore") or []
        try:
            info = await host_of(context).stat(path)
            if info is None:
                return refusal(await missing(host_of(context), path, context.cwd))
            if info.kind is not FileKind.DIRECTORY:
                return refusal(f"{shown} is a {info.kind.value}, not a directory. Use Read for files.")
            entries = await host_of(context).list(path)
        except OSError as error:
            return refusal(os_error(error, shown))
        lines = []
        for entry in entries:
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in ignored):
                continue
            name = spelled(entry.name)
            if entry.kind is FileKind.DIRECTORY:
                name += "/"
            elif entry.kind is FileKind.LINK:
                name += f" -> {spelled(entry.target)}"
            lines.append(name)
        total = len(lines)
        if total > _MAX_ENTRIES:
            lines[_MAX_ENTRIES:] = [f"[... {total - _MAX_ENTRIES:,} more entries; use Glob with a pattern ...]"]
        text = "\n".join(lines) or "(The directory is empty)"
        return ToolResult(limited(text, context.spill, self.name), structured={"path": shown, "numEntries": total})
