"""Texts that take a parser long: deep nesting, repetition, long lines, many tiny parts, and almost-matches.

`python -m tests.parsers.attacks --minutes 5` tries random ones on every parser of foreign data. No parser may use more
than LIMIT_S of CPU for a text of SIZE bytes.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

LIMIT_S = 2.0
SIZE = 200_000

UNITS = {
    "html": (
        "<", "</", "<a", "<a ", "<a href=", "<a href='", '<a b="', "<a href=b>", "</a>", "<!--", "-->", "<!", "<![",
        "<?", ">", "<p", "<li>", "<ul>", "<svg>", "<title>", "<script>", "</script", "<base href=x/",
        "&#9", "&", "&amp", "&#x", "=", "/", " ", "\n", "'", '"', "x", "<br/>", "<b><i>", "<pre>", "<code>",
        "<td>", "<blockquote>",
    ),
    "markdown": (
        "[", "]", "](", "[a](", "![", "*", "**", "_", "~~", "`", "``", "<", "<a", "&", "\\", "> ", "- ", "* a\n", "1. ",
        "|", "|-", "a|b\n-|-\n", "\n", " ", "    ", "\t", "x", "[a]: ", "[a]: b\n", "```\n", "# ", "---\n", "http://a",
    ),
    "yaml": (
        "a:", "a: ", "- ", "-", "\n", "\n ", "\n  ", " ", "\t", "'", '"', "\\", "[", "]", "{", "}", ",", "#", " #", "|",
        ">", "x", ":", "---\n", "a: |\n", "0", "''", "[a, ", '"0',
    ),
    "text": (
        "\n", "\r", "\r\n", " ", "\t", "a", "ab\n", '"', "“", "'", "\\", "x\r\n", "\x1b[", "\x1b]", "\x08", "é", "@a ",
        "@\"", "`", "```\n", "~~~", "⟨", "⇥", "<tool_use_error>", "data:", "event:", ": ", "{", "[", '{"a":', "],",
    ),
    "pdf": (
        "/ObjStm", "/ObjStm stream\n", "stream\r\n", "endstream", "/Type", "/Type ", "/Type/Page ", " ", "\n", "x",
        "\x78\x9c", "\x78\x9c\x03\x00",
    ),
    "notebook": (
        '{"cells":[', "[],", '{"source":"x"},', '{"source":["a"]},', "[", "{", '{"outputs":[{"data":{}}]},', '"', "0,",
        '{"outputs":[{"data":{"image/png":""}}]},', "]}",
    ),
    "json": (
        "{", "[", "}", "]", '{"', '"', '{"a":', "[[],", "9", "1e9", "9.", "-", ",", ":", "\n", " ", "\\", "\\ud800",
        "\x1b[", "\x1b]", '{"decision":"block"}', '"decision": ', "continue", "permissionDecision", "}\n{", "\n{",
        "null", "data:", '{"id":1,', "false",
    ),
    "code": (
        "\n", " ", "\t", "a", "a\n", "a ", " \n", "*", "(", "<", "'", '"', "/*", "$", "#", "{", "}", "a(", ":", "\\",
    ),
    "glob": ("*", "**", "**/", "/", "a", "a*", "*/", "?", "[a]", "[", "{a,b}", "{", "b", "/**"),
    "schema": ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    "shell": (
        "a", " ", ";", "|", "&&", "(", ")", "{ ", "}", "$(", "`", "'", '"', "\\", "\n", "<", ">", "<<a\n", "a=b ", "*",
        "~/", "rm ", "cat ", "if ", "do ", "$a", "${a", "sh -c '", "xargs ", "env ", "git -c a=b ", "--a=", "-", "/",
        "../", ".env ", "{a,b}", "[a", "find . -exec ", "sed -n ",
    ),
}  # fmt: skip
"""What texts of a language are made of."""


class Slow(Exception):
    """A parser has used too much CPU."""


def fixed(language: str, size: int = SIZE) -> Iterator[str]:
    """Yield the texts that every run tries: each unit repeated, and each behind each other one."""
    units = UNITS[language]
    for unit in units:
        yield unit * (size // len(unit))
        yield "x" + unit * (size // len(unit)) + "x\n"
    for first in units:
        for unit in units:
            pair = first + unit
            if len(first) > 1 or first in "<[*`\n'\"":
                yield pair * (size // len(pair))


def drawn(language: str, chance: random.Random, size: int = SIZE) -> str:
    """Return a random text: a few parts, each a short sequence that is repeated."""
    units, parts = UNITS[language], []
    for _ in range(chance.randint(1, 4)):
        part = "".join(chance.choices(units, k=chance.randint(1, 5)))
        parts.append(part * max(1, chance.choice((1, 10, size // 4)) // len(part)))
    return "".join(parts)[:size]


def is_parsed(
    name: str,
    parse: Callable[[str], object],
    text: str,
    refusals: tuple[type[Exception], ...] = (),
    limit: float = LIMIT_S,
) -> bool:
    """Return whether a parser takes a text, or refuses it with one of `refusals`. Raise Slow if it uses too much CPU,
    and what else it raises."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Slow(f"{name} takes more than {limit:g} s for {text[:60]!r}… of {len(text):,} characters")

    before = signal.signal(signal.SIGVTALRM, late)
    started = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        parse(text)
        taken = True
    except refusals:
        taken = False
    except Exception as error:
        error.add_note(f"{name} got {text[:60]!r}… of {len(text):,} characters")
        raise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if time.process_time() - started > limit:
        late(0, None)
    return taken


def main() -> int:
    """Try random texts until the time is over. Print what is slow, and return 1 for it."""
    from .parsers import PARSERS

    options = argparse.ArgumentParser()
    options.add_argument("--minutes", type=float, default=1)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = options.parse_args()
    chance, end, tried, slow = random.Random(given.seed), time.monotonic() + 60 * given.minutes, 0, 0
    while time.monotonic() < end:
        for name, (parse, language, refusals) in PARSERS.items():
            text = drawn(language, chance)
            tried += 1
            try:
                is_parsed(name, parse, text, refusals)
            except Slow as found:
                slow += 1
                sys.stdout.write(f"{found}\n")
    sys.stdout.write(f"{tried:,} texts, seed {given.seed}: {slow} slow\n")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
