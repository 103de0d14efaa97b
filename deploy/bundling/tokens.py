"""The tokens of Python 3.9 source, as far as a program needs them that shortens it.

`tokenize` would give other tokens for f-strings from Python 3.12 on, and the bundle is the same under every Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PATTERN = re.compile(
    r"""
    (?P<string> (?i:[rbfu]{0,2}) (?: \"{3} (?: [^"\\] | \\. | "(?!"") )* \"{3}
                  | '{3} (?: [^'\\] | \\. | '(?!'') )* '{3}
                  | " (?: [^"\\\n]+ | \\. )* "
                  | ' (?: [^'\\\n]+ | \\. )* ' ) )
    | (?P<name> [^\W\d]\w* )
    | (?P<space> (?: [ \t\f] | \\\n )+ )
    | (?P<operator> \*\*=? | //=? | >>=? | <<=? | -> | := | [-+*/%&|^=<>!@]= | [^\n\d\w.] | \.(?!\d) )
    | (?P<line> (?: [ \t]* \n )+ )
    | (?P<number> \.?\d (?: [eE][+-] | [\w.] )* )
    """,
    re.VERBOSE | re.DOTALL,
)

_FORMATTED = re.compile(r"[rR]?[fF]")


def tokens(source: str) -> Iterator[tuple[str, str]]:
    """Return the tokens of `source`, which has no comments: kind and text. Together the texts are `source`.

    A kind is `string`, `name`, `number`, `line` (an end of lines), `space` or `operator`.
    """
    for match in _PATTERN.finditer(source):
        yield match.lastgroup or "", match[0]


def is_formatted(string: str) -> bool:
    """Return whether a token of the kind `string` is an f-string."""
    return _FORMATTED.match(string) is not None
