"""The entry point of the search: takes a request and returns a result, both JSON objects."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time

from ccb.tunnel.wire.spelling import spelled

from .globs import TYPES, BadRequest, Globs, Ignore
from .scan import MAX_LINE, MAX_SHOWN, Pattern, scan
from .walk import MAX_WHOLE, SLOW_S, Deadline, Limits, files, limit, with_times

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable

    from .walk import Found

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
    except BadRequest as error:
        result = {"error": str(error)}
    signal.setitimer(signal.ITIMER_REAL, 0)  # when Python ends, it takes its handlers back before it is gone
    sys.stdout.write(json.dumps(result))  # noqa: TID251 - the answer of a program
    sys.stdout.flush()


def answer(request: Json, limits: Limits | None = None) -> Json:
    """Return `{"items": [...], "partial": bool, "more": bool, ...}`. `partial`: the time ran out before the search was
    complete. `more`: the limit cut the result. Raise BadRequest for a request that cannot be answered."""
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
    found = search(request, limits)
    where = spelled(limits.stopped_in) if limits.late else ""
    return {**found, "partial": limits.late, "stopped_in": where, "notes": _notes(request, limits)}


def _notes(request: Json, limits: Limits) -> list[str]:
    """Return sentences for the model about what was not searched."""
    foreign = {os.path.relpath(path, request["root"]) for path in limits.foreign}
    entries, within = _counted(len(limits.ignored), "it", "entries"), _counted(len(foreign), "it", "files")
    unread = _counted(len(limits.unread), "1 file or directory", "files or directories")
    lines = _counted(limits.cut, "1 line over 16 MiB was", "lines over 16 MiB were")
    large = _counted(limits.large, "1 file over 32 MiB was", "files over 32 MiB were")
    ascii_only = f"so that only ASCII text is found and shown in {within}: {_named(foreign)}"
    unobeyed, odd = limits.start.unobeyed, "being unreadable, no regular file, or over 1 MiB or 10,000 lines"
    binary = "It is a binary file, and was not searched. Use a program in Bash, such as `strings`."
    notes = (
        (limits.left_out, "Files that permission rules keep from this tool were left out."),
        (limits.ignored, f"Not searched, because .gitignore leaves {entries} out: {_named(limits.ignored)}."),
        (unobeyed, f"Not obeyed, {odd}: {_named(unobeyed)}."),
        (limits.unread, f"{unread} could not be read."),
        (limits.cut, f"{lines} not searched to the end."),
        (foreign, f"Not in UTF-8, {ascii_only}."),
        (limits.binary and request.get("file"), binary),
        (limits.slow, f"A pattern takes too long in {_named(limits.slow)}: the rest was not searched."),
        (limits.large, f"{large} not searched: multiline is on."),
    )
    return [f"({note})" for is_so, note in notes if is_so]


def _counted(number: int, one: str, many: str) -> str:
    return one if number == 1 else f"{number:,} {many}"


def _named(paths: set[str]) -> str:
    named = sorted(paths, key=lambda path: (path.count("/"), path))[:_NAMED]
    return ", ".join(map(spelled, named)) + (", …" if len(paths) > _NAMED else "")


def _chosen(request: Json) -> list[Globs]:
    of_type = TYPES[request["type"]] if request.get("type") else ()
    return [Globs(list(globs)) for globs in (request["globs"], of_type) if globs]


def _glob(request: Json, limits: Limits) -> Json:
    root, most = request["root"], request["limit"]
    paths = files(root, _chosen(request), limits, request["rg"])
    found = _allowed(request, with_times(root, paths, limits), limits)
    return {"items": [spelled(path) for path, _ in found[:most]], "more": len(found) > most}


def _grep(request: Json, limits: Limits) -> Json:
    pattern = Pattern(request["pattern"], request["ignore_case"], request["multiline"])
    collected, root = _Collected(request["offset"], request["limit"]), request["root"]
    try:
        if request.get("file"):
            paths = [request["file"]]
        else:
            texts = [text.decode() for text in pattern.texts] if pattern.is_ascii else []  # else it may be no UTF-8
            paths = files(root, _chosen(request), limits, request["rg"], texts, pattern.ignore_case)
        candidates = _allowed(request, with_times(root, paths, limits), limits)
        if request["mode"] != "files_with_matches":
            candidates.sort()
        candidates.sort(key=lambda file: file[1] > MAX_WHOLE)  # those take so long that the others come first
        for path, _ in candidates:
            if collected.more:
                break
            limits.stopped_in = path
            limits.check()
            limits.timed(SLOW_S, path, _search_file, request, path, pattern, collected, limits)
    except Deadline:
        limits.end_listing()
    counts = {"files": collected.files, "matches": collected.matches}
    return {"items": collected.items, "more": collected.more, **counts}


def _allowed(request: Json, files: list[Found], limits: Limits) -> list[Found]:
    """Return the files that no permission rule excludes (`left_out` of the request: regular expressions of absolute
    paths in lower case). Links are not followed, so a file has two names at most. Unless the search starts there, the
    directory `sessions` of ccb is removed too: a journal contains every word that was ever searched for."""
    roots = {request["root"], os.path.realpath(request["root"])}
    sessions = request.get("sessions") or ""
    tops = tuple({top + os.sep for top in (sessions, os.path.realpath(sessions)) if sessions})
    if tops and not any(os.path.join(root, "").startswith(tops) for root in roots):
        files = [file for file in files if not any(os.path.join(root, file[0]).startswith(tops) for root in roots)]
    expressions = request.get("left_out")
    if not expressions:
        return files
    denied = re.compile("|".join(f"(?:{each})" for each in expressions), re.DOTALL)
    kept = [
        file for file in files if not any(denied.fullmatch(os.path.join(root, file[0]).casefold()) for root in roots)
    ]
    limits.left_out = len(kept) < len(files)
    return kept


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
