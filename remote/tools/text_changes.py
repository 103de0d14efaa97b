"""Exact replacement of text, and the differences of two texts."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from ..system.text_encoding import DecodedText, text_of
from .tool_contract import ToolRefused

_STYLES = {'"': ("“", "”"), "'": ("‘", "’")}
MAX_REPLACEMENTS = 200_000  # most places that one edit replaces
MAX_RESULT = 32 << 20  # longest text in characters that an edit makes
_SOME = "Use a program in Bash for that, such as sed."


NO_TEXT = "The file is binary, or its text is damaged: only a program in Bash can change it."
NOT_UTF8 = (
    "The file is not in UTF-8. Use a program in Bash that knows its encoding (`iconv`, or Python with `encoding=`)."
)
_HALF = f"{NOT_UTF8} old_string stands right behind a byte that is not ASCII, and may be a part of a character there."


@dataclass(frozen=True)
class Replacement:
    """A text in which matches of `old` were replaced: `spans` are their places in the text before."""

    text: str
    spans: list[tuple[int, int]]


def editable(data: bytes) -> DecodedText:
    """Return the text of a file. Raise ToolRefused for a binary one."""
    text = text_of(data)
    if text is None:
        raise ToolRefused(NO_TEXT)
    return text


def replace_in(within: DecodedText, old: str, new: str, replace_all: bool) -> Replacement:
    """Replace a text. A line feed in `old` also matches a CRLF in the file, and `new` gets the line ending of the first
    place it is written to, unless one of the strings contains a carriage return. Raise ToolRefused."""
    text = within.text
    _check_strings(within, old, new)
    adapts = "\r\n" in text and "\r" not in old + new
    found = _places(text, old, adapts)
    is_loose = not found
    if is_loose:
        found = _places(text, old, adapts, any_quotes=True)
    if not found:
        raise ToolRefused(f"String to replace not found in file.\nString: {_shown(old)}")
    if len(found) > 1 and not replace_all:
        raise ToolRefused(
            f"Found {len(found)} matches of the string to replace, but replace_all is false. To replace all of them, "
            "set replace_all to true; to replace one, give more of the text around it.\n"
            f"String: {_shown(old)}"
        )
    if len(text) + len(found) * len(new) > MAX_RESULT:
        raise ToolRefused(f"The file would have more than {MAX_RESULT:,} characters. {_SOME}")
    if not within.codec and any(not text[start - 1 : start].isascii() for start, _ in found if start):
        raise ToolRefused(_HALF)
    if adapts and _has_crlf_at(text, found[0][0]):
        new = new.replace("\n", "\r\n")
    pieces, at = [], 0
    for start, end in found:
        pieces += [text[at:start], _with_quotes_of(text[start:end], new) if is_loose else new]
        at = end
    return Replacement("".join([*pieces, text[at:]]), found)


def _has_crlf_at(text: str, place: int) -> bool:
    """Return whether the line at a place of a text ends with CRLF, or the one before the last line."""
    end = text.find("\n", place)
    return text[(end if end >= 0 else text.rfind("\n")) - 1] == "\r"


def _check_strings(within: DecodedText, old: str, new: str) -> None:
    if old == new:
        raise ToolRefused("No changes to make: old_string and new_string are exactly the same.")
    if not old:
        raise ToolRefused("old_string is empty: that creates a new file, but the file already has content.")
    if not within.codec and not (old + new).isascii():
        raise ToolRefused(f"{NOT_UTF8} Edit changes only ASCII text in it.")


def _places(text: str, old: str, is_flat: bool, *, any_quotes: bool = False) -> list[tuple[int, int]]:
    """Return where `old` is in a text. Raise ToolRefused if it is in too many places."""
    bare = text.replace("\r\n", "\n") if is_flat else text
    if any_quotes:
        bare, old = _straight(bare), _straight(old)
    if bare.count(old) > MAX_REPLACEMENTS:
        raise ToolRefused(f"The string to replace is in more than {MAX_REPLACEMENTS:,} places. {_SOME}")
    found, at = [], bare.find(old)
    while at >= 0:
        found += [at, at + len(old)]
        at = bare.find(old, at + len(old))
    places = _with_returns(text, found) if is_flat else iter(found)
    return list(zip(places, places))


def _with_returns(text: str, places: Iterable[int]) -> Iterator[int]:
    ending, left_out = text.find("\r\n"), 0
    for place in places:
        while 0 <= ending < place + left_out:
            left_out += 1
            ending = text.find("\r\n", ending + 2)
        yield place + left_out


def _straight(text: str) -> str:
    for straight, (left, right) in _STYLES.items():
        text = text.replace(left, straight).replace(right, straight)
    return text


def _with_quotes_of(found: str, new: str) -> str:
    """Return `new` with curly quotes where `found` has curly ones, and with straight quotes where it has straight ones.
    A quote opens at the start, behind a blank and behind an opening bracket."""
    for straight, (left, right) in _STYLES.items():
        if left in found or right in found:
            new = re.sub(rf"(?:^|(?<=[\s(\[{{<—–])){straight}", left, new).replace(straight, right)
        elif straight in found:
            new = new.replace(left, straight).replace(right, straight)
    return new


def _shown(text: str) -> str:
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"


Change = tuple[int, int, int, int]  # old lines [a, b) became new lines [c, d)

MAX_BYTES = 40_000
"""Most bytes of JSON for one text or patch in a structured result, so that four of them stay under 200 KB."""

_CONTEXT = 3
MAX_PREVIEW = 200_000  # most bytes of JSON of the patch that a person is asked about

MAX_LINES = 1_000_000  # most lines of two texts together that are compared

_NO_NEWLINE = "\\ No newline at end of file"
_MAX_WORK = 1_000_000  # pairs of lines that difflib may look at: 0.3 s


def structured_patch(old: str, new: str, max_bytes: int = MAX_BYTES) -> list[Json]:
    """Return the hunks (`oldStart, oldLines, newStart, newLines, lines`) that fit `max_bytes`."""
    patch: list[Json] = compared(old, new, max_bytes)["patch"]
    return patch


def compared(old: str, new: str, max_bytes: int) -> Json:
    """Return the patch from `old` to `new` with its size: `lines` of the old text, lines `added` and `removed`, the
    hunks that fit `max_bytes`, and whether the patch is `complete`."""
    removed, added = old.count("\n"), new.count("\n")
    if removed + added > MAX_LINES:
        return {"lines": removed, "added": added, "removed": removed, "patch": [], "complete": False}
    before, after = _lines(old), _lines(new)
    changes = line_changes(before, after)
    hunks = _hunks(before, after, changes)
    sizes = itertools.accumulate(map(_json_size, hunks))
    patch = [hunk for hunk, size in zip(hunks, sizes) if size <= max_bytes]
    return {
        "lines": len(before),
        "added": sum(d - c for _, _, c, d in changes),
        "removed": sum(b - a for a, b, _, _ in changes),
        "patch": patch,
        "complete": len(patch) == len(hunks),
    }


def bounded_text(text: str, max_bytes: int = MAX_BYTES) -> str:
    """Return `text`, or its start and a note if it is too long for a message line."""
    if _json_size(text) <= max_bytes:
        return text
    kept = text[:max_bytes]
    while _json_size(kept) > max_bytes - 100:
        kept = kept[: int(len(kept) * 0.8)]
    return f"{kept}\n[... {len(text) - len(kept):,} more characters ...]"


def whole_or_none(text: str | None, max_bytes: int = MAX_BYTES) -> str | None:
    """Return `text`, or None if it is too long for a message line: a client could take a part for the whole."""
    return text if text is not None and _json_size(text) <= max_bytes else None


def _json_size(value: object) -> int:
    if isinstance(value, str) and len(value) > 1 << 20:
        return 6 * len(value)
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + ([last] if last else [])


def _marked(sign: str, lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        if line.endswith("\n"):
            yield sign + line[:-1]
        else:
            yield sign + line
            yield _NO_NEWLINE


def line_changes(before: list[str], after: list[str]) -> list[Change]:
    """Return which lines have become which, in order. What is too long to be compared is one change."""
    start, most = 0, min(len(before), len(after))
    while start < most and before[start] == after[start]:
        start += 1
    end = 0
    while end < most - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old or not new:
        return [(start, start + len(old), start, start + len(new))] if old or new else []
    return [(start + a, start + b, start + c, start + d) for a, b, c, d in _differences(old, new)]


def _differences(old: list[str], new: list[str]) -> list[Change]:
    """Return what difflib finds within a limit of work. What it has not compared then is one change for each gap."""
    from difflib import Match, SequenceMatcher

    class Limited(SequenceMatcher[str]):
        left = _MAX_WORK
        pairs: Sequence[int] = ()
        b2j: dict[str, list[int]]  # the places of each line of `new`

        def find_longest_match(
            self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
        ) -> Match:
            assert ahi is not None and bhi is not None
            self.left -= self.pairs[ahi] - self.pairs[alo]
            return Match(alo, blo, 0) if self.left < 0 else super().find_longest_match(alo, ahi, blo, bhi)

    matcher = Limited(None, old, new, autojunk=len(old) + len(new) > 1000)
    twins = matcher.b2j
    matcher.pairs = [0, *itertools.accumulate(len(twins.get(line, ())) + 1 for line in old)]
    return [(a, b, c, d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]


def _hunks(before: list[str], after: list[str], changes: list[Change]) -> list[Json]:
    groups: list[list[Change]] = []
    for change in changes:
        if not groups or change[0] - groups[-1][-1][1] > 2 * _CONTEXT:
            groups.append([])
        groups[-1].append(change)
    return [_hunk(before, after, group) for group in groups]


def _hunk(before: list[str], after: list[str], group: list[Change]) -> Json:
    start = at = max(0, group[0][0] - _CONTEXT)
    lines: list[str] = []
    for a, b, c, d in group:
        lines += _marked(" ", before[at:a])
        lines += _marked("-", before[a:b])
        lines += _marked("+", after[c:d])
        at = b
    end = min(len(before), at + _CONTEXT)
    lines += _marked(" ", before[at:end])
    return {
        "oldStart": start + 1,
        "oldLines": end - start,
        "newStart": group[0][2] - (group[0][0] - start) + 1,
        "newLines": sum(1 for line in lines if line[0] in " +"),
        "lines": lines,
    }
