"""Which text a file holds: UTF-8, UTF-16 with a byte order mark, or one that is known as far as it is ASCII."""

from __future__ import annotations

import codecs

SNIFF = 8192  # bytes at the start of a file in which a NUL makes it a binary one

_MARKS = (
    (b"\xff\xfe\0\0", ""),  # UTF-32, which hardly a file is in: it counts as binary
    (b"\0\0\xfe\xff", ""),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)


class DecodedText:
    """The text of a file without its byte order mark. In an unknown `codec`, "", a character is a byte."""

    def __init__(self, text: str, codec: str, mark: bytes) -> None:
        self.text = text
        self.codec = codec
        self.mark = mark

    def encoded(self, text: str) -> bytes:
        return self.mark + text.encode(self.codec or "latin-1")


def text_of(data: bytes) -> DecodedText | None:
    mark, codec = _mark(data)
    if codec != "utf-8":
        if wide_decoder(data, whole=True) is None:
            return None
        return DecodedText(data[len(mark) :].decode(codec), codec, mark)
    if b"\0" in data[:SNIFF]:
        return None
    try:
        return DecodedText(data[len(mark) :].decode("utf-8"), "utf-8", mark)
    except UnicodeDecodeError:
        return DecodedText(data.decode("latin-1"), "", b"")


def wide_decoder(head: bytes, *, whole: bool) -> codecs.IncrementalDecoder | None:
    """Return a decoder for a file that begins with `head` if that is UTF-16 with a mark. `whole`: all of it."""
    mark, codec = _mark(head)
    if codec in ("", "utf-8"):
        return None
    try:
        codecs.getincrementaldecoder(codec)("strict").decode(head[len(mark) :], whole)
    except UnicodeDecodeError:
        return None
    return codecs.getincrementaldecoder(codec)("replace")


def name_of(head: bytes) -> str:
    return _mark(head)[1].upper()


def is_binary(head: bytes, *, whole: bool = False) -> bool:
    """Return whether a file that begins with `head` is no text: it has a NUL, or a mark that is not true."""
    is_marked = _mark(head)[1] != "utf-8"
    return (is_marked or b"\0" in head[:SNIFF]) and wide_decoder(head, whole=whole) is None


def shown(data: bytes) -> str:
    """Return the content of a file for a person, as well as it can be decoded."""
    found = text_of(data)
    return found.text if found is not None and found.codec else data.decode("utf-8", "replace")


def _mark(data: bytes) -> tuple[bytes, str]:
    return next(((mark, codec) for mark, codec in _MARKS if data.startswith(mark)), (b"", "utf-8"))
