"""What a fetched file is, by its content, and whether a viewer may have it.

A viewer is chosen by the end of a name, and a host chooses names. So a file gets the end that belongs to its content,
and only kinds that are looked at are opened: never a program, and what might be one only as plain text.
"""

from __future__ import annotations

import codecs
import posixpath
import re

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.content.images import image_size, image_type
from ccb.tunnel.wire.dataclass import dataclass

HEAD_BYTES = 64 * 1024
"""How much of a file is read to tell what it is."""

_MAX_NAME = 100
_UNFIT = re.compile(r"[^\w .,()+=@-]")
_BINARY = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class ViewedKind:
    """A kind of file. `ends` are the ends of names by which viewers know it, the usual one first; none: it is not
    opened. `note` is what the person should know before. `is_page`: a browser runs what is in it."""

    label: str
    ends: tuple[str, ...] = ()
    note: str = ""
    is_page: bool = False


_TEXT = ViewedKind("text", (".txt",))
_TEXTS = {
    ".md": ViewedKind("Markdown text", (".md",)),
    ".json": ViewedKind("JSON text", (".json",)),
    ".log": ViewedKind("text", (".log",)),
    ".csv": ViewedKind("table", (".csv",), "a spreadsheet may follow formulas in it"),
    ".tsv": ViewedKind("table", (".tsv",), "a spreadsheet may follow formulas in it"),
}
_PAGE = ViewedKind(
    "web page",
    (".html",),
    "its scripts run in your browser; it loads nothing from elsewhere, but may lead you to another address",
    is_page=True,
)
_DRAWING = ViewedKind("SVG image", (".html",), "shown as a picture in a page; its scripts do not run", is_page=True)
_OFFICE = {
    end: ViewedKind(label, (end,), "let your office program run no macros of it")
    for end, label in (
        (".docx", "Word document"), (".xlsx", "Excel table"), (".pptx", "PowerPoint slides"),
        (".odt", "text document"), (".ods", "spreadsheet"), (".odp", "slides"),
    )
}  # fmt: skip
_IMAGES = {
    "image/png": ViewedKind("PNG image", (".png",)),
    "image/jpeg": ViewedKind("JPEG image", (".jpg", ".jpeg")),
    "image/gif": ViewedKind("GIF image", (".gif",)),
    "image/webp": ViewedKind("WebP image", (".webp",)),
}
_ARCHIVE = b"PK\x03\x04"
_BY_START: tuple[tuple[int, bytes, ViewedKind], ...] = (
    (0, b"%PDF-", ViewedKind("PDF document", (".pdf",))),
    (0, b"BM", ViewedKind("BMP image", (".bmp",))),
    (0, b"II*\0", ViewedKind("TIFF image", (".tif", ".tiff"))),
    (0, b"MM\0*", ViewedKind("TIFF image", (".tif", ".tiff"))),
    (4, b"ftyp", ViewedKind("MP4 video", (".mp4", ".m4v", ".m4a", ".mov"))),
    (0, b"\x1aE\xdf\xa3", ViewedKind("WebM or Matroska video", (".mkv", ".webm"))),
    (0, b"OggS", ViewedKind("Ogg audio or video", (".ogg", ".oga", ".ogv", ".opus"))),
    (8, b"WAVE", ViewedKind("WAV audio", (".wav",))),
    (0, b"fLaC", ViewedKind("FLAC audio", (".flac",))),
    (0, b"ID3", ViewedKind("MP3 audio", (".mp3",))),
    (0, b"\x7fELF", ViewedKind("a program of Linux")),
    (0, b"MZ", ViewedKind("a program of Windows")),
    (0, b"\xcf\xfa\xed\xfe", ViewedKind("a program of macOS")),
    (0, b"\xca\xfe\xba\xbe", ViewedKind("a program of macOS or Java")),
    (0, _ARCHIVE, ViewedKind("an archive")),
    (0, b"\x1f\x8b", ViewedKind("an archive")),
)
_UNKNOWN = ViewedKind("data of a kind that ccb does not know")


def kind_of(name: str, head: bytes) -> ViewedKind:
    """Return what a file is. `head` is its first HEAD_BYTES. Among texts and archives, the name tells more."""
    end = posixpath.splitext(name.lower())[1]
    media_type = image_type(head)
    if media_type is not None:
        return _with_pixels(_IMAGES[media_type], head)
    text = _text_of(head)
    if text is None or head.startswith(b"%PDF-"):
        if head.startswith(_ARCHIVE) and end in _OFFICE:
            return _OFFICE[end]
        return next((kind for at, start, kind in _BY_START if head.startswith(start, at)), _UNKNOWN)
    if end in (".html", ".htm"):
        return _PAGE
    if end == ".svg" and "<svg" in text:
        return _DRAWING
    return _TEXTS.get(end, _TEXT)


def viewer_name(name: str, kind: ViewedKind) -> str:
    """Return the name under which a viewer gets the file: harmless characters, and the end that belongs to its kind."""
    clean = _UNFIT.sub("_", one_line(name)).lstrip(".- ")[-_MAX_NAME:] or "file"
    return clean if clean.lower().endswith(kind.ends) else clean + kind.ends[0]


def _with_pixels(kind: ViewedKind, head: bytes) -> ViewedKind:
    size = image_size(head)
    return ViewedKind(f"{kind.label}, {size[0]}x{size[1]}", kind.ends) if size else kind


def _text_of(head: bytes) -> str | None:
    """Return the text of a file that holds nothing else, as far as its head tells."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text
