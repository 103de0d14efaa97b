"""Results of tools as text: each image in words, and its data as it came."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from ccb.tunnel.wire.content.images import image_size, image_type
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks

_HEAD_CHARS = 128 * 1024
"""How much of the base64 text is decoded: the pixels of a JPEG image are named behind its notes."""


@dataclass(frozen=True, eq=False)
class PictureData:
    """An image of a result, in base64. It is not trusted and not unpacked."""

    data: str = field(repr=False)

    @property
    def head(self) -> bytes:
        """The first bytes, which name kind and pixels; none of what is no base64."""
        try:
            return base64.b64decode(self.data[:_HEAD_CHARS])
        except ValueError:
            return b""


def picture_data(block: Json) -> PictureData | None:
    """Return the image of an image block, None if it holds no data."""
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    return PictureData(data) if isinstance(data, str) else None


def pictures_of(blocks: Iterable[Json]) -> tuple[PictureData, ...]:
    """Return the images among the blocks of a message."""
    found = (picture_data(each) for each in blocks if each.get("type") == "image")
    return tuple(each for each in found if each is not None)


def result_text(result: Json) -> str:
    """Return the text of a `tool_result` block. An image appears in words, other blocks as `[document]` and the
    like."""
    return "\n".join(map(_block_text, as_blocks(result.get("content"))))


def _block_text(block: Json) -> str:
    kind = block.get("type", "block")
    if kind == "image":
        return image_words(block)
    return str(block.get("text", "")) if kind == "text" else f"[{kind}]"


def image_words(block: Json) -> str:
    """Return an image block in words, such as `PNG 640x480 · 12 KB`. Its data is not trusted and not unpacked."""
    picture = picture_data(block)
    if picture is None:
        return "[image]"
    head = picture.head
    media_type, pixels = image_type(head[:16]), image_size(head)
    if media_type is None:
        return "[image]"
    kind = {"image/jpeg": "JPEG", "image/webp": "WebP"}.get(media_type, media_type.rpartition("/")[2].upper())
    shown = f" {pixels[0]}x{pixels[1]}" if pixels else ""
    size = len(picture.data) * 3 // 4
    return f"{kind}{shown} · {f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{max(1, round(size / 1000))} KB'}"
