"""Files that are not text: images that are made smaller for the model, and hints about what other files are."""

from __future__ import annotations

from ccb.tunnel.wire.content.images import MAX_IMAGE_BYTES, image_size

MAX_SCALED_BYTES = 64 << 20
"""Largest image in bytes that is made smaller."""

GOOD_PIXELS = 2000
"""Width and height over which an image is made smaller: the most that a request with many images may have."""

TOO_LARGE = f"it has more than {MAX_SCALED_BYTES:,} bytes"


def wants_scaling(data: bytes) -> bool:
    """Return whether an image should be made smaller before the model sees it."""
    return len(data) > MAX_IMAGE_BYTES or max(image_size(data) or (0, 0)) > GOOD_PIXELS


def binary_hint(head: bytes) -> str:
    """Return a sentence about what a binary file seems to be, and how to read it."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "It looks like damaged UTF-16 text: `iconv -c -f UTF-16 -t UTF-8` in Bash shows what it can."
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
