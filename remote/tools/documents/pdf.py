"""PDF documents for the model: whole, or some of their pages as images or text."""

from __future__ import annotations

import base64
import re
from typing import Any

from ..contract import ToolContext
from ..output import clean
from .programs import printed_by, printed_by_ours

Json = dict[str, Any]

MAX_BYTES = 12 << 20
"""Largest document that is shown whole, in bytes: it and the conversation must fit in a request of 32 MB."""
MAX_PAGES = 100
"""Most pages of a document that is shown whole; the limit of the API."""
MAX_PAGES_A_CALL = 20
"""Most pages that one call can ask for."""

_MAX_TEXT = 100_000
_MAX_IMAGE = 1_500_000
_RANGE = re.compile(r"\s{0,9}(\d{1,5})\s{0,9}(?:-\s{0,9}(\d{1,5})?)?\s{0,9}")


class PagesRefused(Exception):
    """The pages cannot be shown; the text says why, and what would help."""


def read_pages(text: str) -> tuple[int, int]:
    """Return the first and last page of a range such as `3`, `1-5` or `10-`. Raise PagesRefused."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise PagesRefused(f"pages must be a page or a range, such as 3 or 1-5, not {text[:40]!r}.")
    first = int(found[1])
    last = int(found[2]) if found[2] else first + MAX_PAGES_A_CALL - 1 if "-" in text else first
    if not 1 <= first <= last:
        raise PagesRefused("The first page is 1, and a range goes upwards.")
    if last - first >= MAX_PAGES_A_CALL:
        raise PagesRefused(f"At most {MAX_PAGES_A_CALL} pages can be read in one call.")
    return first, last


async def count_pages(context: ToolContext, path: str) -> int:
    """Return the number of pages, 0 if it cannot be told, -1 if it takes too long to tell."""
    printed = await printed_by_ours(context, "pdf_pages", path)
    return int(printed) if printed is not None else -1


def document_block(data: bytes) -> Json:
    """Return the Messages API block of a whole document."""
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": encoded}}


async def page_blocks(context: ToolContext, path: str, pages: str) -> list[Json]:
    """Return the blocks of some pages: images of them if the host has `pdftoppm`, or their text if it has `pdftotext`.
    Raise PagesRefused."""
    first, last = read_pages(pages)
    images, texts = context.host.which("pdftoppm"), context.host.which("pdftotext")
    if not images and not texts:
        raise PagesRefused(
            "This host has no program that can take pages out of a PDF. Install poppler-utils there, or read the "
            "document without pages if it is short."
        )
    blocks: list[Json] = []
    for page in range(first, last + 1):
        of_page = ["-f", str(page), "-l", str(page)]
        made = None
        if images:
            made = await printed_by(context, path, [images, *of_page, "-jpeg", "-scale-to", "1500", "-"])
        if made is not None and made.startswith(b"\xff\xd8") and len(made) <= _MAX_IMAGE:
            encoded = base64.b64encode(made).decode("ascii")
            source = {"type": "base64", "media_type": "image/jpeg", "data": encoded}
            blocks += [{"type": "text", "text": f"Page {page}:"}, {"type": "image", "source": source}]
            continue
        text = await printed_by(context, path, [texts, *of_page, "-layout", "-", "-"]) if texts else None
        if text is None:
            break  # there are no more pages
        blocks.append({"type": "text", "text": f"Page {page}:\n{clean(text)[: _MAX_TEXT // MAX_PAGES_A_CALL]}"})
    if not blocks:
        raise PagesRefused(f"Page {first} cannot be read: the document may have fewer pages, or be damaged.")
    return blocks
