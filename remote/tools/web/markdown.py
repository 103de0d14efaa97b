"""HTML as Markdown: headings, paragraphs, lists, links, code, tables and emphasis; the rest as text.

Pages are foreign data. They are cut into tags and text here, in time that grows with their size: `html.parser` takes
minutes for some pages of 60 KB."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "object", "head", "select", "canvas"))
_BLOCKS = frozenset(
    ("p", "div", "section", "article", "main", "header", "footer", "aside", "nav", "form", "figure", "figcaption",
     "dl", "dt", "dd", "address", "fieldset", "details", "summary", "table", "ul", "ol", "blockquote")
)  # fmt: skip
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MAX_DEPTH = 50  # of lists and quotations
_BLANK = re.compile(r"[ \t\r\n\f]+")
_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_BETWEEN = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_BARE_VALUE = re.compile(r"[^\s>]*")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8}|[xX][0-9A-Fa-f]{8})[0-9A-Fa-f]*;?")  # no character, and slow to read
_RAW_ENDS = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "iframe", "textarea", "title")
}  # there are no tags in these
_MAX_HTML = 3_000_000  # characters of a page
_MAX_OUT = 1_000_000  # characters of its Markdown, ten times what the model is asked about
_MAX_ADDRESS = 2_000
_CUT = "\n\n[... the page is cut here ...]"


class _Converter:
    def __init__(self, html: str, base: str) -> None:
        self.title = ""
        self._html = html
        self._without: set[str] = set()  # quotes that do not follow any more
        self._base = base[:_MAX_ADDRESS]
        self._out: list[str] = []
        self._size = 0
        self._skip: list[str] = []
        self._lists: list[int] = []  # -1 for bullets, else the last number
        self._link: tuple[str, int] | None = None  # address, place in the output
        self._pre = 0
        self._code = 0
        self._quotes = 0
        self._in_title = False
        self._cells = 0

    def markdown(self) -> str:
        at, html = 0, self._html
        while 0 <= at < len(html) and self._size <= _MAX_OUT:
            if html[at] == "<":
                at = self._markup(at)
            else:
                end = html.find("<", at + 1)
                self._data(html[at : end if end >= 0 else None])
                at = end
        is_cut = 0 <= at < len(html) or len(html) == _MAX_HTML
        lines = [line.rstrip() for line in "".join(self._out).split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + (_CUT if is_cut else "")

    def _markup(self, at: int) -> int:
        """Take the tag or the comment that begins here. Return where it ends, -1 at the end of the page."""
        html = self._html
        name = _NAME.match(html, at + 1)
        if name is not None:
            return self._start_tag(name[0].lower(), name.end())
        if html.startswith("<!--", at):
            end = html.find("-->", at + 4)
            return end + 3 if end >= 0 else -1
        if html[at + 1 : at + 2] not in ("/", "!", "?"):
            self._data("<")
            return at + 1
        end = html.find(">", at)
        name = _NAME.match(html, at + 2)
        if name is not None and html[at + 1] == "/":
            self._end_tag(name[0].lower())
        return end + 1 if end >= 0 else -1

    def _start_tag(self, tag: str, at: int) -> int:
        html = self._html
        given: dict[str, str] = {}
        while True:
            between = _BETWEEN.match(html, at)
            at = between.end() if between else at
            name = _ATTRIBUTE.match(html, at)
            if name is None:
                break
            at, value = name.end(), ""
            equals = _EQUALS.match(html, at)
            if equals is not None:
                value, at = self._value(equals.end())
            if name[0].lower() in ("href", "alt"):
                given.setdefault(name[0].lower(), _plain(value))
        is_closed = between is not None and between[0].endswith("/")
        if not is_closed or tag in ("br", "hr", "img"):
            self._starts(tag, given)
        raw = _RAW_ENDS.get(tag)
        if raw is not None and not is_closed:
            end = raw.search(html, at)
            self._data(html[at + 1 : end.start() if end else None])
            return end.start() if end else -1
        return at + 1

    def _value(self, at: int) -> tuple[str, int]:
        """Return the value of an attribute, and where it ends."""
        quote = self._html[at : at + 1]
        if quote in ("'", '"') and quote not in self._without:
            end = self._html.find(quote, at + 1)
            if end >= 0:
                return self._html[at + 1 : end], end + 1
            self._without.add(quote)
        bare = _BARE_VALUE.match(self._html, at)
        assert bare is not None
        return bare[0], bare.end()

    def _starts(self, tag: str, given: dict[str, str]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "base" and given.get("href"):
            self._base = self._joined(given["href"]) or self._base
        if self._skip or tag in _SKIPPED:
            if tag in _SKIPPED:
                self._skip.append(tag)
            return
        self._open(tag, given)

    def _open(self, tag: str, given: dict[str, str]) -> None:
        if tag in _HEADINGS:
            self._break(2, _HEADINGS[tag])
        elif tag in ("ul", "ol"):
            if not self._lists:
                self._break(2)
            self._lists.append(-1 if tag == "ul" else 0)
        elif tag == "li":
            self._item()
        elif tag == "pre":
            self._break(2, "```\n")
            self._pre += 1
        elif tag == "blockquote":
            self._quotes = min(self._quotes + 1, _MAX_DEPTH)
            self._break(2)
        elif tag == "a":
            self._end_link()
            self._link = given.get("href", ""), len(self._out)
        elif tag == "img" and given.get("alt"):
            self._text(f"[image: {given['alt']}]")
        elif tag in ("td", "th"):
            self._put(" | " if self._cells else "| ")
            self._cells += 1
        else:
            self._open_plain(tag)

    def _open_plain(self, tag: str) -> None:
        if tag == "code" and not self._pre:
            self._code += 1
            self._put("`")
        elif tag in _MARKS and not self._pre and not self._code:
            self._put(_MARKS[tag])
        elif tag == "br":
            self._break(1)
        elif tag == "hr":
            self._break(2, "---\n\n")
        elif tag == "tr":
            self._end_row()
            self._break(1)
        elif tag in _BLOCKS:
            self._break(2)

    def _end_tag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skip:
            if tag == self._skip[-1]:
                self._skip.pop()
            return
        if tag in ("pre", "code"):
            self._end_code(tag)
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            if not self._lists:
                self._break(2)
        elif tag == "blockquote" and self._quotes:
            self._quotes -= 1
            self._break(2)
        elif tag == "a":
            self._end_link()
        elif tag in ("tr", "table"):
            self._end_row()
            self._break(1 if tag == "tr" else 2)
        elif tag in _MARKS and not self._pre and not self._code:
            self._put(_MARKS[tag])
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(2)

    def _end_code(self, tag: str) -> None:
        if tag == "pre" and self._pre:
            self._pre -= 1
            self._put("\n```\n\n")
        elif tag == "code" and self._code:
            self._code -= 1
            self._put("`")

    def _put(self, text: str) -> None:
        self._out.append(text)
        self._size += len(text)

    def _data(self, data: str) -> None:
        data = _plain(data)
        if self._in_title:
            self.title = (self.title + data).strip()[:300]
        elif not self._skip:
            self._text(data)

    def _text(self, data: str) -> None:
        if self._pre:
            self._put(data)
            return
        text = _BLANK.sub(" ", data)
        if text.startswith(" ") and (not self._out or self._out[-1].endswith(("\n", " "))):
            text = text[1:]
        if text:
            self._put(text)

    def _break(self, lines: int, then: str = "") -> None:
        """Begin a new line, or a new paragraph, with the marks of quotations."""
        self._put("\n" * lines + "> " * self._quotes + then)

    def _end_row(self) -> None:
        if self._cells:
            self._put(" |")
            self._cells = 0

    def _item(self) -> None:
        depth = min(max(0, len(self._lists) - 1), _MAX_DEPTH)
        mark = "- "
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            mark = f"{self._lists[-1]}. "
        self._break(1, "  " * depth + mark)

    def _end_link(self) -> None:
        if self._link is None:
            return
        (address, place), self._link = self._link, None
        text = "".join(self._out[place:])
        if not address or address.startswith(("#", "javascript:", "data:")) or not text.strip() or "\n" in text.strip():
            return
        whole = self._joined(address)
        if whole:
            del self._out[place:]
            self._put(f"[{text.strip()}]({whole})" + (" " if text.endswith(" ") else ""))

    def _joined(self, address: str) -> str:
        """Return the absolute address, or "" for one that cannot be read or is too long."""
        try:
            return urljoin(self._base, address) if len(address) <= _MAX_ADDRESS else ""
        except ValueError:
            return ""


def _plain(text: str) -> str:
    """Return a text with characters for their references."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def to_markdown(html: str, base: str) -> tuple[str, str]:
    """Return the Markdown of a page and its title. `base` is the page's URL."""
    converter = _Converter(html[:_MAX_HTML], base)
    return converter.markdown(), converter.title
