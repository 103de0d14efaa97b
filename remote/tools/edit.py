"""Edit, MultiEdit, Write."""

from __future__ import annotations

from ccb.tunnel.wire import tool_traits

from ..system.deadline import in_thread
from ..system.text_encoding import DecodedText, shown, text_of
from .file_access import CHANGED, FileChangingTool, PlannedChange, current, missing, path_refusal, text_error
from .input_schema import flag, object_of, text
from .read import LINE_CUT
from .text_changes import NOT_UTF8, bounded_text, editable, replace_in, structured_patch, whole_or_none
from .tool_contract import Json, ToolContext, ToolDeclaration, ToolRefused, ToolResult

_MAX_EDITS = 1_000  # of one call
_NEAR = 1_000  # characters in which the neighbours of a place are looked for

_PLACE = {
    "old_string": text("The text to replace, exactly as it is in the file, with its indentation"),
    "new_string": text("The text to put in its place (must be different from old_string)"),
    "replace_all": flag("Replace all occurrences of old_string (default false)", default=False),
}
_PATH = text("The absolute path to the file to modify")


class _Replacing(FileChangingTool):
    """Makes the replacements `edits` of its input, or the one that its input is."""

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        edits: list[Json] = tool_input.get("edits", [tool_input])
        if len(edits) > _MAX_EDITS:
            return f"At most {_MAX_EDITS:,} edits can be made in one call."
        reasons = [path_refusal(tool_input["file_path"])]
        for edit in edits:
            old, new = edit["old_string"], edit["new_string"]
            same = "No changes to make: old_string and new_string are exactly the same." if old == new else None
            reasons += [text_error(old), text_error(new), same]
        return next(filter(None, reasons), None)

    async def planned(self, tool_input: Json, context: ToolContext) -> PlannedChange:
        """`about` is the number of replacements."""
        edits: list[Json] = tool_input.get("edits", [tool_input])
        file = await current(context, tool_input["file_path"], merge=True)
        if edits[0]["old_string"] == "" and not file.data:
            data, count = edits[0]["new_string"].encode(), 1
            if len(edits) > 1:
                data, rest = await in_thread(_apply, data, edits[1:])
                count += rest
        elif file.data is None:
            raise await missing(context.host, file.path, context.cwd)
        else:
            data, count = await in_thread(_apply, file.data, edits, file.seen)
        return PlannedChange(file, data, count)


class Edit(_Replacing):
    """Makes one replacement in a file."""

    declaration = ToolDeclaration(
        tool_traits.EDIT,
        "Replaces text in a file.\n"
        "- Read the file in this conversation first; the edit fails otherwise, or when this place has changed since.\n"
        "- old_string must match the file exactly, indentation included. Do not include the line number and the tab "
        "that Read puts in front of each line.\n"
        "- old_string must be unique in the file: give enough of the lines around it, or set replace_all.\n"
        "- An empty old_string creates the file with new_string as its content, if it does not exist.\n"
        "- The mode, the encoding and the line endings of the file are kept.",
        object_of({"file_path": _PATH, **_PLACE}, "file_path", "old_string", "new_string"),
    )

    def result(self, tool_input: Json, done: PlannedChange, notes: str) -> ToolResult:
        replace_all = bool(tool_input.get("replace_all"))
        path = done.file.name
        if done.file.data is None:
            text = f"File created successfully at: {path}"
        elif replace_all:
            text = f"The file {path} has been updated. {done.about} occurrences were replaced."
        else:
            text = f"The file {path} has been updated successfully."
        structured = {
            "filePath": path,
            "oldString": bounded_text(tool_input["old_string"]),
            "newString": bounded_text(tool_input["new_string"]),
            **_outcome(done),
            "replaceAll": replace_all,
        }
        return ToolResult(text + notes, structured=structured)


_EDITS = {
    "type": "array",
    "minItems": 1,
    "description": "The replacements, in order",
    "items": object_of(_PLACE, "old_string", "new_string"),
}


class MultiEdit(_Replacing):
    """Makes several replacements in one file, all or none."""

    declaration = ToolDeclaration(
        tool_traits.MULTI_EDIT,
        "Makes several replacements in one file, in the order given, each on the result of the one before. All are "
        "made or none is. The rules of Edit hold for each of them. With an empty old_string, the first one creates a "
        "new file.",
        object_of({"file_path": _PATH, "edits": _EDITS}, "file_path", "edits"),
    )

    def result(self, tool_input: Json, done: PlannedChange, notes: str) -> ToolResult:
        edits = [
            {
                "old_string": bounded_text(edit["old_string"], 1000),
                "new_string": bounded_text(edit["new_string"], 1000),
                "replace_all": bool(edit.get("replace_all")),
            }
            for edit in tool_input["edits"][:20]
        ]
        structured = {"filePath": done.file.name, "edits": edits, **_outcome(done)}
        verb = "created" if done.file.data is None else "updated"
        noun = "replacement" if done.about == 1 else "replacements"
        text = f"The file {done.file.name} has been {verb}: {done.about} {noun} made.{notes}"
        return ToolResult(text, structured=structured)


