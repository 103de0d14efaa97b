"""Glob, LS."""

from __future__ import annotations

import fnmatch
import os
import re

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.spelling import spelled

from ..search_program.globs import BadRequest, Globs
from ..system.regular_files import FileKind
from .file_access import absolute, host_of, naming, path_error, present, tree_path
from .input_schema import object_of, text
from .output import limited
from .search_process import MAX_PATTERN, SECONDS, search
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolRefused, ToolResult

_MAX_ENTRIES = 1000

_IGNORED = {"type": "array", "items": {"type": "string"}, "description": "Glob patterns of names to leave out"}


class LS(Tool):
    """Lists the direct entries of one directory."""

    declaration = ToolDeclaration(
        tool_traits.LS,
        "Lists the entries of a directory, hidden ones included: directories end in /, links show where they point. "
        "ignore takes glob patterns of names to leave out. Use Glob to find files by pattern in a whole tree.",
        object_of({"path": text("The absolute path to the directory to list"), "ignore": _IGNORED}, "path"),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return path_error(tool_input["path"])

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        path = absolute(tool_input["path"], context.cwd)
        shown = spelled(path)
        ignored = tool_input.get("ignore") or []
        with naming(shown):
            info = await present(host_of(context), path, context.cwd)
            if info.kind is not FileKind.DIRECTORY:
                raise ToolRefused(f"{shown} is a {info.kind.value}, not a directory. Use Read for files.")
            entries = await host_of(context).list(path)
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


MAX_FILES = 100


class Glob(Tool):
    """Finds files in a tree."""

    declaration = ToolDeclaration(
        tool_traits.GLOB,
        "Finds files by a glob pattern, such as `**/*.py` or `src/**/*.{ts,tsx}`; gives absolute paths, the most "
        f"recently changed first, at most {MAX_FILES}.\n"
        "- A pattern without a slash matches names at any depth. * and ? stay inside a name, ** crosses directories.\n"
        "- Hidden files are found; .git, and in a git repository what .gitignore leaves out, are not.",
        object_of(
            {
                "pattern": text("The glob pattern to match files against", 1, MAX_PATTERN),
                "path": text("The directory to search in (the session's directory if it is left out)"),
            },
            "pattern",
        ),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        try:
            Globs([tool_input["pattern"]])
        except (BadRequest, re.error) as error:
            return str(error)
        return path_error(tool_input["pattern"]) or path_error(tool_input.get("path") or ".")

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        where = tool_input.get("path")
        base = absolute(where, context.cwd) if where else context.cwd
        head, pattern = _literal_head(tool_input["pattern"])
        root = context.host.real_path(absolute(head, base)) if head else base
        root = tree_path(context.host, root)
        with naming(spelled(root)):
            if (await present(context.host, root, context.cwd)).kind is not FileKind.DIRECTORY:
                raise ToolRefused(f"{spelled(root)} is not a directory.")
            found = await search(context, {"op": "glob", "root": root, "globs": [pattern], "limit": MAX_FILES}, SECONDS)
        names = [os.path.join(spelled(root), path) for path in found["items"]]
        lines = list(names) or ["No files found"]
        if found["more"]:
            lines.append("(Results are truncated. Consider using a more specific path or pattern.)")
        if found["partial"]:
            lines.append(f"(The search was stopped after {SECONDS:g} s; there may be more files.)")
        lines += found["notes"]
        structured = {"filenames": names, "numFiles": len(names), "truncated": found["more"] or found["partial"]}
        return ToolResult(limited("\n".join(lines), context.spill, self.name), structured=structured)


def _literal_head(pattern: str) -> tuple[str, str]:
    """Split a pattern that is absolute or starts with `../` or `~/` into its directory and the pattern below that."""
    if not pattern.startswith(("/", "~/", "../")):
        return "", pattern
    parts = pattern.split("/")
    literal = 0
    while literal < len(parts) - 1 and not re.search(r"[*?\[{\\]", parts[literal]):
        literal += 1
    return "/".join(parts[:literal]) or "/", "/" + "/".join(parts[literal:])
