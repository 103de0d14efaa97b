"""Scales an image to what the model takes."""

from __future__ import annotations

import io

from ccb.tunnel.wire.content.images import image_type

from .decoding import NotDecoded, decoded

GOOD_PIXELS = 2_000
"""Width and height to which images are scaled: the most that a request with many images may have."""

_TRIES = ((GOOD_PIXELS, "PNG"), (GOOD_PIXELS, "JPEG"), (1_000, "JPEG"))
_QUALITY = 80


def scaled(data: bytes, most_bytes: int) -> bytes:
    """Return a PNG or JPEG image of at most GOOD_PIXELS each way and `most_bytes`. Raise NotDecoded. Blocks."""
    for pixels, form in _TRIES:
        if form == "PNG" and image_type(data) == "image/jpeg":
            continue  # it would only become larger, and may have colours for print, which PNG has not
        picture = decoded(data, pixels)
        made = io.BytesIO()
        (picture.convert("RGB") if form == "JPEG" else picture).save(made, form, quality=_QUALITY)
        if made.tell() <= most_bytes:
            return made.getvalue()
    raise NotDecoded("it stays too large for the model")
