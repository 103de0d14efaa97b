"""What a shell of the host may print on this terminal: everything that draws, and nothing that reads from this machine
or acts on it beyond the screen. What is not known to draw is left out, so a terminal's oddities cannot be reached."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

_MAX_HELD = 1024  # characters of a sequence that is not complete yet
_STRING = "[^\x00-\x1f\x7f-\x9f]*"
_TOKEN = re.compile(
    rf"""
    \x1b (?! \[ [0-9;:]* [mABCDGHJK] )  # what is by far the most gets through without a look
    (?: \[ (?P<before>[<-?]?) (?P<numbers>[0-;]*) (?P<between>[ -/]*) (?P<final>[@-~]?)
      | \] (?P<number>[0-9]*);? (?P<title>{_STRING}) (?: \x07 | \x1b\\ | \x9c )?
      | [PX^_k] [^\x07\x18\x1a\x1b\x9c]* (?: \x1b\\ | [\x07\x9c] )?
      | (?P<escape>[ -/]*[0-~]?)
    )
  | [\x00-\x06\x10-\x1a\x1c-\x1f\x7f-\x9f\U0010eeee]
    """,
    re.VERBOSE,
)
_INCOMPLETE = re.compile(rf"\x1b(?:\[[0-?]*[ -/]*|\]{_STRING}|[PX^_k][^\x07\x18\x1a\x1b\x9c]*|[ -/]*)?\Z")
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b\x9c]")

_ESCAPES = re.compile(r"[78=>DEHMNOc]|[()*+][0-9A-Z]|#[3-68]")
# Sequences by what stands before and between their numbers, and their last letters. Questions about what the terminal
# can do are among them (c, n, q, p, u): programs wait for their answers, and those go to the host's program only.
_SEQUENCES = {
    ("", ""): "@ABCDEFGHIJKLMPSTXZ`abcdefgmnrsu",
    ("?", ""): "JKmnrsu",
    (">", ""): "cmnqu",
    ("=", ""): "cu",
    ("<", ""): "u",
    ("", " "): "q",
    ("", "!"): "p",
    ("?", "$"): "p",
}
_ANSI_MODES = re.compile("4|20")
_MODES = re.compile(r"[15-9]|12|25|4[57]|6[69]|100[0-7]|101[56]|103[469]|104[789]|2004|202[67]|2031|2048")
_FULL_SCREEN = frozenset(("47", "1047", "1049"))
_TITLES = ("0", "1", "2")
_MAX_TITLE = 200
KEEP_TITLE, TITLE_BACK = "\x1b[22;0t", "\x1b[23;0t"


class OutputFilter:
    """Filters an output that comes in pieces. `full_screen`: a program has switched to the other screen."""

    def __init__(self) -> None:
        self.full_screen = False
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_string = False  # one that is too long to hold

    def feed(self, data: bytes) -> str:
        text = self._held + self._decoder.decode(data)
        self._held = ""
        if self._in_string:
            end = _STRING_END.search(text)
            if end is None:
                return ""
            text = text[end.start() if end[0] == "\x1b" else end.end() :]
            self._in_string = False
        last = text.rfind("\x1b")
        if last >= 0 and _INCOMPLETE.match(text, last):
            text, self._held = text[:last], text[last:]
            if len(self._held) > _MAX_HELD:
                self._held, self._in_string = "", True
        return _TOKEN.sub(self._passed, text)

    def _passed(self, match: re.Match[str]) -> str:
        """Return what a sequence or a control character becomes."""
        if (escape := match["escape"]) is not None:
            self.full_screen = self.full_screen and escape != "c"
            return match[0] if _ESCAPES.fullmatch(escape) else ""
        if match["number"] in _TITLES:
            return f"\x1b]{match['number']};{match['title'][:_MAX_TITLE]}\x1b\\"
        if not match["final"]:
            return ""
        kind, final = (match["before"], match["between"]), match["final"]
        if final in "hl" and kind in (("", ""), ("?", "")):
            return self._modes(match["before"], match["numbers"], final)
        return match[0] if final in _SEQUENCES.get(kind, "") else ""

    def _modes(self, before: str, numbers: str, final: str) -> str:
        known = [each for each in numbers.split(";") if (_MODES if before else _ANSI_MODES).fullmatch(each)]
        if before and not _FULL_SCREEN.isdisjoint(known):
            self.full_screen = final == "h"
        return f"\x1b[{before}{';'.join(known)}{final}" if known else ""

    @property
    def reset(self) -> str:
        """What gives the terminal back as it is for other programs."""
        own = "\x1b[?1049l\x1b[<9u" if self.full_screen else ""
        return f"\x1b[<9u{own}{_RESET}"


_RESET = (
    "\x1b[?1000;1001;1002;1003;1004;1005;1006;1007;1015;1016l"  # mouse, focus
    "\x1b[?1;5;9;45;66;2004;2026;2031;2048l\x1b>"  # keys, bracketed paste, sizes as input
    "\x1b[4;20l\x1b[>4;0m\x1b[?7;25h\x1b[0 q"  # insert, keys of xterm, wrapping, the cursor
    "\x1b7\x1b[?69l\x1b[r\x1b8"  # margins
    "\x1b(B\x1b)B\x0f\x1b[0m"  # characters, colours
)


ENTER = "\0"  # stands in filtered output, which has none, where the person has pressed Enter
_BACKSPACED = re.compile("[^\b]\b")
_ENDED_SCREEN = re.compile(r"\x1b\[\?(?:47|1047|1049)h.*?(?:\x1b\[\?(?:47|1047|1049)l|\Z)", re.DOTALL)
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x1b]*\x1b\\|[ -/]*[0-~])")


def last_command(filtered: str) -> list[str]:
    """Return the lines of filtered output from the last that the person ended with Enter on, as they were read, without
    what full-screen programs drew."""
    text = _ENDED_SCREEN.sub("", filtered).replace("\r\n", "\n")
    text = text[text.rfind("\n", 0, max(0, text.rfind(ENTER))) + 1 :]
    lines = []
    for line in _SEQUENCE.sub("", text).split("\n"):
        shown = next((part for part in reversed(line.split("\r")) if part.strip()), "")
        while "\b" in shown and shown != (shorter := _BACKSPACED.sub("", shown)):
            shown = shorter
        lines.append("".join(char for char in shown if char == "\t" or char.isprintable()).rstrip())
    while lines and not lines[-1]:
        lines.pop()
    if len(lines) > 1 and lines[0].startswith(lines[-1]):  # the prompt for the next command
        lines.pop()
        while not lines[-1]:
            lines.pop()
    return lines
