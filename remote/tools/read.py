"""Read."""

from __future__ import annotations

import codecs
import hashlib
import json

from ccb.tunnel.wire import tool_traits
from ccb.tunnel.wire.prompt_content import (
    DAMAGED,
    MAX_IMAGE_BYTES,
    image_block,
    image_size,
    image_trouble,
    image_type,
    is_whole,
)
from ccb.tunnel.wire.spelling import spelled

from ..system.host import Files
from ..system.regular_files import FileInfo, FileKind, digest_of
from ..system.text_encoding import SNIFF, is_binary, name_of, wide_decoder
from . import file_access, notebook
from .file_access import absolute, host_of, naming, path_error, present
from .input_schema import number, object_of, text
from .text_changes import bounded_text
from .tool_contract import Json, Tool, ToolContext, ToolDeclaration, ToolRefused, ToolResult

MAX_SCALED_BYTES = 64 << 20  # largest image in bytes that is made smaller
_GOOD_PIXELS = 2000  # width and height: the most that a request with many images may have
MAX_LINES = 2000
MAX_LINE = 2000  # how many characters of a line are shown
MAX_CHARS = 100_000  # longest result in characters
MAX_BYTES = 150_000  # longest result in bytes, as JSON in UTF-8, so that its message line stays small

_BLOCK = 1 << 20
_MAX_SCANNED = 256 << 20  # bytes read past the wanted lines to count the others and to know the version
_LINE_BYTES = 4 * MAX_LINE + 16  # bytes of a line that are kept: enough for MAX_LINE characters
LINE_CUT = "… [line cut: it has "
NOT_UTF8 = "?"
"""The encoding of a text that is not in UTF-8 and has no byte order mark."""


class TextRange:
    """The lines of a file from `start` (counted from 1) on. Takes the blocks of the file in order. `total` is the
    number of lines that have ended. Without a `digest`, the file has more. `full`: a size limit ended the result before
    the last line that was asked for. `encoding` is "" for UTF-8. `content` is that of the whole file if it is small."""

    def __init__(self, start: int, limit: int) -> None:
        self.start = start
        self.lines: list[str] = []
        self.total = 0
        self.digest = ""
        self.full = self.done = False
        self.encoding = ""
        self.content: bytes | None = None
        self._limit = limit
        self._line = bytearray()  # the beginning of the line being read, if it is wanted
        self._line_size = 0
        self._room = [MAX_CHARS, MAX_BYTES]

    def feed(self, block: bytes) -> None:
        at, comes_later = 0, self.total + block.count(b"\n") < self.start - 1
        while at < len(block) and not self.done and not comes_later:
            end = block.find(b"\n", at)
            self._add(block[at : end if end >= 0 else len(block)])
            if end < 0:
                return
            self._end_line()
            at = end + 1
        ends = block.count(b"\n", at)  # the other lines are only counted: there may be a million
        self.total += ends
        self._line_size = len(block) - block.rfind(b"\n") - 1 if ends else self._line_size + len(block) - at

    def finish(self, digest: str) -> None:
        if self._line_size:
            self._end_line()
        self.digest = digest

    def _add(self, part: bytes) -> None:
        if self.total >= self.start - 1:
            self._line += part[: max(0, _LINE_BYTES - len(self._line))]
        self._line_size += len(part)

    def _end_line(self) -> None:
        self.total += 1
        if self.total >= self.start and not self.done:
            self._take()
        self._line.clear()
        self._line_size = 0

    def _take(self) -> None:
        cut = self._line_size > len(self._line)
        text = self._line.decode("utf-8", "replace").rstrip("\r")
        text = text.removeprefix("\ufeff") if self.total == 1 else text
        if cut or len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}{LINE_CUT}{self._line_size:,} bytes]"
        size = len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))
        more = len(str(self.total)) + 2
        room = [left - taken - more for left, taken in zip(self._room, (len(text), size))]
        if self.lines and min(room) < 0:
            self.done = self.full = True
            return
        self._room = room
        self.lines.append(text)
        self.done = len(self.lines) >= self._limit


async def read_range(host: Files, path: str, offset: int, limit: int) -> TextRange:
    """Return `limit` lines from line `offset` on (counted from 1). Raise ToolRefused, NotAFile or OSError."""
    sha = hashlib.sha256()
    found, position = TextRange(offset, limit), 0
    wide: codecs.IncrementalDecoder | None = None
    strict = codecs.getincrementaldecoder("utf-8")()
    while position < _MAX_SCANNED or not found.done:
        block = await host.read(path, position, _BLOCK)
        if position == 0:
            found.content = block if len(block) < _BLOCK else None
            if is_binary(block, whole=len(block) < _BLOCK):
                hint = file_access.binary_hint(block[:SNIFF])
                raise ToolRefused(f"{spelled(path)} is a binary file and cannot be shown as text. {hint}")
            wide = wide_decoder(block, whole=len(block) < _BLOCK)
            found.encoding = name_of(block) if wide else ""
        sha.update(block)
        position += len(block)
        if wide is None and not found.encoding:
            try:
                strict.decode(block, not block)
            except UnicodeDecodeError:
                found.encoding = NOT_UTF8
        found.feed(wide.decode(block, not block).encode("utf-8") if wide else block)
        if not block:
            found.finish(sha.hexdigest())
            break
    return found


