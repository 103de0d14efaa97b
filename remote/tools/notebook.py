"""Notebooks read and edited."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from typing import Any

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.prompt_content import MAX_IMAGE_BYTES, image_block, image_trouble, image_type
from ccb.tunnel.wire.spelling import spelled

from ..system.deadline import in_thread
from ..system.text_encoding import DecodedText, shown, text_of
from .document_programs import MAX_OUTPUT
from .documents import printed_by_ours
from .file_access import Current, FileChangingTool, PlannedChange, current, missing, path_refusal, text_error
from .input_schema import choice, object_of, text
from .output import clean
from .text_changes import bounded_text, whole_or_none
from .tool_contract import Json, ToolContext, ToolDeclaration, ToolRefused, ToolResult

MAX_BYTES = 16 << 20  # largest notebook that is read, in bytes

_CUT = "[... the notebook is cut here; use jq in Bash for the rest ...]"


async def notebook_blocks(context: ToolContext, path: str, digest: str) -> list[Json]:
    """Return Messages API blocks: the cells as text, with images in place. `digest`: the file's. Raise ToolRefused."""
    printed = await printed_by_ours(context, "cells", path)
    answer: Json = {"error": "it takes too long or too much memory to be parsed"}
    answer = json.loads(printed) if printed is not None else answer
    why = answer.get("error") or ("it was changed while it was read" if answer["digest"] != digest else "")
    if why:
        raise ToolRefused(f"{spelled(path)} is not a valid notebook ({why}). Read it as text with offset and limit.")
    return _blocks(answer["pieces"]) or [_text("(The notebook has no cells)")]


def _blocks(pieces: list[list[Any]]) -> list[Json]:
    """Return the blocks of what the program has printed, which holds the limits."""
    blocks: list[Json] = []
    for kind, *values in pieces:
        block = _image(values[0]) if kind == "image" else _text(_shown(kind, *values))
        if blocks and blocks[-1]["type"] == block["type"] == "text":
            blocks[-1]["text"] += f"\n{block['text']}"
        else:
            blocks.append(block)
    return blocks


def _shown(kind: str, text: str = "", size: int = 0) -> str:
    if kind == "output":
        text = clean(text.encode("utf-8", "replace"))
        if size > MAX_OUTPUT:
            text = f"{text[:MAX_OUTPUT]}\n[... output cut: {size:,} characters ...]"
        return f"<output>{text}</output>"
    if kind == "images":
        return "[an image, not shown: there are too many]"
    return text if kind == "cell" else _CUT


def _image(encoded: str) -> Json:
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return _text("<output>[an image that cannot be decoded]</output>")
    media_type = image_type(data)
    if media_type is None or len(data) > MAX_IMAGE_BYTES or image_trouble(data):
        return _text(f"<output>[an image of {len(data):,} bytes, not shown]</output>")
    return image_block(data, media_type)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


_MAX_VALUES = 2_000_000  # of a notebook; a list or an object counts ten times
_REPLACE, _INSERT, _DELETE = "replace", "insert", "delete"
_SCHEMA = object_of(
    {
        "notebook_path": text("The absolute path to the notebook (.ipynb)"),
        "cell_id": text("The id of the cell, as Read shows it; an inserted cell goes after it"),
        "new_source": text("The new source of the cell"),
        "cell_type": choice("Needed for insert", "code", "markdown"),
        "edit_mode": choice("Default: replace", _REPLACE, _INSERT, _DELETE),
    },
    "notebook_path",
    "new_source",
)
_DESCRIPTION = (
    "Changes one cell of a Jupyter notebook.\n"
    "- Read the notebook in this conversation first; the call fails otherwise, or when the file has changed since.\n"
    "- edit_mode is replace (default), insert (after cell_id, or at the beginning) or delete.\n"
    "- Replacing a code cell clears its outputs."
)


