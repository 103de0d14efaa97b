"""A strict reader of what a program writes to its terminal: all that is not in the short list of what ccb itself sends
is a stranger."""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r"""
    \x1b \[ [0-?]* [ -/]* [@-~]                          # CSI
  | \x1b [\]PX^_] [^\x07\x1b\x9c]* (?: \x07 | \x1b \\ | \x9c )? # OSC, DCS, SOS, PM, APC
  | \x1b [ -/]* [0-~]?                                   # every other escape sequence
  | [\x00-\x1f\x7f-\x9f]                                 # C0 and C1
  | [\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U0010eeee] # no plain text, or an image
    """,
    re.VERBOSE,
)
_OWN = re.compile(
    r"""
    \x1b \[ (?:
        [0-9;]* m                                         # colours
      | \d+ ; \d+ H                                       # the cursor, to a cell
      | [?] (?: 7 | 25 | 1000 | 1003 | 1004 | 1006 | 1015 | 1049 | 2004 | 2026 | 2048 ) [hl] # modes
      | [?] (?: 2026 | 2048 ) \$ p                        # what the terminal can do
      | [<>] \d* u                                        # kitty's keyboard
      | 2 [23] ; 2 t                                      # the title of before
    )
  | \x1b \] 11 ; [?] (?: \x07 | \x1b \\ )                 # which background?
  | \x1b \] 22 ; [a-z-]* \x07                            # the form of the pointer
  | \n | \x07                                            # the next line, the bell
    """,
    re.VERBOSE,
)
_SHOWN_LINK = re.compile(r"\x1b\]8;id=[0-9-]+;(https?://[!-~]+)\x1b\\(.*?)\x1b\]8;;\x1b\\")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_MARKS = 8
_HEAP = re.compile(f"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]{{{_MAX_MARKS + 1},}}")


def strangers(written: str, *allowed: str) -> list[str]:
    """Return the sequences and control characters in `written` that ccb does not send, and heaps of marks on one cell.
    `allowed` are regular expressions of what else may be there, such as the title of this test."""
    also = [re.compile(each, re.DOTALL) for each in allowed]
    tokens = [match[0] for match in _TOKENS.finditer(_SHOWN_LINK.sub(_without_link, written))]
    unknown = [each for each in tokens if not _OWN.fullmatch(each) and not any(one.fullmatch(each) for one in also)]
    return [*unknown, *_HEAP.findall(written)]


def _without_link(match: re.Match[str]) -> str:
    """Return the text of a link that leads to the address of which it is a part; any other link as it is."""
    return match[2] if _COLOURS.sub("", match[2]) in match[1] else match[0]
