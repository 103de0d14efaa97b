"""What a file is that is no text: images for the model, and names for everything else."""

from __future__ import annotations

import base64
from typing import Any

Json = dict[str, Any]

MOST_IMAGE_BYTES = 3_932_160
"""Largest image in bytes: 3.75 MiB, which base64 makes the 5 MB that the API takes."""


def image_type(head: bytes) -> str | None:
    """The media type of an image that models take, by its first bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def image_block(data: bytes, media_type: str) -> Json:
    """The Messages API block of an image."""
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded}}


def binary_hint(head: bytes) -> str:
    """What a binary file seems to be, and what to do about it."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "It looks like UTF-16 text: `iconv -f UTF-16 -t UTF-8` in Bash shows it."
    if head.startswith(b"%PDF-"):
        return "It is a PDF: `pdftotext FILE -` in Bash shows its text, if the host has it."
    if head.startswith(b"\x7fELF"):
        return "It is an ELF executable or library: use `file`, `readelf` or `strings` in Bash."
    if head.startswith(b"PK\x03\x04"):
        return "It is a ZIP archive (or an office document): `unzip -l` in Bash lists it."
    if head.startswith(b"\x1f\x8b"):
        return "It is gzip data: `zcat` or `tar -tzf` in Bash shows it."
    if head.startswith(b"SQLite format 3"):
        return "It is an SQLite database: `sqlite3` in Bash reads it."
    return "Use a suitable program in Bash, such as `file`, `strings` or `xxd`, to look into it."
