"""Glob, Grep, LS."""

from __future__ import annotations

import fnmatch
import os
import re

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.spelling import spelled

from ..search_program.globs import TYPES, BadRequest, Globs
from ..search_program.scan import Pattern
from ..system.regular_files import FileKind
from .file_access import absolute, host_of, naming, path_error, present, tree_path
from .input_schema import choice, flag, number, object_of, text
from .output import limited
from .search_process import MAX_PATTERN, SECONDS, search
from .text_changes import bounded_text
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


HEAD_LIMIT = 250
_MAX_STRUCTURED = 1000  # names of files for clients


class Grep(Tool):
    """Searches the contents of files."""

    declaration = ToolDeclaration(
        tool_traits.GREP,
        "Searches file contents for a regular expression. Use it rather than grep or rg in Bash.\n"
        "- The syntax is that of ripgrep and Python (`log.*Error`, `function\\s+\\w+`), look-around included; literal "
        "braces need a backslash (`interface\\{\\}`).\n"
        "- output_mode: files_with_matches (default) gives paths, the most recently changed first; content gives "
        "lines; count gives the number of matching lines of each file.\n"
        "- glob (`*.js`, `src/**/*.{ts,tsx}`, `!*.min.js`) or type (js, py, rust, …) choose files.\n"
        "- A pattern matches inside one line, unless multiline is set.\n"
        "- Hidden files are searched; binary files, .git, and in a git repository what .gitignore leaves out, are not.",
        object_of(
            {
                "pattern": text("The regular expression to search for", 1, MAX_PATTERN),
                "path": text("File or directory to search in (the session's directory if it is left out)"),
                "glob": text("Glob patterns for files, separated by spaces", most=MAX_PATTERN),
                "type": text("File type, such as js, py, rust, go, java"),
                "output_mode": choice(
                    "content, files_with_matches (default) or count", "content", "files_with_matches", "count"
                ),
                "-A": number("Lines to show after each match (content only)", 0),
                "-B": number("Lines to show before each match (content only)", 0),
                "-C": number("Lines to show before and after each match (content only)", 0),
                "-n": flag("Show line numbers (content only; default true)"),
                "-i": flag("Ignore case"),
                "multiline": flag("Matches may span lines, and . matches line feeds (default false)"),
                "head_limit": number(f"At most this many lines or files (default {HEAD_LIMIT}; 0 for no limit)", 0),
                "offset": number("Leave out this many lines or files at the start (default 0)", 0),
            },
            "pattern",
        ),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        try:
            pattern = Pattern(tool_input["pattern"], bool(tool_input.get("-i")), bool(tool_input.get("multiline")))
            Globs(_globs(tool_input.get("glob") or ""))
        except (BadRequest, re.error) as error:
            return str(error)
        if not pattern.multiline and re.search(r"(?<!\\)(?:\\\\)*\\n", tool_input["pattern"]):
            return "The pattern has a line feed (\\n), which no single line contains: set multiline to true."
        kind = tool_input.get("type")
        if kind and kind not in TYPES:
            return f"The file type {kind!r} is not known. Use glob instead. Known: {', '.join(sorted(TYPES))}."
        return path_error(tool_input.get("path") or ".")

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        where = tool_input.get("path")
        path = tree_path(context.host, absolute(where, context.cwd) if where else context.cwd)
        with naming(spelled(path)):
            info = await present(context.host, path, context.cwd)
            if info.kind is FileKind.OTHER:
                raise ToolRefused(
                    f"{spelled(path)} is a {info.kind.value}; only files and directories can be searched."
                )
            if info.kind is FileKind.FILE:
                path = context.host.real_path(path)
            request = _request(tool_input, path, info.kind is FileKind.FILE)
            found = await search(context, request, SECONDS)
        return _result(request, found, _prefix(request["root"], context), context)


def _prefix(root: str, context: ToolContext) -> str:
    """Return the prefix of file names in the result: relative in and below the session's directory, else absolute."""
    for directory in (context.cwd, context.host.real_path(context.cwd)):
        below = os.path.relpath(root, directory)
        if below == ".":
            return ""
        if below.split("/")[0] != "..":
            return spelled(below) + "/"
    return spelled(root).rstrip("/") + "/"


def _request(tool_input: Json, path: str, is_file: bool) -> Json:
    both: int = tool_input.get("-C") or 0
    limit = tool_input.get("head_limit")
    return {
        "op": "grep",
        "root": os.path.dirname(path) if is_file else path,
        "file": os.path.basename(path) if is_file else "",
        "pattern": tool_input["pattern"],
        "globs": _globs(tool_input.get("glob") or ""),
        "type": tool_input.get("type") or "",
        "mode": tool_input.get("output_mode") or "files_with_matches",
        "before": min(1000, tool_input.get("-B", both)),
        "after": min(1000, tool_input.get("-A", both)),
        "numbers": tool_input.get("-n", True),
        "ignore_case": bool(tool_input.get("-i")),
        "multiline": bool(tool_input.get("multiline")),
        "limit": HEAD_LIMIT if limit is None else limit,
        "offset": tool_input.get("offset") or 0,
    }


def _globs(text: str) -> list[str]:
    """Split patterns at spaces and commas. A comma inside braces belongs to its pattern."""
    return re.findall(r"(?:\{(?:[^{}\s]|\{[^{}\s]*\})*\}|[^,\s])+", text)


def _result(request: Json, found: Json, prefix: str, context: ToolContext) -> ToolResult:
    mode, items = request["mode"], found["items"]
    lines = [item if item == "--" else prefix + item for item in items]
    notes = _notes(request, found)
    if not lines:
        lines = ["No files found" if mode == "files_with_matches" else "No matches found"]
    elif mode == "files_with_matches":
        lines.insert(0, f"Found {len(items)} file{'s' if len(items) != 1 else ''}")
    elif mode == "count":
        notes.insert(0, f"\nFound {found['matches']} matching lines in {found['files']} files.")
    text = "\n".join([*lines, *notes])
    structured: Json = {"mode": mode, "numFiles": found["files"], "filenames": []}
    if mode == "files_with_matches":
        structured["filenames"] = [prefix + item for item in items[:_MAX_STRUCTURED]]
    else:
        structured.update(content=bounded_text("\n".join(lines)), numLines=len(items))
    if mode == "count":
        structured["numMatches"] = found["matches"]
    if found["more"]:
        structured["appliedLimit"] = request["limit"]
    if request["offset"]:
        structured["appliedOffset"] = request["offset"]
    return ToolResult(limited(text, context.spill, tool_traits.GREP.name), structured=structured)


def _notes(request: Json, found: Json) -> list[str]:
    notes = []
    if found["more"]:
        limit, offset = request["limit"], request["offset"]
        shown = offset + len(found["items"])
        notes.append(f"[Showing results with pagination = limit: {limit}, offset: {offset}; go on with offset={shown}]")
    if found["partial"]:
        where = f", in {found['stopped_in']}" if found["stopped_in"] else ""
        notes.append(f"[The search was stopped after {SECONDS:g} s{where}; there may be more matches]")
    return [*notes, *found["notes"]]
