"""Images scaled, pages of PDF documents: what programs of the host and of ours print of a file."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from ccb.tunnel.wire.prompt_content import image_block

from ..system.process import LIMITED
from .tool_contract import Json, ToolContext, ToolRefused

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

_PILLOW = (
    "import sys, io; from PIL import Image; i = Image.open(io.BytesIO(sys.stdin.buffer.read())); "
    "n = int(sys.argv[1]); f = sys.argv[2]; i.draft('RGB', (n, n)); i.thumbnail((n, n)); "
    "i = i.convert('RGB') if f == 'JPEG' else i; i.save(sys.stdout.buffer, f, quality=80)"
)
_TRIES = ((2_000, ""), (2_000, "JPEG"), (1_000, "JPEG"))  # pixels, and the format if it is not kept
_KEPT = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "PNG", "image/gif": "PNG"}


async def scaled(context: ToolContext, path: str, media_type: str, most_bytes: int) -> bytes | None:
    """Return a smaller PNG or JPEG of the image, made by ImageMagick or Pillow of the host; None if neither can."""
    host = context.host
    magick, python = host.which("magick") or host.which("convert"), host.which("python3") or sys.executable
    source = f"{media_type.rpartition('/')[2]}:-[0]"
    for program in ("magick", "pillow") if magick else ("pillow",):
        for pixels, other in _TRIES:
            format_ = other or _KEPT[media_type]
            quality = ["-background", "white", "-flatten", "-quality", "80"] if format_ == "JPEG" else []
            fit = ["-auto-orient", "-resize", f"{pixels}x{pixels}>", *quality, "-strip", f"{format_.lower()}:-"]
            by_pillow = [python, "-I", "-c", _PILLOW, str(pixels), format_]
            made = await printed_by(context, path, by_pillow if program == "pillow" else [magick or "", source, *fit])
            if made is None:
                break  # it is not there, or cannot read this image
            if len(made) <= most_bytes:
                return made
    return None


MAX_BYTES = 12 << 20
"""Largest document that is shown whole, in bytes: it and the conversation must fit in a request of 32 MB."""
MAX_PAGES = 100  # most pages of a document that is shown whole; the limit of the API
MAX_PAGES_A_CALL = 20  # most pages that one call can ask for

_MAX_IMAGE = 1_500_000
_RANGE = re.compile(r"\s{0,9}(\d{1,5})\s{0,9}(?:-\s{0,9}(\d{1,5})?)?\s{0,9}")


def read_pages(text: str) -> tuple[int, int]:
    """Return the first and last page of a range such as `3`, `1-5` or `10-`. Raise ToolRefused."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ToolRefused(f"pages must be a page or a range, such as 3 or 1-5, not {text[:40]!r}.")
    first = int(found[1])
    last = int(found[2]) if found[2] else first + MAX_PAGES_A_CALL - 1 if "-" in text else first
    if not 1 <= first <= last:
        raise ToolRefused("The first page is 1, and a range goes upwards.")
    if last - first >= MAX_PAGES_A_CALL:
        raise ToolRefused(f"At most {MAX_PAGES_A_CALL} pages can be read in one call.")
    return first, last


async def page_blocks(context: ToolContext, path: str, pages: str) -> list[Json]:
    """Return images of some pages, made by `pdftoppm` of the host. Raise ToolRefused."""
    first, last = read_pages(pages)
    program = context.host.which("pdftoppm")
    if not program:
        raise ToolRefused(
            "This host has no program that can take pages out of a PDF. Install poppler-utils there, or read the "
            "document without pages if it is short."
        )
    blocks: list[Json] = []
    for page in range(first, last + 1):
        command = [program, "-f", str(page), "-l", str(page), "-jpeg", "-scale-to", "1500", "-"]
        made = await printed_by(context, path, command)
        if made is None or not made.startswith(b"\xff\xd8") or len(made) > _MAX_IMAGE:
            break  # there are no more pages
        blocks += [{"type": "text", "text": f"Page {page}:"}, image_block(made, "image/jpeg")]
    if not blocks:
        raise ToolRefused(f"Page {first} cannot be read: the document may have fewer pages, or be damaged.")
    return blocks


SECONDS = 60.0  # seconds that a program may take

_MAX_OUTPUT = 32 << 20
_OUR_SECONDS = 20.0
_QUIET = LIMITED + 'f=$1; shift; exec "$@" <"$f" 2>/dev/null'


async def printed_by_ours(context: ToolContext, what: str, path: str) -> bytes | None:
    """Return what `document_programs` prints of a file's `cells` or `pages`; None if that takes too much or fails."""
    spec = importlib.util.find_spec(f"{__package__}.document_programs")
    assert spec is not None
    source = cast("InspectLoader", spec.loader).get_source(spec.name)
    real = context.call.pinned or context.host.real_path(path)
    argv = [sys.executable, "-I", "-S", "-c", source or "", what, real]
    return await printed_by(context, path, argv, piped=False, seconds=_OUR_SECONDS)


async def printed_by(
    context: ToolContext, path: str, argv: Sequence[str], *, piped: bool = True, seconds: float = SECONDS
) -> bytes | None:
    """Return what a program prints that gets a file on its stdin (`piped`), or opens it; None if it fails."""
    host = context.host
    real = context.call.pinned or host.real_path(path)
    cage = context.cages.read_only(context.roots, [real])
    command = ["/bin/sh", "-c", _QUIET, "sh", real if piped else "/dev/null", *argv]
    try:
        code, output = await host.output(command, seconds, _MAX_OUTPUT, cage=cage)
    except OSError:
        return None
    return output if code == 0 and 0 < len(output) <= _MAX_OUTPUT else None