def _outcome(done: PlannedChange) -> Json:
    before = shown(done.file.data or b"")
    return {
        "originalFile": whole_or_none(before),
        "structuredPatch": structured_patch(before, shown(done.data)),
        "userModified": False,
    }


def _apply(data: bytes, edits: list[Json], seen: bytes | None = None) -> tuple[bytes, int]:
    """Return the new content and the number of replacements. If the model has `seen` another version, what it replaces
    must stand where it stood. Raise ToolRefused."""
    file = editable(data)
    before = text_of(seen) if seen is not None else None
    total = 0
    for number, edit in enumerate(edits, 1):
        arguments = edit["old_string"], edit["new_string"], bool(edit.get("replace_all"))
        try:
            done = replace_in(file, *arguments)
            if before is not None:
                known = replace_in(before, *arguments)
                if not _stood_there(before.text, known.spans, file.text, done.spans):
                    raise ToolRefused(CHANGED)
                before = DecodedText(known.text, before.codec, before.mark)
        except ToolRefused as refused:
            if seen is not None:
                raise ToolRefused(CHANGED) from None
            if len(edits) == 1:
                raise
            raise ToolRefused(f"No edit was made. Edit {number} of {len(edits)}: {refused}") from None
        file = DecodedText(done.text, file.codec, file.mark)
        total += len(done.spans)
    return file.encoded(file.text), total


def _stood_there(before: str, known: list[tuple[int, int]], text: str, found: list[tuple[int, int]]) -> bool:
    """Return whether each place that was found in a text is as it was in the text before, and still next to one of its
    neighbours: what has changed is elsewhere, or is white space."""
    for then, now in zip(known, found):
        (above, lines, below), (above_now, lines_now, below_now) = _surroundings(before, then), _surroundings(text, now)
        if lines != lines_now or (above != above_now and below != below_now):
            return False
    return len(known) == len(found)


def _surroundings(text: str, place: tuple[int, int]) -> tuple[str, str, str]:
    start, end = text.rfind("\n", 0, place[0]) + 1, text.find("\n", place[1])
    end = end if end >= 0 else len(text)
    above = text[max(0, start - _NEAR) : start].rstrip().rpartition("\n")[2]
    below = text[end : end + _NEAR].lstrip().partition("\n")[0]
    return "".join(above.split()), "".join(text[start:end].split()), "".join(below.split())


_WRITTEN = {"file_path": text("The absolute path to the file to write"), "content": text("The content of the file")}


class Write(FileChangingTool):
    """Creates a file or replaces its whole content."""

    declaration = ToolDeclaration(
        tool_traits.WRITE,
        "Writes a file, replacing the one that is there. Directories that are missing are made.\n"
        "- A file that exists must have been read in this conversation first, and must not have changed since.\n"
        "- A file that exists keeps its encoding, its byte order mark and its line endings (unless the content has "
        "CRLF).\n"
        "- Prefer Edit for changes to an existing file: it sends only what changes.",
        object_of(_WRITTEN, "file_path", "content"),
    )

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return path_refusal(tool_input["file_path"]) or text_error(tool_input["content"])

    async def planned(self, tool_input: Json, context: ToolContext) -> PlannedChange:
        """`about` says what was kept of the file."""
        file = await current(context, tool_input["file_path"])
        content, text = tool_input["content"], editable(file.data or b"")
        if not text.codec:
            raise ToolRefused(f"{NOT_UTF8} Write would lose what Read could not show.")
        for sign, stands_for in ((LINE_CUT, True), ("\ufffd", "\0" in text.text)):
            if stands_for and sign in content and sign not in text.text:
                raise ToolRefused(f"The content has {sign!r}, which stands for what Read could not show. Use Edit.")
        data, kept = await in_thread(_content, content, text)
        return PlannedChange(file, data, kept, is_in_call=file.data is None)

    def result(self, tool_input: Json, done: PlannedChange, notes: str) -> ToolResult:
        file = done.file
        old = None if file.data is None else shown(file.data)
        structured = {
            "type": "create" if old is None else "update",
            "filePath": file.name,
            "content": bounded_text(tool_input["content"]),
            "structuredPatch": [] if old is None else structured_patch(old, shown(done.data)),
            "originalFile": whole_or_none(old),
            "userModified": False,
        }
        if old is None:
            return ToolResult(f"File created successfully at: {file.name}{notes}", structured=structured)
        text = f"The file {file.name} has been updated successfully.{done.about}{notes}"
        return ToolResult(text, structured=structured)


def _content(content: str, text: DecodedText) -> tuple[bytes, str]:
    """Return the bytes that the file gets, encoded and with line ends as its text is, and a sentence about what was
    kept."""
    kept = [text.codec.upper()] if text.codec != "utf-8" else []
    kept += ["byte order mark"] if text.mark else []
    if "\r\n" in text.text and "\n" in content and "\r" not in content:
        content = content.replace("\n", "\r\n")
        kept += ["CRLF line endings"]
    data = text.encoded(content[1:] if text.mark and content.startswith("\ufeff") else content)
    return data, f" Kept as it was: {', '.join(kept)}." if kept else ""