class NotebookEdit(FileChangingTool):
    """Changes one cell, in one atomic step."""

    declaration = ToolDeclaration(tool_traits.NOTEBOOK_EDIT, _DESCRIPTION, _SCHEMA)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        path, mode = tool_input["notebook_path"], tool_input.get("edit_mode", _REPLACE)
        if not path.endswith(".ipynb"):
            return f"{path} is not a notebook (.ipynb). Use Edit for other files."
        if mode != _INSERT and not tool_input.get("cell_id"):
            return f"cell_id is needed to {mode} a cell."
        if mode == _INSERT and not tool_input.get("cell_type"):
            return "cell_type is needed to insert a cell."
        return path_refusal(path) or text_error(tool_input["new_source"])

    async def planned(self, tool_input: Json, context: ToolContext) -> PlannedChange:
        """`about` are the facts of the changed cell for the result."""
        file = await current(context, tool_input["notebook_path"])
        if file.data is None:
            raise await missing(context.host, file.path, context.cwd)
        data, cell = await in_thread(_edited, file, tool_input)
        return PlannedChange(file, data, cell)

    def result(self, tool_input: Json, done: PlannedChange, notes: str) -> ToolResult:
        mode = tool_input.get("edit_mode", _REPLACE)
        verb = {_REPLACE: "Updated", _INSERT: "Inserted", _DELETE: "Deleted"}[mode]
        structured = {
            "new_source": bounded_text(tool_input["new_source"]),
            **done.about,
            "edit_mode": mode,
            "error": "",
            "notebook_path": done.file.name,
            "original_file": whole_or_none(shown(done.file.data or b"")),
            "updated_file": whole_or_none(shown(done.data)),
        }
        return ToolResult(f"{verb} cell {done.about['cell_id']} of {done.file.name}.{notes}", structured=structured)


def _edited(file: Current, tool_input: Json) -> tuple[bytes, Json]:
    data = file.data or b""
    if len(data) > MAX_BYTES or 10 * (data.count(b"[") + data.count(b"{")) + data.count(b",") > _MAX_VALUES:
        raise ToolRefused(f"{file.name} is too large to be changed cell by cell. Use a program in Bash, such as jq.")
    text = text_of(data)
    if text is None or not text.codec:
        raise ToolRefused(f"{file.name} is not a valid notebook: it is not in UTF-8.")
    try:
        book = json.loads(text.text)
        cells: list[Json] = book["cells"]
        if not all(isinstance(each, dict) for each in cells):
            raise TypeError("a cell is no object")
        language = str(book.get("metadata", {}).get("language_info", {}).get("name", "python"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ToolRefused(f"{file.name} is not a valid notebook ({error}).") from None
    mode, wanted = tool_input.get("edit_mode", _REPLACE), tool_input.get("cell_id") or ""
    place = _place(cells, wanted) if wanted else -1
    if mode == _INSERT:
        place += 1
        cells.insert(place, _new_cell(book, tool_input["cell_type"], tool_input["new_source"]))
        cell = cells[place]
    elif mode == _DELETE:
        cell = cells.pop(place)
    else:
        cell = cells[place]
        _fill(cell, {"cell_type": "code", **cell, **tool_input}["cell_type"], tool_input["new_source"])
    name = str(cell.get("id") or (wanted if mode != _INSERT else f"cell-{place}"))
    about = {"cell_id": name, "cell_type": str(cell.get("cell_type", "code")), "language": language}
    return _printed(book, text), about


def _printed(book: Json, old: DecodedText) -> bytes:
    first_key = re.match(r"[^\n]*\n([ \t]*)", old.text)
    indent = (first_key[1] or " ") if first_key else None
    text = json.dumps(book, ensure_ascii=False, indent=indent)
    if re.search("[\ud800-\udfff]", text):  # a lone surrogate, which was an escape
        text = json.dumps(book, indent=indent)
    text += "\n" if old.text.endswith("\n") else ""
    return old.encoded(text.replace("\n", "\r\n") if "\r\n" in old.text else text)


def _place(cells: list[Json], wanted: str) -> int:
    """Return the index of a cell: by its id, or `cell-N` for a cell without one, as Read shows them."""
    names = [cell.get("id", f"cell-{place}") for place, cell in enumerate(cells)]
    if wanted not in names:
        raise ToolRefused(f"The notebook has no cell with the id {wanted!r}. Read it again to see the ids.")
    return names.index(wanted)


def _fill(cell: Json, kind: str, source: str) -> None:
    cell["cell_type"], cell["source"] = kind, source.splitlines(keepends=True)
    if kind == "code":
        cell.update(execution_count=None, outputs=[])
    else:
        cell.pop("execution_count", None)
        cell.pop("outputs", None)


def _new_cell(book: Json, kind: str, source: str) -> Json:
    cell: Json = {"cell_type": kind, "metadata": {}, "source": []}
    major, minor = book.get("nbformat"), book.get("nbformat_minor")
    if isinstance(major, int) and isinstance(minor, int) and (major, minor) >= (4, 5):
        cell["id"] = os.urandom(4).hex()
    _fill(cell, kind, source)
    return cell
