"""The names of the files of a tree, for a person who names one while they type."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from ccb.tunnel.wire.spelling import spelled, unspelled

from .globs import Ignore
from .walk import limit

Json = dict[str, Any]

MAX_ENTRIES, MAX_BYTES = 300_000, 32 << 20
_MAX_NAME = 1_000  # bytes of one path
_MAX_HITS = 1_500  # entries of one kind of match that are ranked
_FRESH_S = 2.0
_FIRST_S = 0.05  # longest wait of the first question for the first names
_IDLE_S = 300.0
_UNTYPED = b'"'  # a name with it cannot be written behind an `@`


class NameIndex:
    """The files and directories below `root` as they are spelled, those near it first. What git ignores is left out.
    Directories end with a slash, and links to directories are not followed."""

    def __init__(self, root: str) -> None:
        self.cut = False
        self._root = root
        self._names = self._folded = b"\n"  # every entry between two line ends; the second in lower case
        self._building: threading.Thread | None = None
        self._begun = threading.Event()
        self._stale_at = 0.0

    @property
    def settled(self) -> bool:
        """Whether everything that there is has been found."""
        return self._building is None or not self._building.is_alive()

    def refresh(self) -> None:
        """List the tree in a thread, unless that was done just now."""
        if self.settled and time.monotonic() >= self._stale_at:
            self._building = threading.Thread(target=self.build, daemon=True)
            self._building.start()
            self._begun.wait(_FIRST_S)

    def build(self, whole: bool = True) -> None:
        """List the tree, or only the entries of its root. What is found the first time can be asked for meanwhile."""
        began, found = time.monotonic(), bytearray(b"\n")
        first, publish_at = len(self._names) == 1, 0
        cut = False
        for count, name in enumerate(_walk(self._root)):
            if name is not None:
                found += name + b"\n"
                cut = count >= MAX_ENTRIES or len(found) > MAX_BYTES
                if cut:
                    break
            elif not whole:
                break
            elif first and len(found) > publish_at:
                self._publish(found)
                publish_at = 2 * len(found)
        self._publish(found)
        self.cut = cut
        now = time.monotonic()
        self._stale_at = now + max(_FRESH_S, 10 * (now - began))

    def _publish(self, found: bytearray) -> None:
        names = bytes(found)
        self._names, self._folded = names, names.lower()
        self._begun.set()

    def find(self, query: str, most: int) -> tuple[list[str], bool]:
        """Return at most `most` names for what a person has typed, best first, and whether there are more."""
        if query.startswith(("/", "~", "./", "../")) or query in (".", ".."):
            found = _listed(self._root, query)
        else:
            found = self._ranked(query.encode("utf-8", "replace").lower(), most)
        shown = [name.decode() for name in found if _UNTYPED not in name]
        return shown[:most], len(shown) > most

    def _ranked(self, query: bytes, most: int) -> list[bytes]:
        names, folded = self._names, self._folded
        if not query:
            top = [(name.startswith(b"."), name) for name in names[1 : 1 << 16].split(b"\n") if b"/" not in name[:-1]]
            return [name for _, name in sorted(top) if name]
        hits: dict[int, int] = {}  # where a line begins, and where it ends
        for wanted in (b"\n" + query, b"/" + query, query):
            hits.update(_lines_with(folded, wanted))
        if len(hits) <= most and len(query) > 1:
            hits.update(_lines_like(folded, query))
        ranked = sorted((_rank(folded[start:end], query), start, end) for start, end in hits.items())
        found = (names[start:end] for _, start, end in ranked[: most + 2])
        return [name for name in found if not (name.endswith(b"/") and name.lower() == query)]


def glimpse(root: str, query: str, most: int) -> Json:
    """Return an answer that knows only the entries of the root: it is there before the program has started."""
    index = NameIndex(root)
    index.build(whole=False)
    names, more = index.find(query, most)
    return {"names": names, "more": more, "settled": False, "cut": False}


def _walk(root: str) -> Iterator[bytes | None]:
    waiting = deque([(root, "", Ignore.at(root, excludes=True))])
    while waiting:
        directory, prefix, rules = waiting.popleft()
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        if prefix:
            rules = rules.below(directory, {entry.name for entry in found})
        for entry in found:
            is_directory = _is_directory(entry)
            if entry.name == ".git" or rules.ignores(entry.path, is_directory and not entry.is_symlink()):
                continue
            name = prefix + entry.name + ("/" if is_directory else "")
            encoded = spelled(name).encode("utf-8", "replace")
            if len(encoded) > _MAX_NAME:
                continue
            yield encoded
            if is_directory and not entry.is_symlink():
                waiting.append((entry.path, name, rules))
        yield None


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _listed(root: str, query: str) -> list[bytes]:
    """Return the entries of the directory, perhaps out of the tree, that a query names up to its last slash."""
    head, slash, tail = query.rpartition("/")
    if query in (".", "..", "~"):
        return [query.encode() + b"/"]
    try:
        with os.scandir(os.path.join(root, os.path.expanduser(unspelled(head + slash)))) as entries:
            found = [(spelled(entry.name), _is_directory(entry)) for entry, _ in zip(entries, range(_MAX_HITS))]
    except OSError:
        return []
    tail = tail.lower()
    chosen = [(not name.lower().startswith(tail), name, inside) for name, inside in found if tail in name.lower()]
    paths = [f"{head}{slash}{name}{'/' if inside else ''}" for _, name, inside in sorted(chosen)]
    return [path.encode("utf-8", "replace") for path in paths]


def _lines_with(text: bytes, wanted: bytes) -> Iterator[tuple[int, int]]:
    at = text.find(wanted)
    for _ in range(_MAX_HITS):
        if at < 0:
            return
        start = at + 1 if wanted[:1] == b"\n" else text.rfind(b"\n", 0, at) + 1
        end = text.find(b"\n", at + 1)
        yield start, end
        at = text.find(wanted, end)


def _lines_like(text: bytes, query: bytes) -> Iterator[tuple[int, int]]:
    letters = [re.escape(query[at : at + 1]) for at in range(len(query))]
    parts = [b"[^%b\n]*%b" % (each, each) for each in letters]
    for _, match in zip(range(_MAX_HITS), re.finditer(b"^" + b"".join(parts) + b"[^\n]*", text, re.MULTILINE)):
        yield match.span()


def _rank(name: bytes, query: bytes) -> tuple[int, int, int]:
    """Return what a match is sorted by: the kind of the match, then short names first."""
    path = name[:-1] if name.endswith(b"/") and not query.endswith(b"/") else name
    base = path[path.rfind(b"/", 0, len(path) - 1) + 1 :]
    if base == query or base.rpartition(b".")[0] == query or path == query:
        kind = 0
    elif base.startswith(query):
        kind = 1
    elif path.startswith(query):
        kind = 2
    elif b"/" + query in path or re.search(rb"[._-]" + re.escape(query), base):
        kind = 3
    elif query in base:
        kind = 4
    elif query in path:
        kind = 5
    else:
        kind = 6 if next(_lines_like(base, query), None) else 7
    if query.endswith(b"/"):  # the entries of a directory, in the order of their names
        return kind, path.count(b"/", 0, len(path) - 1), 0
    return kind, 0, len(name)


def main(argument: str) -> None:
    """Answer questions on stdin about the tree below `argument`, a JSON object a line each way, while a thread lists
    the tree. Of several that wait, only the newest is answered. End with stdin, or when nobody asks for minutes."""
    limit()
    sys.setswitchinterval(0.001)
    index = NameIndex(argument)
    index.refresh()
    waiting = b""
    while select.select([0], [], [], _IDLE_S)[0]:
        data = os.read(0, 1 << 16)
        if not data:
            return
        lines = (waiting + data).split(b"\n")
        waiting = lines.pop()
        if lines:
            question = json.loads(lines[-1])
            index.refresh()
            names, more = index.find(question["query"], question["most"])
            answer = {"n": question["n"], "names": names, "more": more, "settled": index.settled, "cut": index.cut}
            os.write(1, json.dumps(answer).encode() + b"\n")
