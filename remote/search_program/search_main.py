"""The entry point of the search: takes a request and returns a result, both JSON objects."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time

from ccb.tunnel.wire.spelling import spelled

from .globs import TYPES, BadGlob, Globs, Ignore
from .scan import MAX_LINE, MAX_SHOWN, BadRequest, Pattern, scan
from .walk import MAX_WHOLE, SLOW_S, Deadline, Found, Limits, files, limit, with_times

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable

    Json = dict[str, Any]

MAX_ITEMS = 100_000
_NAMED = 3
_TICK_S = 0.25
MAX_CHARS = 2_000_000
"""Limits of a result. Everything beyond them is left out."""


def main(argument: str) -> None:
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
    if request["op"] == "filter":
        return _filter(request, limits)
    path = os.path.join(request["root"], request.get("file") or "")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        raise BadRequest(f"{spelled(path.rstrip('/') or '/')}: {error.strerror or error}") from None
    limits.start = Ignore.at(request["root"], request.get("project", ()))
    search: Callable[[Json, Limits], Json] = {"glob": _glob, "grep": _grep}[request["op"]]
    return {
        **search(request, limits),
        "partial": limits.late,
        "unread": len(limits.unread),
        "ignored": _few(limits.ignored),
        "unobeyed": _few(limits.start.unobeyed),
        "slow": _few(limits.slow),
        "foreign": _few({os.path.relpath(path, request["root"]) for path in limits.foreign}),
        "cut": limits.cut,
        "large": limits.large,
        "binary": limits.binary if request.get("file") else 0,
        "stopped_in": spelled(limits.stopped_in) if limits.late else "",
    }


def _few(paths: set[str]) -> Json:
    """Return how many paths there are, and the first few of them."""
    named = sorted(paths, key=lambda path: (path.count("/"), path))[:_NAMED]
    return {"count": len(paths), "named": [spelled(path) for path in named]}


def _chosen(request: Json) -> list[Globs]:
    of_type = TYPES[request["type"]] if request.get("type") else ()
    return [Globs(list(globs)) for globs in (request["globs"], of_type) if globs]


def _glob(request: Json, limits: Limits) -> Json:
    root, most = request["root"], request["limit"]
    paths = files(root, _chosen(request), limits, request["rg"])
    found, left_out = _allowed(request, with_times(root, paths, limits))
    return {"items": [spelled(file.path) for file in found[:most]], "more": len(found) > most, "left_out": left_out}


def _grep(request: Json, limits: Limits) -> Json:
    pattern = Pattern(request["pattern"], request["ignore_case"], request["multiline"])
    collected = _Collected(request["offset"], request["limit"])
    left_out = False
    try:
        candidates, left_out = _allowed(request, _candidates(request, pattern, limits))
        if request["mode"] != "files_with_matches":
            candidates.sort(key=lambda file: file.path)
        candidates.sort(key=lambda file: file.size > MAX_WHOLE)  # those take so long that the others come first
        for file in candidates:
            if collected.more:
                break
            limits.stopped_in = file.path
            limits.check()
            limits.timed(SLOW_S, file.path, _search_file, request, file.path, pattern, collected, limits)
    except Deadline:
        limits.end_listing()
    return {
        "items": collected.items,
        "more": collected.more,
        "files": collected.files,
        "matches": collected.matches,
        "left_out": left_out,
    }


def _allowed(request: Json, files: list[Found]) -> tuple[list[Found], bool]:
    """Return the files that no permission rule excludes (`left_out` of the request: regular expressions of absolute
    paths in lower case), and whether one does. Links are not followed, so a file has two names at most. Unless the
    search starts there, the directory `sessions` of ccb is removed too: a journal contains every word that was ever
    searched for."""
    roots = {request["root"], os.path.realpath(request["root"])}
    sessions = request.get("sessions") or ""
    tops = tuple({top + os.sep for top in (sessions, os.path.realpath(sessions)) if sessions})
    if tops and not any(os.path.join(root, "").startswith(tops) for root in roots):
        files = [file for file in files if not any(os.path.join(root, file.path).startswith(tops) for root in roots)]
    expressions = request.get("left_out")
    if not expressions:
        return files, False
    denied = re.compile("|".join(f"(?:{each})" for each in expressions), re.DOTALL)
    kept = [
        file for file in files if not any(denied.fullmatch(os.path.join(root, file.path).casefold()) for root in roots)
    ]
    return kept, len(kept) < len(files)


def _candidates(request: Json, pattern: Pattern, limits: Limits) -> list[Found]:
    root = request["root"]
    if request.get("file"):
        return with_times(root, [request["file"]], limits)
    # else the scan looks for what is not in UTF-8
    texts = [text.decode() for text in pattern.texts] if pattern.is_ascii else []
    paths = files(root, _chosen(request), limits, request["rg"], texts, pattern.ignore_case)
    return with_times(root, paths, limits)


class _Collected:
    """The items of a result between the requested offset and limit."""

    def __init__(self, offset: int, limit: int) -> None:
        self.items: list[str] = []
        self.more = False
        self.files = 0
        self.matches = 0
        self._skip = offset
        self._limit = min(limit or MAX_ITEMS, MAX_ITEMS)
        self._chars = 0

    def add(self, item: str) -> None:
        if self._skip:
            self._skip -= 1
        elif len(self.items) >= self._limit or self._chars > MAX_CHARS:
            self.more = True
        else:
            self.items.append(item)
            self._chars += len(item)


def _search_file(request: Json, path: str, pattern: Pattern, collected: _Collected, limits: Limits) -> bool:
    """Collect the name of a file with a match, the number of its matching lines, or these lines and their context;
    `--` stands between lines that do not follow each other. Return whether there is a match."""
    mode, name, cut = request["mode"], spelled(path), limits.cut
    before, after = (request["before"], request["after"]) if mode == "content" else (0, 0)
    last = count = 0
    earlier = collected.files
    for number, text, matches in scan(os.path.join(request["root"], path), pattern, before, after, limits):
        count += matches
        collected.matches += matches
        collected.files = earlier + 1
        if mode == "files_with_matches":
            limits.cut = cut  # a match was found, so it does not matter that some line was not searched to its end
            collected.add(name)
            return True
        if mode == "content":
            if (before or after) and (number != last + 1 if last else earlier):
                collected.add("--")
            sign = ":" if matches else "-"
            shown = f"{number}{sign}" if request["numbers"] else ""
            collected.add(f"{name}{sign}{shown}{_shown(text, pattern)}")
            if collected.more:
                break
        last = number
    if mode == "count" and count:
        collected.add(f"{name}:{count}")
    return count > 0


def _filter(request: Json, limits: Limits) -> Json:
    pattern = Pattern(request["pattern"])
    with open(request["path"], "rb") as file:
        file.seek(request["start"])
        data = file.read(request["end"] - request["start"])
    collected = _Collected(0, 0)

    def look() -> bool:
        for raw in data.split(b"\n"):
            limits.check()
            if pattern.line(raw) is not None:
                collected.add(raw.decode("utf-8", "replace"))
        return True

    try:
        is_whole = limits.timed(SLOW_S, request["path"], look)
    except Deadline:
        is_whole = False
    return {"items": collected.items, "more": collected.more, "partial": not is_whole}


def _shown(text: str, pattern: Pattern) -> str:
    is_whole = pattern.multiline or len(text.encode("utf-8", "surrogateescape")) != MAX_LINE
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if len(text) <= MAX_SHOWN:
        return text
    match = None if pattern.multiline else pattern.regex.search(text)
    start = max(0, match.start() - 100) if match and match.start() > MAX_SHOWN - 100 else 0
    cut = f"line cut: {len(text):,} characters{'' if is_whole else ' or more'}"
    if match and start:
        return f"…{text[start : start + MAX_SHOWN]}… [{cut}; the match is at column {match.start() + 1:,}]"
    return f"{text[:MAX_SHOWN]}… [{cut}]"
