"""The entry point of the search: takes a request and returns a result, both JSON objects."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import warnings

from ccb.tunnel.wire.spelling import spelled

from .globs import TYPES, BadGlob, Globs, Ignore
from .scan import MAX_LINE, MAX_SHOWN, Pattern, required, scan
from .walk import (
    MAX_WHOLE,
    Deadline,
    Found,
    Limits,
    TooSlow,
    files,
    in_time,
    limit,
    matching_by_grep,
    matching_by_ripgrep,
    matching_command,
    with_times,
)

TYPE_CHECKING = False

if TYPE_CHECKING:  # each import is felt where each search starts the program anew
    from typing import Any, Callable

    Json = dict[str, Any]

MAX_ITEMS = 100_000
_TICK_S = 0.25
MAX_CHARS = 2_000_000
"""Limits of a result. Everything beyond them is left out."""


class BadRequest(Exception):
    """The request cannot be answered; the text says why."""


def main(argument: str) -> None:
    """Answer the request in `argument` and print the result."""
    request = json.loads(argument)
    limit()
    limits = Limits(time.monotonic() + request["seconds"])
    signal.signal(signal.SIGALRM, lambda number, frame: limits.tick())
    signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)
    try:
        result = answer(request, limits)
    except (BadRequest, BadGlob) as error:
        result = {"error": str(error)}
    signal.setitimer(signal.ITIMER_REAL, 0)  # when Python ends, it takes its handlers back before it is gone
    sys.stdout.write(json.dumps(result))  # noqa: TID251 - the answer of a program
    sys.stdout.flush()


def answer(request: Json, limits: Limits | None = None) -> Json:
    """Return `{"items": [...], "partial": bool, "more": bool, ...}`. `partial`: the time ran out before the search was
    complete. `more`: the limit cut the result. Raise BadRequest or BadGlob for a request that cannot be answered."""
    limits = limits or Limits(time.monotonic() + request["seconds"])
    if "root" in request:
        _check_readable(request["root"], request.get("file") or "")
        limits.start = Ignore.at(request["root"], request.get("project", ()))
        limits.unobeyed = limits.start.unobeyed
        if limits.unobeyed or limits.start.is_strangers:  # ripgrep would obey it, or wait for it
            request = {**request, "rg": ""}
    operation: Callable[[Json, Limits], Json] = {"glob": _glob, "grep": _grep, "filter": _filter}[request["op"]]
    return operation(request, limits)


def _check_readable(root: str, file: str) -> None:
    """Raise BadRequest if the file or directory to search cannot be read. Unreadable entries below it are only
    counted."""
    path = os.path.join(root, file) if file else root
    try:
        if file:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        else:
            os.scandir(path).close()
    except OSError as error:
        raise BadRequest(f"{spelled(path)}: {error.strerror or error}") from None


def compiled(text: str, ignore_case: bool, multiline: bool) -> Pattern:
    """Compile a pattern in the dialect that ripgrep and Python share: the syntax of `re`, and POSIX classes in
    brackets. Raise BadRequest for an invalid one."""
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
    keeps_returns = "\\r" in text or "\r" in text
    is_ascii = text.isascii() and not re.search(r"\\[xuUN]", text)
    return Pattern(
        regex, encoded, ignore_case=folded, keeps_returns=keeps_returns, multiline=multiline, is_ascii=is_ascii
    )


_POSIX = {
    "alpha": r"^\W\d_", "digit": "0-9", "alnum": r"^\W_", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "word": r"\w", "cntrl": r"\x00-\x1f\x7f",
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
    allowed = _PathFilter(request)
    found = allowed.of(with_times(root, paths, limits))
    return {
        "items": [spelled(file.path) for file in found[:limit]],
        "more": len(found) > limit,
        "partial": limits.late,
        "left_out": allowed.left_out,
        "unread": len(limits.unread),
        "ignored": _few(limits.ignored),
        **_slow(limits),
    }


def _slow(limits: Limits) -> Json:
    """Return the files in which, or for whose names, a pattern takes too long, and the files .gitignore that are
    none."""
    return {
        "unobeyed": _few(limits.unobeyed),
        "slow": [spelled(path) for path in limits.slow[:_NAMED]],
        "slow_count": len(limits.slow),
    }


def _grep(request: Json, limits: Limits) -> Json:
    pattern = _pattern(request)
    collected = _Collected(request["offset"], request["limit"])
    mode = request["mode"]
    allowed = _PathFilter(request)
    try:
        candidates = allowed.of(_candidates(request, pattern, limits))
        if mode != "files_with_matches":
            candidates.sort(key=lambda file: file.path)
        candidates.sort(key=lambda file: file.size > MAX_WHOLE)  # those take so long that the others come first
        for file in candidates:
            if collected.full:
                break
            limits.stopped_in = file.path
            limits.check()
            try:
                limits.scanning(on=True)
                _SEARCH_FILE[mode](request, file, pattern, collected, limits)
            except (TooSlow, MemoryError):
                limits.slow.append(file.path)
            finally:
                limits.scanning(on=False)
    except Deadline:
        limits.end_listing()
    return {
        "items": collected.items,
        "more": collected.more,
        "partial": limits.late,
        "files": collected.files,
        "matches": collected.matches,
        "left_out": allowed.left_out,
        "unread": len(limits.unread),
        "ignored": _few(limits.ignored),
        "cut": limits.cut,
        "large": limits.large,
        "foreign": _few({os.path.relpath(path, request["root"]) for path in limits.foreign}),
        "binary": limits.binary if request.get("file") else 0,
        **_slow(limits),
        "stopped_in": spelled(limits.stopped_in) if limits.late else "",
    }


_NAMED = 3


def _few(paths: set[str]) -> Json:
    """Return how many paths there are, and the first few of them."""
    named = sorted(paths, key=lambda path: (path.count("/"), path))[:_NAMED]
    return {"count": len(paths), "named": [spelled(path) for path in named]}


class _PathFilter:
    """Removes the files that permission rules exclude from the search: `left_out` of the request holds regular
    expressions of absolute paths in lower case. Links are not followed, so a file has two names at most. Unless the
    search starts there, the filter also removes the directory `sessions` of ccb, because a journal contains every word
    that was ever searched for."""

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
    chosen = _chosen(request)
    texts = [text.decode() for text in pattern.texts]
    if texts and request["rg"]:
        command = matching_command(request["rg"], chosen, texts, pattern.ignore_case, not pattern.is_ascii)
        matching = matching_by_ripgrep(root, command, chosen, limits)
        if matching is not None:
            return with_times(root, matching, limits)
    paths = in_time(files(root, chosen, request["rg"], limits), limits)
    if texts and request["grep"] and pattern.is_ascii:
        paths = in_time(matching_by_grep(root, request["grep"], paths, texts, pattern.ignore_case, limits), limits)
    return with_times(root, paths, limits)


def _pattern(request: Json) -> Pattern:
    return compiled(request["pattern"], request["ignore_case"], request["multiline"])


class _Collected:
    """The items of a result between the requested offset and limit."""

    def __init__(self, offset: int, limit: int) -> None:
        self.items: list[str] = []
        self.more = False
        self.files = 0
        self.matches = 0
        self.any = False
        self._skip = offset
        self._limit = min(limit or MAX_ITEMS, MAX_ITEMS)
        self._chars = 0

    @property
    def full(self) -> bool:
        """Whether more items than the limit were found, so that the search can stop."""
        return self.more

    def add(self, item: str) -> None:
        self.any = True
        if self._skip:
            self._skip -= 1
        elif len(self.items) >= self._limit or self._chars > MAX_CHARS:
            self.more = True
        else:
            self.items.append(item)
            self._chars += len(item)


def _list_file(request: Json, file: Found, pattern: Pattern, collected: _Collected, limits: Limits) -> None:
    """Collect the name of a file with a match."""
    cut = limits.cut
    if next(scan(_full_path(request, file), pattern, 0, 0, limits), None) is not None:
        limits.cut = cut  # a match was found, so it does not matter that some line was not searched to its end
        collected.files += 1
        collected.add(spelled(file.path))


def _count_in_file(request: Json, file: Found, pattern: Pattern, collected: _Collected, limits: Limits) -> None:
    """Collect the number of matching lines of a file."""
    count = sum(1 for _ in scan(_full_path(request, file), pattern, 0, 0, limits))
    if count:
        collected.files += 1
        collected.matches += count
        collected.add(f"{spelled(file.path)}:{count}")


def _show_file(request: Json, file: Found, pattern: Pattern, collected: _Collected, limits: Limits) -> None:
    """Collect the matching lines of a file and their context; `--` stands between lines that do not follow each
    other."""
    name, before, after = spelled(file.path), request["before"], request["after"]
    last = 0
    for line in scan(_full_path(request, file), pattern, before, after, limits):
        if last == 0:
            collected.files += 1
        if (before or after) and collected.any and (not last or line.number != last + 1):
            collected.add("--")
        last = line.number
        collected.matches += line.matches
        sign = ":" if line.matches else "-"
        number = f"{line.number}{sign}" if request["numbers"] else ""
        collected.add(f"{name}{sign}{number}{_shown(line.text, pattern)}")
        if collected.full:
            return


_SEARCH_FILE: dict[str, Callable[[Json, Found, Pattern, _Collected, Limits], None]] = {
    "files_with_matches": _list_file,
    "count": _count_in_file,
    "content": _show_file,
}


def _full_path(request: Json, file: Found) -> str:
    return os.path.join(request["root"], file.path)


def _filter(request: Json, limits: Limits) -> Json:
    """Return the matching lines in a range of bytes of one file."""
    pattern = compiled(request["pattern"], False, False)
    with open(request["path"], "rb") as file:
        file.seek(request["start"])
        data = file.read(request["end"] - request["start"])
    collected = _Collected(0, 0)
    stopped = False
    try:
        limits.scanning(on=True)
        for raw in data.split(b"\n"):
            limits.check()
            if pattern.line(raw) is not None:
                collected.add(raw.decode("utf-8", "replace"))
    except (TooSlow, Deadline):
        stopped = True
    finally:
        limits.scanning(on=False)
    return {"items": collected.items, "more": collected.more, "partial": stopped}


def _shown(text: str, pattern: Pattern) -> str:
    """Return a line as the model sees it: of a very long line, only the part around its match."""
    is_whole = pattern.multiline or len(text.encode("utf-8", "surrogateescape")) != MAX_LINE
    text = _show(text)
    if len(text) <= MAX_SHOWN:
        return text
    match = None if pattern.multiline else pattern.regex.search(text)
    start = max(0, match.start() - 100) if match and match.start() > MAX_SHOWN - 100 else 0
    cut = f"line cut: {len(text):,} characters{'' if is_whole else ' or more'}"
    if match and start:
        return f"…{text[start : start + MAX_SHOWN]}… [{cut}; the match is at column {match.start() + 1:,}]"
    return f"{text[:MAX_SHOWN]}… [{cut}]"


def _show(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
