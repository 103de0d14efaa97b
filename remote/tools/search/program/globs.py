"""Glob patterns for paths relative to the searched directory."""

from __future__ import annotations

import re
from functools import lru_cache

MAX_ALTERNATIVES = 256
_MAX_BRACES = 16


class BadGlob(Exception):
    """The pattern is invalid or too complex; the text says why."""


def expand_braces(pattern: str) -> list[str]:
    """Expand `*.{a,b}` to `*.a` and `*.b`, nested braces too. An unclosed brace and one without a comma are literal.
    Raise BadGlob for too many patterns or braces."""
    if pattern.count("{") > _MAX_BRACES:
        raise BadGlob(f"the glob {pattern[:100]!r} has more than {_MAX_BRACES} opening braces")
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop(0)
        span = _first_braces(text)
        if span is None:
            done.append(text)
        else:
            start, end, parts = span
            waiting[:0] = [text[:start] + part + text[end:] for part in parts]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise BadGlob(f"the glob {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns")
    return done


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    for start, char in enumerate(text):
        if char != "{" or (start and text[start - 1] == "\\"):
            continue
        depth, parts, at = 0, [], start + 1
        for i in range(start, len(text)):
            if text[i] == "{":
                depth += 1
            elif text[i] == "}":
                depth -= 1
                if depth == 0:
                    parts.append(text[at:i])
                    if len(parts) > 1:
                        return start, i + 1, parts
                    break
            elif text[i] == "," and depth == 1:
                parts.append(text[at:i])
                at = i + 1
    return None


@lru_cache(maxsize=1024)
def translate(glob: str) -> str:
    """Return the regular expression (for fullmatch) of a glob without braces. `*` and `?` stay inside a name; `**` as a
    whole component matches any number of directories."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            piece, at = _stars(glob, at)
        elif char == "?":
            piece, at = "[^/]", at + 1
        elif char == "[":
            piece, at = _bracket(glob, at)
        elif char == "\\" and at + 1 < len(glob):
            piece, at = re.escape(glob[at + 1]), at + 2
        else:
            piece, at = re.escape(char), at + 1
        out.append(piece)
    return "".join(out)


def _stars(glob: str, start: int) -> tuple[str, int]:
    """Return the expression for a run of stars, and the index after it. A component of two or more stars matches across
    directories."""
    end = start
    while end < len(glob) and glob[end] == "*":
        end += 1
    if end - start >= 2 and (start == 0 or glob[start - 1] == "/"):
        if glob[end : end + 1] == "/":
            return "(?:[^/]+/)*", end + 1
        if end == len(glob):
            return ".+", end
    return "[^/]*", end


def _bracket(glob: str, start: int) -> tuple[str, int]:
    at = start + 1
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    end = glob.find("]", at + 1)
    if end < 0:
        return re.escape("["), start + 1
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[at:end])
    piece = f"(?!/)[{'^' if negated else ''}{inner}]"
    try:
        re.compile(piece)
    except re.error:
        return re.escape(glob[start : end + 1]), end + 1
    return piece, end + 1


class Globs:
    """A set of globs that choose files. A pattern without a slash matches names at any depth; one with a slash is
    anchored where the search starts. A pattern that starts with `!` excludes files, and everything below the
    directories it matches."""

    def __init__(self, patterns: list[str]) -> None:
        wanted: list[str] = []
        unwanted: list[str] = []
        self._names: list[str] | None = []
        for pattern in patterns:
            negated = pattern.startswith("!")
            for glob in expand_braces(pattern[negated:]):
                glob = glob[2:] if glob.startswith("./") else glob
                (unwanted if negated else wanted).append(_anchored(glob))
                if not negated:
                    self._note_name(glob)
        self._wanted = _any_of(wanted)
        self._unwanted = _any_of([f"{each}(?:/.*)?" for each in unwanted])
        if not wanted:
            self._names = None

    def match(self, path: str) -> bool:
        """Return whether the globs choose the file at this relative path."""
        if self._unwanted is not None and self._unwanted.fullmatch(path):
            return False
        return self._wanted is None or self._wanted.fullmatch(path) is not None

    @property
    def names(self) -> list[str] | None:
        """The including patterns if all of them match names only, so that they can be passed to ripgrep as a
        file type; else None."""
        return self._names

    def _note_name(self, glob: str) -> None:
        if self._names is not None:
            # no `?`: in a file type of ripgrep it matches a byte, here a character
            simple = re.fullmatch(r"[\w.*+@-]+", glob, re.ASCII) and "**" not in glob
            self._names = [*self._names, glob] if simple else None


def _anchored(glob: str) -> str:
    if glob.endswith("/"):
        glob += "**"
    if "/" not in glob:
        return "(?:.*/)?" + translate(glob)
    return translate(glob.lstrip("/"))


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.DOTALL) if patterns else None
