"""What a hook has printed: answers as JSON objects, among other text. A no that cannot be read still counts."""

from __future__ import annotations

import json
import re
from typing import Any

from .dataclass import dataclass
from .frames import Json

ANSWERS = frozenset(
    ("continue", "stopReason", "suppressOutput", "systemMessage", "decision", "reason", "hookSpecificOutput", "async")
)
"""The fields that tell an answer from other JSON that a hook prints."""
_MARKS = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-~]|[\ufeff\ufffd\0]")
"""What is no part of a text: colours and titles for a terminal, byte order marks, and the zeros of UTF-16."""
_OBJECT = re.compile(r"(?:^|(?<=\}))[ \t,]*(?=\{)", re.MULTILINE)
_HAS_JSON = re.compile(r"""\A\{|^[ \t]*(?:\{[ \t]*(?:["'}]|$)|\[[ \t]*(?:[\[{"'\]]|$))""", re.MULTILINE)
_DECIDES = re.compile(
    r"""permissionDecision\W{1,8}(?:deny|ask|allow|block|approve)\b"""
    r"""|["'](?:decision|behavior)\\*["']\s*:\s*\\*["'](?:ask|allow|approve)\\*["']"""
    r"""|["']\s*:\s*\\*["']\s*(?:den(?:y|ied)|block(?:ed)?|reject(?:ed)?)\s*\\*["']"""
    r"""|^[^\w\n]{0,20}(?:permission[_ ])?(?:decision|behavior)\W{1,8}(?:deny|block)\b"""
    r"""|["'](?:continue|allowed)["']\s*:\s*["']?false|\A\W*(?:(?:deny|block|ask)\W*\Z|(?:denied|blocked)\b)""",
    re.IGNORECASE | re.MULTILINE,
)
_REFUSES = re.compile("den(?:y|ied)|block|reject|ask|false", re.IGNORECASE)
_NOT_LOADED = re.compile(
    r"Cannot find (?:module|package)|No module named|\bSyntaxError\b|\bImportError\b|\bLoadError\b|Module not found"
    r"|Script not found|Could not open input file|Unable to access jarfile|could not determine executable"
)
"""What interpreters say of a program that they cannot load: node, Python, Ruby, deno, bun, PHP, Java and npx, which
then end with the exit code of any other failure."""
_MAX_TRIES = 100  # lines that begin like an object and are none


@dataclass(frozen=True)
class PrintedAnswers:
    """The answers in an output, the text around them, and what of that is no JSON object."""

    answers: tuple[Json, ...]
    rest: str
    broken: str

    @property
    def has_broken_json(self) -> bool:
        return _HAS_JSON.search(self.broken) is not None


def could_not_decide(code: int, said: str) -> bool:
    """Return whether a failed command was not found, cannot be run or loaded, or was ended by a signal, by its exit
    code and stderr. A shell adds 128 to the number of a signal."""
    return code in (126, 127) or code < 0 or 128 < code < 160 or _NOT_LOADED.search(said) is not None


def plain(text: str) -> str:
    """Return an output without colours, byte order marks and blanks around it."""
    return _MARKS.sub("", text).strip()


def names_decision(text: str) -> bool:
    return _DECIDES.search(text) is not None


def names_refusal(text: str) -> bool:
    return any(_REFUSES.search(found[0]) for found in _DECIDES.finditer(text))


def read_printed(text: str) -> PrintedAnswers:
    """Find the JSON objects in an output: each begins a line, or follows another. One without a field of an answer
    belongs to the text around."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, strict=False)  # shells put real newlines into texts
    answers, rest, broken = [], [], []
    at = tries = 0
    for place in _OBJECT.finditer(text):
        if place.start() < at or tries == _MAX_TRIES:
            continue
        try:
            value, end = decoder.raw_decode(text, place.end())
        except (ValueError, RecursionError):
            tries += 1
            continue
        broken.append(text[at : place.start()])
        rest.append(text[at : place.start()])
        if value.keys() & ANSWERS or not value:
            answers.append(value)
        else:
            rest.append(text[place.start() : end])
        at = end
    return PrintedAnswers(tuple(answers), "".join([*rest, text[at:]]).strip(), "\n".join([*broken, text[at:]]).strip())


def _object(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found