_HOW = {FileKind.DIRECTORY: ". Use LS to list it, or Glob to find files in it"}
_HEAD = 16  # bytes that tell the kind of a file
_WHOLE = (1, MAX_LINES)
_NOTE_CHARS = 2_000  # room for the notes around the lines
_NOT_UTF8 = (
    "The file is not in UTF-8, and nothing tells in which encoding it is: what is not ASCII is shown as \ufffd. "
    "In Bash, `iconv -f ENCODING -t UTF-8` shows it. Edit changes only ASCII text in it, and Write does not replace it."
)
_IN_UTF16 = "The file is in {}, as its byte order mark says. Edit and Write keep that."

_READ_SCHEMA = object_of(
    {
        "file_path": text("The absolute path to the file to read"),
        "offset": number("The line number to start at (from 1)", 0),
        "limit": number("The number of lines to read", 1),
        "pages": text("For a PDF: a page or a range, such as 3 or 1-5 (at most 20 pages)"),
    },
    "file_path",
)

_READ_DESCRIPTION = (
    "Reads a file.\n"
    f"- Without offset and limit it gives the first {MAX_LINES} lines. For a long file, give the range you need.\n"
    "- Each line comes with its number and a tab in front: they are not part of the file. Lines over "
    f"{MAX_LINE} characters are cut.\n"
    "- Images (PNG, JPEG, GIF, WebP) are shown as images, scaled if they are large; Jupyter notebooks with their cells "
    "and outputs.\n"
    "- PDF documents are shown whole, or the given pages of them; a long one needs pages.\n"
    "- It reads files only: use LS for a directory."
)


class Read(Tool):
    """Shows a file and remembers which version was shown."""

    declaration = ToolDeclaration(tool_traits.READ, _READ_DESCRIPTION, _READ_SCHEMA, MAX_CHARS + _NOTE_CHARS)

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return path_error(tool_input["file_path"])

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        path = absolute(tool_input["file_path"], context.cwd)
        name = spelled(path)
        wanted = (max(1, tool_input.get("offset") or 1), tool_input.get("limit") or MAX_LINES)
        with naming(name):
            info = await present(host_of(context), path, context.cwd)
            if info.kind is not FileKind.FILE:
                raise ToolRefused(f"{name} is a {info.kind.value}; only files can be read{_HOW.get(info.kind, '')}.")
            seen = context.files.get(context.host.real_path(path))
            is_shown = seen is not None and wanted in seen.ranges and seen.is_untouched(info)
            if is_shown and "pages" not in tool_input:
                return ToolResult(
                    "The file is unchanged since you last read this range: the earlier result is still current.",
                    structured={"type": "file_unchanged", "file": {"filePath": name}},
                )
            head = await host_of(context).read(path, 0, _HEAD)
            media_type = image_type(head)
            if media_type is not None:
                return await _image(path, info, media_type, context)
            if head.startswith(b"%PDF-"):
                return await _pdf(path, info, tool_input.get("pages"), context)
            if path.endswith(".ipynb") and "offset" not in tool_input and "limit" not in tool_input:
                return await _notebook(path, info, context)
            return _text(path, info, wanted, await read_range(host_of(context), path, *wanted), context)


def _text(path: str, info: FileInfo, wanted: tuple[int, int], found: TextRange, context: ToolContext) -> ToolResult:
    if found.total and not found.lines:
        raise ToolRefused(f"{spelled(path)} has only {found.total:,} lines; there is no line {found.start:,}.")
    context.files.read(context.host.real_path(path), found.digest, info, wanted, found.content)
    file: Json = {
        "filePath": spelled(path),
        "content": bounded_text("\n".join(found.lines)),
        "numLines": len(found.lines),
        "startLine": found.start,
        "totalLines": found.total,
    }
    structured = {"type": "text", "file": file}
    if not found.total:
        return ToolResult(f"(The file {spelled(path)} exists, but it is empty)", structured=structured)
    text = "\n".join(f"{number}\t{line}" for number, line in enumerate(found.lines, found.start))
    following = found.start + len(found.lines)
    if following <= found.total:
        total = f"{found.total:,} lines" if found.digest else f"more than {found.total:,} lines"
        why = "the result is full" if found.full else "the range ends"
        text += f"\n\n[{why} at line {following - 1} of {total}; go on with offset={following}]"
    if found.encoding:
        text += f"\n\n[{_NOT_UTF8 if found.encoding == NOT_UTF8 else _IN_UTF16.format(found.encoding)}]"
    return ToolResult(text, structured=structured)


