"""Jupyter notebooks as the model reads them: the cells and their outputs."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from ccb.tunnel.wire.content.images import MAX_IMAGE_BYTES, image_block, image_trouble, image_type

from ..contract import ToolContext
from ..documents.notebook_cells import MAX_OUTPUT, MAX_TEXT
from ..documents.programs import printed_by_ours
from ..output import clean

Json = dict[str, Any]

MAX_BYTES = 16 << 20
"""Largest notebook that is read, in bytes."""

_CUT = "\n[... the notebook is cut here; use jq in Bash for the rest ...]"


class NotANotebook(Exception):
    """The file does not have the structure of a notebook, or cannot be taken apart."""


async def notebook_blocks(context: ToolContext, path: str, digest: str) -> list[Json]:
    """Return Messages API blocks: the cells as text, and the images of their outputs in place. `digest` is that of the
    file. Raise NotANotebook."""
    printed = await printed_by_ours(context, "notebook_cells", path)
    if printed is None:
        raise NotANotebook("it takes too long or too much memory to be parsed")
    answer = json.loads(printed)
    if "error" in answer:
        raise NotANotebook(answer["error"])
    if answer["digest"] != digest:
        raise NotANotebook("it was changed while it was read")
    return _blocks(answer["pieces"]) or [_text("(The notebook has no cells)")]


def _blocks(pieces: list[list[Any]]) -> list[Json]:
    blocks: list[Json] = []
    texts: list[str] = []
    room, image_room = MAX_TEXT, MAX_IMAGE_BYTES
    for kind, *values in pieces:
        block = _image(values[0]) if kind == "image" else _text(_shown(kind, *values))
        if block["type"] == "image":
            image_room -= len(block["source"]["data"])
            if image_room >= 0:
                blocks += [*_joined(texts), block]
                texts = []
                continue
            block = _text(_shown("images"))
        text = block["text"]
        if len(text) > room:
            texts.append(text[:room] + _CUT)
            break
        room -= len(text) + 1
        texts.append(text)
    return [*blocks, *_joined(texts)]


def _shown(kind: str, text: str = "", size: int = 0) -> str:
    if kind == "output":
        text = clean(text.encode("utf-8", "replace"))
        if size > MAX_OUTPUT:
            text = f"{text[:MAX_OUTPUT]}\n[... output cut: {size:,} characters ...]"
        return f"<output>{text}</output>"
    if kind == "images":
        return "[an image, not shown: there are too many]"
    return text if kind == "cell" else _CUT[1:]


def _image(encoded: str) -> Json:
    try:
        data = base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return _text("<output>[an image that cannot be decoded]</output>")
    media_type = image_type(data)
    if media_type is None or len(data) > MAX_IMAGE_BYTES or image_trouble(data):
        return _text(f"<output>[an image of {len(data):,} bytes, not shown]</output>")
    return image_block(data, media_type)


def _joined(texts: list[str]) -> list[Json]:
    return [_text("\n".join(texts))] if texts else []


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
