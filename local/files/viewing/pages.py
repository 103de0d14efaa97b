"""Web pages and drawings of a host, made so that a browser loads nothing for them.

A page from a file may run scripts, which plots need. The policy that is put in front of it lets none of them, and no
image or style of it, load anything or send a form. No policy keeps a page from leading the browser to another address,
as a link does: the person is told before. A drawing becomes an image in a page: browsers run no script in an image.
"""

from __future__ import annotations

import base64
import codecs
import shutil
from pathlib import Path

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' data: blob:; worker-src data: blob:; "
    "style-src 'unsafe-inline' data:; img-src data: blob:; media-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'"
)
_START = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    f'content="{_POLICY}"><meta name="referrer" content="no-referrer">\n'
).encode()
_IMAGE = b'<img style="max-width: 100%" alt="" src="data:image/svg+xml;base64,', b'">\n'
_PIECE = 3 * 64 * 1024  # base64 takes three bytes at a time


def write_page(source: Path, target: Path) -> None:
    """Write the page in `source` to `target`, where it loads nothing."""
    with source.open("rb") as page, target.open("wb") as written:
        written.write(_START)
        start = page.read(len(codecs.BOM_UTF8))
        written.write(b"" if start == codecs.BOM_UTF8 else start)
        shutil.copyfileobj(page, written)


def write_drawing(source: Path, target: Path) -> None:
    """Write a page to `target` that shows the SVG image in `source`."""
    before, behind = _IMAGE
    with source.open("rb") as drawing, target.open("wb") as written:
        written.write(_START + before)
        while piece := drawing.read(_PIECE):
            written.write(base64.b64encode(piece))
        written.write(behind)
