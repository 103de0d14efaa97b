"""Images and files inside prompts."""

from __future__ import annotations

import base64
import struct

from .frames import Json

_START = '<attached-file name="'
_END = "</attached-file>"


def attached_file(name: str, text: str) -> Json:
    """`name` must not hold a quote or a line break."""
    return {"type": "text", "text": f'{_START}{name}">\n{text}\n{_END}'}


def is_attached_file(block: Json) -> bool:
    text = block.get("text")
    return isinstance(text, str) and text.startswith(_START) and text.endswith(_END)


MAX_IMAGE_BYTES = 3_932_160  # largest image in bytes: 3.75 MiB, which base64 makes the 5 MB that the API takes
MAX_PIXELS = 8000  # largest width and height of an image that the API takes
_MAX_SEGMENTS = 10_000  # of a JPEG before its size, with bytes of padding
DAMAGED = "it is damaged or not complete"


def image_type(head: bytes) -> str | None:
    """Return the media type of an image that the API takes, by its first bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_trouble(data: bytes) -> str:
    """Return why the API would refuse the image, and with it every later request of the session; "" if it would not."""
    size = image_size(data)
    if size is None or not is_whole(data):
        return DAMAGED
    width, height = size
    if not (width and height) or max(width, height) > MAX_PIXELS:
        return f"it has {width:,} x {height:,} pixels, and at most {MAX_PIXELS:,} each way can be shown"
    return ""


def image_size(data: bytes) -> tuple[int, int] | None:
    try:
        if data.startswith(b"\x89PNG"):
            return struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" else None
        if data.startswith(b"GIF8"):
            return struct.unpack("<HH", data[6:10])
        if data.startswith(b"RIFF"):
            return _webp_size(data)
        return _jpeg_size(data)
    except (struct.error, IndexError):
        return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = struct.unpack("<I", data[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def is_whole(data: bytes) -> bool:
    """Return whether the image has its end marker; other bytes may follow."""
    if data.startswith(b"RIFF"):
        return len(data) >= 8 + int(struct.unpack("<I", data[4:8])[0])
    end = b"IEND" if data.startswith(b"\x89PNG") else b"\xff\xd9" if data.startswith(b"\xff\xd8") else b"\x3b"
    return end in data[16:]


def image_block(data: bytes, media_type: str) -> Json:
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}
