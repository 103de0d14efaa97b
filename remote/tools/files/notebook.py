"""Jupyter notebooks as the model reads them: the cells and their outputs."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from ccb.tunnel.wire.content.images import MAX_IMAGE_BYTES, image_block, image_trouble, image_type

from ..output import clean

Json = dict[str, Any]

MAX_BYTES = 16 << 20
"""Largest notebook that is read, in bytes."""

_MAX_OUTPUT = 10_000  # characters of one output
_MAX_TEXT = 100_000  # characters of all cells
_MAX_IMAGES = 10


class NotANotebook(Exception):
    """The file does not have the structure of a notebook."""


def notebook_blocks(data: bytes) -> list[Json]:
    """Return Messages API blocks: the cells as text, and the images of their outputs in place. Raise NotANotebook."""
    try:
        book = json.loads(data)
        cells = book["cells"]
        language = book.get("metadata", {}).get("language_info", {}).get("name", "python")
        blocks = [block for number, cell in enumerate(cells) for block in _cell(number, cell, str(language))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotANotebook(str(error)) from None
    return _limited(_merged(blocks)) or [_text("(The notebook has no cells)")]


def _cell(number: int, cell: Json, language: str) -> Iterator[Json]:
    kind = cell.get("cell_type", "code")
    about = f' type="{kind}"' if kind != "code" else f' language="{language}"' if language != "python" else ""
    cell_id = cell.get("id", f"cell-{number}")
    yield _text(f'<cell id="{cell_id}"{about}>{_joined(cell.get("source", ""))}</cell>')
    for output in cell.get("outputs") or []:
        yield from _output(output)


def _output(output: Json) -> Iterator[Json]:
    data = output.get("data") or {}
    if output.get("output_type") == "stream":
        text = _joined(output.get("text", ""))
    elif output.get("output_type") == "error":
        text = "\n".join(str(line) for line in output.get("traceback") or [output.get("evalue", "")])
    else:
        text = _joined(data.get("text/plain", ""))
    if text:
        text = clean(text.encode("utf-8", "replace"))
        if len(text) > _MAX_OUTPUT:
            text = f"{text[:_MAX_OUTPUT]}\n[... output cut: {len(text):,} characters ...]"
        yield _text(f"<output>{text}</output>")
    for media_type in ("image/png", "image/jpeg"):
        if media_type in data:
            yield _image(_joined(data[media_type]))
            return


def _image(encoded: str) -> Json:
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return _text("<output>[an image that cannot be decoded]</output>")
    media_type = image_type(data)
    if media_type is None or len(data) > MAX_IMAGE_BYTES or image_trouble(data):
        return _text(f"<output>[an image of {len(data):,} bytes, not shown]</output>")
    return image_block(data, media_type)


def _merged(blocks: list[Json]) -> list[Json]:
    merged: list[Json] = []
    for block in blocks:
        if merged and block["type"] == merged[-1]["type"] == "text":
            merged[-1] = _text(merged[-1]["text"] + "\n" + block["text"])
        else:
            merged.append(block)
    return merged


def _limited(blocks: list[Json]) -> list[Json]:
    kept: list[Json] = []
    room, images, image_room = _MAX_TEXT, _MAX_IMAGES, MAX_IMAGE_BYTES
    for block in blocks:
        if block["type"] == "image":
            image_room -= len(block["source"]["data"])
            images -= 1
            kept.append(
                block if images >= 0 and image_room >= 0 else _text("[an image, not shown: there are too many]")
            )
            continue
        if len(block["text"]) > room:
            kept.append(
                _text(block["text"][:room] + "\n[... the notebook is cut here; use jq in Bash for the rest ...]")
            )
            break
        kept.append(block)
        room -= len(block["text"])
    return kept


def _joined(value: object) -> str:
    return "".join(str(part) for part in value) if isinstance(value, list) else str(value)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
