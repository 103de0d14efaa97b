"""HTML as Markdown: headings, paragraphs, lists, links, code, tables and emphasis; the rest as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
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


class _Converter(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._base = base
        self._out: list[str] = []
        self._skip: list[str] = []
        self._lists: list[int] = []  # -1 for bullets, else the last number
        self._links: list[tuple[str, int]] = []  # address, place in the output
        self._pre = 0
        self._code = 0
        self._quotes = 0
        self._in_title = False
        self._cells = 0

    def markdown(self) -> str:
        text = "".join(self._out)
        lines = [line.rstrip() for line in text.split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "base" and given.get("href"):
            self._base = urljoin(self._base, given["href"])
        if self._skip or tag in _SKIPPED:
            if tag in _SKIPPED:
                self._skip.append(tag)
            return
        self._open(tag, given)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("br", "hr", "img"):
            self.handle_starttag(tag, attrs)

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
            self._links.append((given.get("href", ""), len(self._out)))
        elif tag == "img" and given.get("alt"):
            self._text(f"[image: {given['alt']}]")
        elif tag in ("td", "th"):
            self._out.append(" | " if self._cells else "| ")
            self._cells += 1
        else:
            self._open_plain(tag)

    def _open_plain(self, tag: str) -> None:
        if tag == "code" and not self._pre:
            self._code += 1
            self._out.append("`")
        elif tag in _MARKS and not self._pre and not self._code:
            self._out.append(_MARKS[tag])
        elif tag == "br":
            self._break(1)
        elif tag == "hr":
            self._break(2, "---\n\n")
        elif tag == "tr":
            self._end_row()
            self._break(1)
        elif tag in _BLOCKS:
            self._break(2)

    def handle_endtag(self, tag: str) -> None:
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
        elif tag == "a" and self._links:
            self._link()
        elif tag in ("tr", "table"):
            self._end_row()
            self._break(1 if tag == "tr" else 2)
        elif tag in _MARKS and not self._pre and not self._code:
            self._out.append(_MARKS[tag])
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(2)

    def _end_code(self, tag: str) -> None:
        if tag == "pre" and self._pre:
            self._pre -= 1
            self._out.append("\n```\n\n")
        elif tag == "code" and self._code:
            self._code -= 1
            self._out.append("`")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title = (self.title + data).strip()[:300]
        elif not self._skip:
            self._text(data)

    def _text(self, data: str) -> None:
        if self._pre:
            self._out.append(data)
            return
        text = _BLANK.sub(" ", data)
        if text.startswith(" ") and (not self._out or self._out[-1].endswith(("\n", " "))):
            text = text[1:]
        if text:
            self._out.append(text)

    def _break(self, lines: int, then: str = "") -> None:
        """Begin a new line, or a new paragraph, with the marks of quotations."""
        self._out.append("\n" * lines + "> " * self._quotes + then)

    def _end_row(self) -> None:
        if self._cells:
            self._out.append(" |")
            self._cells = 0

    def _item(self) -> None:
        depth = min(max(0, len(self._lists) - 1), _MAX_DEPTH)
        mark = "- "
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            mark = f"{self._lists[-1]}. "
        self._break(1, "  " * depth + mark)

    def _link(self) -> None:
        address, place = self._links.pop()
        text = "".join(self._out[place:])
        if not address or address.startswith(("#", "javascript:", "data:")) or not text.strip() or "\n" in text.strip():
            return
        try:
            whole = urljoin(self._base, address)
        except ValueError:
            return
        del self._out[place:]
        self._out.append(f"[{text.strip()}]({whole})" + (" " if text.endswith(" ") else ""))


def to_markdown(html: str, base: str) -> tuple[str, str]:
    """Return the Markdown of a page and its title. `base` is the page's URL."""
    converter = _Converter(base)
    try:
        converter.feed(html)
        converter.close()
    except (AssertionError, RecursionError):  # html.parser asserts on some broken declarations
        pass
    return converter.markdown(), converter.title
