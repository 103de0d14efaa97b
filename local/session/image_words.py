"""What an image is, in words: its kind, its pixels and its size."""

from __future__ import annotations

import base64

from ccb.tunnel.wire.content.images import image_size, image_type
from ccb.tunnel.wire.frames import Json

_HEAD_CHARS = 128 * 1024
"""How much of the base64 text is decoded: the pixels of a JPEG image are named behind its notes."""


def image_words(block: Json) -> str:
    """Return an image block in words, such as `PNG 640x480 · 12 KB`. Its data is not trusted and not unpacked."""
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    if not isinstance(data, str):
        return "[image]"
    try:
        head = base64.b64decode(data[:_HEAD_CHARS])
    except ValueError:
        return "[image]"
    media_type, pixels = image_type(head[:16]), image_size(head)
    if media_type is None:
        return "[image]"
    kind = {"image/jpeg": "JPEG", "image/webp": "WebP"}.get(media_type, media_type.rpartition("/")[2].upper())
    shown = f" {pixels[0]}x{pixels[1]}" if pixels else ""
    size = len(data) * 3 // 4
    return f"{kind}{shown} · {f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{max(1, round(size / 1000))} KB'}"
