"""The programs that take documents apart, in processes of their own: small documents can take long and much memory."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import zlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

Json = dict[str, Any]
Piece = list[Any]

MAX_TEXT = 100_000  # most characters of all cells
MAX_OUTPUT = 10_000  # most characters of one output, without the escape sequences that its process leaves to the worker

_MAX_RAW = 4 * MAX_OUTPUT
_MAX_IMAGES = 3_932_160  # characters of base64 of all images
_EACH = 10  # characters that a piece counts for, at least
_PAGE = re.compile(rb"/Type\s{0,100}/Page(?![A-Za-z])")
_OBJECTS, _STREAM, _END = b"/ObjStm", b"stream", b"endstream"
_HEAD = 400  # bytes between the type of a stream and its beginning
_MAX_UNPACKED = 64 << 20
_PIECE = 1 << 20


def pieces(data: bytes) -> list[Piece]:
    """Return `["cell", TEXT]`, `["output", TEXT, CHARACTERS]`, `["image", BASE64]`, and at the limits `["images"]` for
    an image that is not shown and `["cut"]`. Raise ValueError, KeyError, TypeError or AttributeError."""
    book = json.loads(data)
    language = str(book.get("metadata", {}).get("language_info", {}).get("name", "python"))
    found: list[Piece] = []
    room, image_room = MAX_TEXT, _MAX_IMAGES
    for number, cell in enumerate(book["cells"]):
        kind = cell.get("cell_type", "code")
        about = f' type="{kind}"' if kind != "code" else f' language="{language}"' if language != "python" else ""
        source = f'<cell id="{cell.get("id", f"cell-{number}")}"{about}>{_joined(cell.get("source", ""))}'
        of_outputs = chain.from_iterable(map(_output, cell.get("outputs") or []))
        for kind, text, *size in chain([["cell", source[: MAX_TEXT + 1] + "</cell>"]], of_outputs):
            if kind == "image":
                image_room -= len(text)
                found.append([kind, text] if image_room >= 0 else ["images"])
            else:
                found.append([kind, text, *size])
                room -= min(len(text), MAX_OUTPUT) if kind == "output" else len(text)
            room -= _EACH
            if room < 0:
                return [*found, ["cut"]]
    return found


def _output(output: Json) -> Iterator[Piece]:
    data = output.get("data") or {}
    if output.get("output_type") == "stream":
        text = _joined(output.get("text", ""))
    elif output.get("output_type") == "error":
        text = "\n".join(str(line) for line in output.get("traceback") or [output.get("evalue", "")])
    else:
        text = _joined(data.get("text/plain", ""))
    if text:
        yield ["output", text[:_MAX_RAW], len(text)]
    for media_type in ("image/png", "image/jpeg"):
        if media_type in data:
            yield ["image", _joined(data[media_type])]
            return


def _joined(value: object) -> str:
    return "".join(str(part) for part in value) if isinstance(value, list) else str(value)


def count_pages(data: bytes) -> int:
    """Return the number of pages. No byte is unpacked twice, so that the time is limited by the size."""
    count, room = sum(1 for _ in _PAGE.finditer(data)), _MAX_UNPACKED
    view = memoryview(data)
    at = data.find(_OBJECTS)
    while at >= 0:
        begin = data.find(_STREAM, at, at + _HEAD + len(_STREAM))
        end = data.find(_END, begin) if begin >= 0 else at
        if end < 0:
            end = len(data)
        if begin >= 0:
            begin += len(_STREAM) + (2 if data[begin + len(_STREAM) : begin + len(_STREAM) + 1] == b"\r" else 1)
            unpacked, cost = _unpacked(view[begin:end], room)
            room -= cost
            if room <= 0:
                return -1
            count += sum(1 for _ in _PAGE.finditer(unpacked))
        at = data.find(_OBJECTS, max(end, at + len(_OBJECTS)))
    return count


def _unpacked(packed: memoryview, most: int) -> tuple[bytes, int]:
    """Return what a stream holds, or what could be read before a damage, and how many bytes were unpacked at most."""
    unpack, found = zlib.decompressobj(), bytearray()
    left: memoryview | bytes = packed
    try:
        while left and len(found) < most and not unpack.eof:
            found += unpack.decompress(left, _PIECE)
            left = unpack.unconsumed_tail
    except zlib.error:
        return bytes(found), len(found) + _PIECE
    return bytes(found), len(found)


def main(what: str, path: str) -> None:
    """Print the number of `pages` of a PDF, 0 if it cannot be told, -1 if it unpacks to too much; else the pieces
    of a Jupyter notebook and its SHA-256, or what is wrong with it, as JSON."""
    with open(path, "rb") as file:
        data = file.read()
    if what == "pages":
        sys.stdout.write(str(count_pages(data)))  # noqa: TID251 - the answer of a program
        return
    answer: Json
    try:
        answer = {"digest": hashlib.sha256(data).hexdigest(), "pieces": pieces(data)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        answer = {"error": str(error)[:300]}
    sys.stdout.write(json.dumps(answer))  # noqa: TID251 - the answer of a program


if __name__ == "__main__":
    main(*sys.argv[1:])
