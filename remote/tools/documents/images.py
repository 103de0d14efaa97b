"""Scale an image that is too large for the model."""

from __future__ import annotations

import sys

from ..contract import ToolContext
from .programs import printed_by

_PILLOW = (
    "import sys, io; from PIL import Image; i = Image.open(io.BytesIO(sys.stdin.buffer.read())); "
    "n = int(sys.argv[1]); f = sys.argv[2]; i.draft('RGB', (n, n)); i.thumbnail((n, n)); "
    "i = i.convert('RGB') if f == 'JPEG' else i; i.save(sys.stdout.buffer, f, quality=80)"
)
_TRIES = ((2_000, ""), (2_000, "JPEG"), (1_000, "JPEG"))  # pixels, and the format if it is not kept
_KEPT = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "PNG", "image/gif": "PNG"}


async def scaled(context: ToolContext, path: str, media_type: str, most_bytes: int) -> bytes | None:
    """Return a smaller PNG or JPEG of the image, made by ImageMagick or Pillow of the host. None if
    neither can do it."""
    host = context.host
    magick, python = host.which("magick") or host.which("convert"), host.which("python3") or sys.executable
    source = f"{media_type.rpartition('/')[2]}:-[0]"
    able = ["magick", "pillow"] if magick else ["pillow"]
    for pixels, other in _TRIES:
        format_ = other or _KEPT[media_type]
        quality = ["-background", "white", "-flatten", "-quality", "80"] if format_ == "JPEG" else []
        fit = ["-auto-orient", "-resize", f"{pixels}x{pixels}>", *quality, "-strip", f"{format_.lower()}:-"]
        ways = {
            "magick": [magick or "", source, *fit],
            "pillow": [python, "-I", "-c", _PILLOW, str(pixels), format_],
        }
        for program in list(able):
            made = await printed_by(context, path, ways[program])
            if made is None:
                able.remove(program)  # it is not there, or cannot read this image
            elif len(made) <= most_bytes:
                return made
        if not able:
            return None
    return None
