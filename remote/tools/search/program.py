"""One search: a request in, a result out, both JSON objects."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import warnings
from typing import Any, Callable

from .globs import BadGlob, Globs
from .literals import required
from .scan import MOST_LINE, MOST_SHOWN, Pattern, scan
from .types import TYPES
from .walk import Deadline, Found, Limits, files, in_time, matching_by_grep, matching_by_ripgrep, with_times

Json = dict[str, Any]

MOST_ITEMS = 100_000
MOST_CHARS = 2_000_000
"""What a result may hold; beyond it is cut."""


class BadRequest(Exception):
    """The request cannot be served; the text says why."""


def main(argument: str) -> None:
    """Serve the request in `argument` and print the result."""
    request = json.loads(argument)
    try:
        result = answer(request)
    except (BadRequest, BadGlob) as error:
        result = {"error": str(error)}
    sys.stdout.write(json.dumps(result))
    sys.stdout.flush()


def answer(request: Json) -> Json:
    """`{"items": [...], "partial": bool, "more": bool, ...}`; `more` says that the limit cut the result."""
    limits = Limits(time.monotonic() + request["seconds"])
    if "root" in request:
        _check_readable(request["root"], request.get("file") or "")
    serve: Callable[[Json, Limits], Json] = {"glob": _glob, "grep": _grep, "filter": _filter}[request["op"]]
    return serve(request, limits)


def _check_readable(root: str, file: str) -> None:
    """What the search is about must be readable itself; what it meets on its way is counted. Raises BadRequest."""
    path = os.path.join(root, file) if file else root
    try:
        if file:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        else:
            os.scandir(path).close()
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror or error}") from None


def compiled(text: str, ignore_case: bool, multiline: bool) -> Pattern:
    """The pattern in the common dialect: what Python's `re` understands, and POSIX classes in brackets. Raises
    BadRequest."""
    flags = (re.IGNORECASE if ignore_case else 0) | (re.MULTILINE | re.DOTALL if multiline else 0)
    source = _posix_classes(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            regex = re.compile(source, flags)
            texts, folded = required(source, flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadRequest(f"The pattern is not a valid regular expression: {error}") from None
    encoded = tuple((each.lower() if folded else each).encode() for each in texts)
    return Pattern(regex, encoded, folded, "\\r" in text or "\r" in text, multiline)


_POSIX = {
    "alpha": r"^\W\d_", "digit": "0-9", "alnum": r"^\W_", "upper": "A-Z", "lower": "a-z", "space": r"\s", "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w", "cntrl": r"\x00-\x1f\x7f",
}  # fmt: skip


def _posix_classes(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        name = match[1]
        if name not in _POSIX:
            raise BadRequest(f"The pattern names an unknown character class [:{name}:].")
        if _POSIX[name].startswith("^"):
            return {"alpha": "a-zA-Z", "alnum": "a-zA-Z0-9"}[name]
        return _POSIX[name]

    return re.sub(r"\[:(\w+):\]", one, text) if "[[" in text or ":]" in text else text


def _chosen(request: Json) -> list[Globs]:
    chosen = [Globs(list(request["globs"]))] if request["globs"] else []
    kind = request.get("type") or ""
    if kind:
        if kind not in TYPES:
            near = ", ".join(sorted(name for name in TYPES if name[0] == kind[0]))
            raise BadRequest(f"The file type {kind!r} is not known (known with that letter: {near}). Use glob instead.")
        chosen.append(Globs(list(TYPES[kind])))
    return chosen


def _glob(request: Json, limits: Limits) -> Json:
    root, limit = request["root"], request["limit"]
    paths = in_time(files(root, _chosen(request), request["rg"], limits), limits)
    kept = _Kept(request)
    found = kept.of(with_times(root, paths, limits))
    return {
        "items": [_show(file.path) for file in found[:limit]],
        "more": len(found) > limit,
        "partial": limits.late,
        "left_out": kept.left_out,
        "unread": len(limits.unread),
    }


def _grep(request: Json, limits: Limits) -> Json:
    pattern = compiled(request["pattern"], request["ignore_case"], request["multiline"])
    collected = _Collected(request["offset"], request["limit"])
    mode = request["mode"]
    kept = _Kept(request)
    try:
        candidates = kept.of(_candidates(request, pattern, limits))
        if mode != "files_with_matches":
            candidates.sort(key=lambda file: file.path)
        for file in candidates:
            if collected.full:
                break
            limits.check()
            _search_file(request, file, pattern, collected, limits)
    except Deadline:
        limits.end_listing()
    return {
        "items": collected.items,
        "more": collected.more,
        "partial": limits.late,
        "files": collected.files,
        "matches": collected.matches,
        "left_out": kept.left_out,
        "unread": len(limits.unread),
        "cut": limits.cut,
        "large": limits.large,
    }


class _Kept:
    """Takes away the files that permission rules keep from the search: `left_out` of the request are regular
    expressions of absolute paths in small letters. Links are not followed, so a file has two names at most. Also our
    own `sessions`, unless the search begins there: a journal holds every word that was ever looked for."""

    def __init__(self, request: Json) -> None:
        self.left_out = False
        expressions = request.get("left_out") or []
        self._denied = re.compile("|".join(f"(?:{each})" for each in expressions), re.DOTALL) if expressions else None
        self._roots = {request["root"], os.path.realpath(request["root"])}
        sessions = request.get("sessions") or ""
        tops = {top + os.sep for top in (sessions, os.path.realpath(sessions)) if sessions}
        within = any(os.path.join(root, "").startswith(top) for root in self._roots for top in tops)
        self._sessions = () if within else tuple(tops)

    def of(self, files: list[Found]) -> list[Found]:
        if self._sessions:
            files = [file for file in files if not self._is_a_sessions(file.path)]
        if self._denied is None:
            return files
        kept = [file for file in files if not self._is_denied(file.path)]
        self.left_out = self.left_out or len(kept) < len(files)
        return kept

    def _is_a_sessions(self, path: str) -> bool:
        return any(os.path.join(root, path).startswith(self._sessions) for root in self._roots)

    def _is_denied(self, path: str) -> bool:
        assert self._denied is not None
        names = (os.path.join(root, path).casefold() for root in self._roots)
        return any(self._denied.fullmatch(name) for name in names)


def _candidates(request: Json, pattern: Pattern, limits: Limits) -> list[Found]:
    root, only = request["root"], request.get("file")
    if only:
        return with_times(root, [only], limits)
    chosen, texts = _chosen(request), [text.decode() for text in pattern.texts]
    if texts and request["rg"]:
        matching = matching_by_ripgrep(root, request["rg"], chosen, texts, pattern.ignore_case, limits)
        if matching is not None:
            return with_times(root, matching, limits)
    paths = in_time(files(root, chosen, request["rg"], limits), limits)
    if texts and request["grep"]:
        paths = in_time(matching_by_grep(root, request["grep"], paths, texts, pattern.ignore_case, limits), limits)
    return with_times(root, paths, limits)


class _Collected:
    """The lines of a result within offset and limit."""

    def __init__(self, offset: int, limit: int) -> None:
        self.items: list[str] = []
        self.more = False
        self.files = 0
        self.matches = 0
        self.any = False
        self._skip = offset
        self._limit = min(limit or MOST_ITEMS, MOST_ITEMS)
        self._chars = 0

    @property
    def full(self) -> bool:
        """One item more than wanted was seen: nothing more is needed."""
        return self.more

    def add(self, item: str) -> None:
        self.any = True
        if self._skip:
            self._skip -= 1
        elif len(self.items) >= self._limit or self._chars > MOST_CHARS:
            self.more = True
        else:
            self.items.append(item)
            self._chars += len(item)


def _search_file(request: Json, file: Found, pattern: Pattern, collected: _Collected, limits: Limits) -> None:
    mode, name = request["mode"], _show(file.path)
    full = os.path.join(request["root"], file.path)
    if mode == "files_with_matches":
        cut = limits.cut
        if next(scan(full, pattern, 0, 0, limits), None) is not None:
            limits.cut = cut  # that there is a match is sure
            collected.files += 1
            collected.add(name)
        return
    if mode == "count":
        count = sum(1 for _ in scan(full, pattern, 0, 0, limits))
        if count:
            collected.files += 1
            collected.matches += count
            collected.add(f"{name}:{count}")
        return
    last = 0
    for line in scan(full, pattern, request["before"], request["after"], limits):
        if last == 0:
            collected.files += 1
        if (request["before"] or request["after"]) and collected.any and (not last or line.number != last + 1):
            collected.add("--")
        last = line.number
        collected.matches += line.matches
        sign = ":" if line.matches else "-"
        number = f"{line.number}{sign}" if request["numbers"] else ""
        collected.add(f"{name}{sign}{number}{_shown(line.text, pattern)}")
        if collected.full:
            return


def _filter(request: Json, limits: Limits) -> Json:
    """The lines of a range of bytes of one file that match."""
    pattern = compiled(request["pattern"], False, False)
    with open(request["path"], "rb") as file:
        file.seek(request["start"])
        data = file.read(request["end"] - request["start"])
    collected = _Collected(0, 0)
    for raw in data.split(b"\n"):
        limits.check()
        if pattern.line(raw) is not None:
            collected.add(raw.decode("utf-8", "replace"))
    return {"items": collected.items, "more": collected.more, "partial": False}


def _shown(text: str, pattern: Pattern) -> str:
    """A line as the model sees it: a very long one around its match."""
    is_whole = pattern.multiline or len(text.encode("utf-8", "surrogateescape")) != MOST_LINE
    text = _show(text)
    if len(text) <= MOST_SHOWN:
        return text
    match = None if pattern.multiline else pattern.regex.search(text)
    start = max(0, match.start() - 100) if match and match.start() > MOST_SHOWN - 100 else 0
    piece = text[start : start + MOST_SHOWN]
    return f"{'…' if start else ''}{piece}… [line cut: {len(text):,} characters{'' if is_whole else ' or more'}]"


def _show(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