async def _image(path: str, info: FileInfo, media_type: str, context: ToolContext) -> ToolResult:
    name = spelled(path)
    data = await host_of(context).read(path, 0, MAX_SCALED_BYTES + 1)
    size = image_size(data)
    why = f"it has more than {MAX_SCALED_BYTES:,} bytes" if len(data) > MAX_SCALED_BYTES else DAMAGED
    if why is not DAMAGED or size is None or not is_whole(data):
        raise ToolRefused(f"{name} is an image that cannot be shown: {why}. Bash can tell more (`file`, `identify`).")
    shown, note = data, ""
    if len(data) > MAX_IMAGE_BYTES or max(size) > _GOOD_PIXELS:
        from . import documents

        smaller = await documents.scaled(context, path, media_type, MAX_IMAGE_BYTES)
        if smaller is not None and not image_trouble(smaller):
            shown, media_type = smaller, image_type(smaller) or media_type
            now = image_size(smaller) or size
            note = f"(The image has {size[0]} x {size[1]} pixels; it is shown with {now[0]} x {now[1]}.)"
    trouble = image_trouble(shown)
    if not trouble and len(shown) > MAX_IMAGE_BYTES:
        trouble = f"it has {len(shown):,} bytes, and at most {MAX_IMAGE_BYTES:,} can be shown"
    if trouble:
        raise ToolRefused(
            f"{name} is an image that cannot be shown: {trouble}, and nothing on this host can make it smaller. "
            "Install ImageMagick or Pillow there, and read it again."
        )
    context.files.read(context.host.real_path(path), digest_of(data), info, _WHOLE)
    file: Json = {"filePath": name, "type": media_type, "originalSize": len(data)}
    blocks = [image_block(shown, media_type)]
    if note:
        file["dimensions"] = {"originalWidth": size[0], "originalHeight": size[1]}
        blocks.append({"type": "text", "text": note})
    return ToolResult(blocks, structured={"type": "image", "file": file})


async def _pdf(path: str, info: FileInfo, pages: str | None, context: ToolContext) -> ToolResult:
    from . import documents

    name = spelled(path)
    file: Json = {"filePath": name, "originalSize": info.size}
    if pages is not None:
        blocks = await documents.page_blocks(context, path, pages)
        return ToolResult(blocks, structured={"type": "parts", "file": {**file, "count": len(blocks)}})
    if info.size > documents.MAX_BYTES:
        raise ToolRefused(f"{name} has {info.size:,} bytes, too many to be shown whole. Give pages, such as 1-10.")
    data = await host_of(context).read(path, 0, documents.MAX_BYTES + 1)
    printed = await documents.printed_by_ours(context, "pages", path)
    count = int(printed) if printed is not None else -1
    if count < 0:
        raise ToolRefused(f"The pages of {name} cannot be counted: it unpacks to too much. Give pages, such as 1-10.")
    if count > documents.MAX_PAGES or len(data) > documents.MAX_BYTES:
        raise ToolRefused(f"{name} has {count:,} pages, too many to be shown whole. Give pages, such as 1-10.")
    if b"%%EOF" not in data[-2048:]:
        raise ToolRefused(
            f"{name} is a PDF that is damaged or not complete. Bash can tell more (`pdfinfo`, `pdftotext`)."
        )
    context.files.read(context.host.real_path(path), digest_of(data), info, _WHOLE)
    block = {**image_block(data, "application/pdf"), "type": "document"}
    return ToolResult([block], structured={"type": "pdf", "file": file})


async def _notebook(path: str, info: FileInfo, context: ToolContext) -> ToolResult:
    name = spelled(path)
    if info.size > notebook.MAX_BYTES:
        raise ToolRefused(f"{name} has {info.size:,} bytes, too many for a notebook; use jq in Bash for a part of it.")
    data = await host_of(context).read(path, 0, notebook.MAX_BYTES + 1)
    digest = digest_of(data)
    blocks = await notebook.notebook_blocks(context, path, digest)
    context.files.read(context.host.real_path(path), digest, info, _WHOLE, data)
    texts = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    structured = {"type": "notebook", "file": {"filePath": name, "content": bounded_text(texts)}}
    if all(block["type"] == "text" for block in blocks):
        return ToolResult(texts, structured=structured)
    return ToolResult(blocks, structured=structured)
