"""What a terminal sends, in pieces that may end anywhere: bytes in, tokens out. The time comes from the caller."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from enum import Enum, auto

from ccb.tunnel.wire.dataclass import dataclass

BACKGROUND_ASKED = "\x1b]11;?\x1b\\"  # asks the terminal for its background colour (OSC 11)
NO_ANSWER = ("linux", "dumb")  # values of TERM that stand for terminals to which a question is only noise
_BACKGROUND = re.compile(r"\x1b\]11;(.{0,64})")
_COLOUR = re.compile(r"rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?", re.IGNORECASE)

ESC = "\x1b"
ESCAPE_S = 0.025  # seconds after which Esc is the key, and not the beginning of a sequence
_PIECE_S = 0.6  # seconds to the next piece on a slow link. Esc waits so long where one, or an answer, may come.
_SLOW_LINK_S = 10.0  # seconds for which a link counts as slow after pieces of a sequence have come apart
_SHORT_READ = 64  # bytes. Longer pieces come apart where ccb itself is slow.
_CHORD_S = 1.0  # seconds after which what looks like the beginning of a sequence is a chord, such as Alt+[
_SEQUENCE_S = 3.0
_STRING_S = 10.0  # seconds without a byte after which a sequence, or a string of an answer, is given up
_BURST_S = 0.03  # seconds without a byte after which a burst of characters is complete
_STALLED_PASTE_S = 3.0  # seconds until a paste is shown, and a key ends it
_BARE = len("\x1b[")
_MAX_SEQUENCE = 256
_MAX_STRING = 512
_MAX_PASTE = 1 << 20
_TYPED_AT_MOST = 32  # typed while ccb stands still; in more, a Tab is text
_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_NO_UTF8 = re.compile("[\ud800-\udfff]")
_STRING_END = re.compile("[\x07\x1b]")
_LINE_END = re.compile(r"[\r\n]")
_VISIBLE = re.compile(r"[^\x00-\x1f\x7f]")
_CONTROLS = re.compile(r"[\x00-\x07\x09\x0b\x0c\x0e-\x1f]")
_LINUX_F = "\x1b[["  # F1 to F5 on the console of Linux, before a letter
_BROKEN_MOUSE = re.compile(r"\x1b\[<[\d;Na]*")  # the terminal of VS Code sends NaN for a mouse beside its cells
_LATE = re.compile(
    r"\[(?:[\d<-?]|[A-DFHIOZ]?\Z)|\](?:[\dlL]|\Z)|P[01>!]|_G|O[A-DFHP-S]\Z|[]P_^X][^\x07\x1b]*[\x07\x1b]"
)
_LATE_CSI = re.compile(r"\x1b\[(?:[<-?]?\d[\d;:]*[ -/]*[A-DFHIMORScmntuxy~]|[A-DFHIOZ])")
"""How the rest of a sequence begins, and how a CSI looks, if its ESC was taken for the key because it came late."""


class InputState(Enum):
    TEXT = auto()
    ESCAPE = auto()  # after ESC
    CSI = auto()  # after ESC [ or ESC O
    STRING = auto()  # in an OSC, DCS, APC, PM or SOS
    STRING_ESCAPE = auto()  # after an ESC in there
    PASTE = auto()


@dataclass(frozen=True)
class Typed:
    text: str


@dataclass(frozen=True)
class Pasted:
    text: str


@dataclass(frozen=True)
class Control:
    """A complete escape sequence that is no answer to ccb: a key, the mouse, or something nobody asked for."""

    sequence: str


@dataclass(frozen=True)
class TerminalAnswer:
    """What the terminal has said of its background, without the sequence around it."""

    text: str


Token = Typed | Pasted | Control | TerminalAnswer


class InputMachine:
    """`expects`: an answer of the terminal may come soon. `escape_s` is the time of Esc alone."""

    def __init__(self, escape_s: float = ESCAPE_S) -> None:
        self.expects = False
        self.deadline: float | None = None
        self._escape_s = escape_s
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")
        self._state = InputState.TEXT
        self._begun = ""  # the sequence, or the head of the string, that is not complete
        self._text = ""  # typed or pasted, and not told yet
        self._out: list[Token] = []
        self._is_apart = False  # this piece came after a pause
        self._last = 0.0
        self._slow_until = 0.0
        self._waits_long = False  # for what follows ESC
        self._late_until = 0.0  # the rest of a sequence may come late, after its ESC was told as Esc
        self._is_late = False
        self._burst_until = 0.0  # more of a paste without markers may come

    @property
    def _ended(self) -> bool:
        return self._state is InputState.PASTE and _PASTE_END in self._text

    def feed(self, data: bytes, now: float) -> list[Token]:
        if now - self._last > _SEQUENCE_S:
            self._decoder.reset()  # half of a character is not completed any more
        piece = self._decoder.decode(data)
        self._is_apart = now - self._last >= ESCAPE_S
        self._last = now
        self._goes_on(piece, now)
        stalled = self._state is InputState.PASTE and self.deadline is None
        may_end = _PASTE_END.startswith((self._text + piece)[: len(_PASTE_END)])
        if stalled and (len(piece) == 1 or piece[:1] == ESC) and not may_end:
            self._state, self._text = InputState.TEXT, ""
        self._take(piece)
        return self._told(now)

    def _goes_on(self, piece: str, now: float) -> None:
        """Take note if a piece goes on with what has begun: then the link is slow, and an Esc may have come late."""
        late = self._state is InputState.TEXT and not self._text and now < self._late_until and _LATE.match(piece)
        self._late_until = 0.0
        goes_on = self._state not in (InputState.TEXT, InputState.ESCAPE) and not self._ended
        if late or (goes_on and self._is_apart and len(piece) < _SHORT_READ):
            self._slow_until = now + _SLOW_LINK_S
        if late:
            self._state, self._begun, self._is_late = InputState.ESCAPE, ESC, True

    def tick(self, now: float) -> list[Token]:
        if self.deadline is None or now < self.deadline:
            return []
        if self._state is InputState.PASTE:
            self._paste_is_due()
            if self._state is InputState.PASTE:
                return self._told(now, stalled=True)
        elif self._state is InputState.ESCAPE:
            self._late_until = now + _PIECE_S
            self._complete(ESC)
        elif len(self._begun) == _BARE and not self._is_late:
            self._out.append(Control(self._begun))
            self._give_up()
        elif self._state is not InputState.TEXT:
            self._give_up()
        self._end_text()
        return self._told(now)

    def _told(self, now: float, *, stalled: bool = False) -> list[Token]:
        if self._state is InputState.TEXT and not _may_be_lines(self._text):
            self._end_text()
        wait = None if stalled else self._wait()
        self.deadline = None if wait is None else now + wait
        told, self._out = self._out, []
        return told

    def _wait(self) -> float | None:
        slow = self._last < self._slow_until
        match self._state:
            case InputState.TEXT:
                return _BURST_S if self._text else None
            case InputState.ESCAPE:
                return max(self._escape_s, _PIECE_S) if self._waits_long or slow else self._escape_s
            case InputState.PASTE if self._ended:
                return _PIECE_S if slow else _BURST_S
            case InputState.PASTE:
                return _STALLED_PASTE_S
            case InputState.STRING if len(self._begun) > _BARE:
                return _STRING_S
            case _:
                return _SEQUENCE_S if len(self._begun) > _BARE else _CHORD_S

    def _take(self, piece: str) -> None:
        at = 0
        while at < len(piece):
            at = _STEPS[self._state](self, piece, at)

    # One step for each state: each takes some of `piece` from `at` on, and returns how far it got.

    def _in_text(self, piece: str, at: int) -> int:
        end = piece.find(ESC, at)
        self._text += piece[at:] if end < 0 else piece[at:end]
        if end < 0:
            return len(piece)
        self._waits_long = bool(self._text) or self.expects
        self._end_text()
        self._state, self._begun = InputState.ESCAPE, ESC
        return end + 1

    def _in_escape(self, piece: str, at: int) -> int:
        char = piece[at]
        state = _INTRODUCED.get(char)
        if char == ESC or (state is None and self._is_apart and at == 0):
            self._complete(ESC)  # the key: a chord such as Alt+T comes as one piece
            return at
        if state is not None:
            self._state, self._begun = state, ESC + char
        else:
            self._complete(ESC + _NO_UTF8.sub("\ufffd", char))
        return at + 1

    def _in_csi(self, piece: str, at: int) -> int:
        char = piece[at]
        if not " " <= char <= "~":  # Esc, Ctrl+C: what has begun is broken
            self._give_up()
            return at
        if len(self._begun) < _MAX_SEQUENCE:
            self._begun += char
        if char >= "@" and self._begun != _LINUX_F and not _BROKEN_MOUSE.fullmatch(self._begun):
            if self._is_late and self._begun[1] == "[" and not _LATE_CSI.fullmatch(self._begun):
                self._give_up()
            else:
                self._complete(self._begun)
        return at + 1

    def _in_string(self, piece: str, at: int) -> int:
        # one character, or one again and again, is a key that somebody presses
        if self._is_apart and len(set(piece)) == 1 and piece[at] < " " and piece[at] not in "\x07\x1b":
            self._give_up()
            return at
        found = _STRING_END.search(piece, at)
        end = found.start() if found else len(piece)
        self._begun += piece[at : min(end, at + _MAX_STRING - len(self._begun))]
        if found is None:
            return end
        if found[0] == ESC:
            self._state = InputState.STRING_ESCAPE
        else:
            self._complete(self._begun)
        return end + 1

    def _in_string_escape(self, piece: str, at: int) -> int:
        if piece[at] == "\\":
            self._complete(self._begun)
            return at + 1
        self._give_up()
        self._state, self._begun = InputState.ESCAPE, ESC  # another sequence begins
        return at

    def _in_paste(self, piece: str, at: int) -> int:
        """Take all. Where the paste ends is known only when nothing more comes: a marker may be part of the text."""
        self._text += piece[at:]
        if len(self._text) > _MAX_PASTE:
            self._paste_is_due()
        return len(piece)

    # What is complete, and what is not.

    def _complete(self, sequence: str) -> None:
        string = self._state in (InputState.STRING, InputState.STRING_ESCAPE)
        self._state, self._begun, self._is_late = InputState.TEXT, "", False
        if (answer := _BACKGROUND.fullmatch(sequence)) is not None:
            self._out.append(TerminalAnswer(answer[1]))
        elif sequence == _PASTE:
            self._state = InputState.PASTE
        elif sequence != _PASTE_END and not string:
            self._out.append(Control(sequence))

    def _give_up(self) -> None:
        """Drop a sequence that broke off. After an Esc that acted, it is what somebody types, unless it is long."""
        if self._is_late and self._begun[1:2] == "[" and len(self._begun) <= _TYPED_AT_MOST:
            self._out.append(Typed(self._begun[1:]))
        elif self._is_late and self._begun == "\x1b]":
            self._out.append(Typed("]"))
        self._state, self._begun, self._is_late = InputState.TEXT, "", False

    def _end_text(self) -> None:
        """Tell what was typed. A burst of several lines is a paste of a terminal without markers."""
        if self._text and self._state is not InputState.PASTE:
            text, self._text = _NO_UTF8.sub("\ufffd", self._text), ""
            if _is_pasted(text) or (self._last < self._burst_until and _may_be_lines(text)):
                self._burst_until = self._last + _PIECE_S
                self._out.append(Pasted(_erased(text)))
            else:
                self._out.append(Typed(text))

    def _paste_is_due(self) -> None:
        text, marker, rest = self._text.rpartition(_PASTE_END)
        if marker:
            self._state, self._text = InputState.TEXT, ""
            text = text.replace(_PASTE_END + _PASTE, "")
        else:
            size = next(size for size in range(len(_PASTE_END), -1, -1) if rest.endswith(_PASTE_END[:size]))
            text, self._text = rest[: len(rest) - size], rest[len(rest) - size :]
        if text or marker:
            self._out.append(Pasted(_NO_UTF8.sub("\ufffd", text)))
        if marker:
            self._take(rest)


_INTRODUCED = {**dict.fromkeys("[O", InputState.CSI), **dict.fromkeys("]P_^X", InputState.STRING)}
_STEPS: Mapping[InputState, Callable[[InputMachine, str, int], int]] = {
    InputState.TEXT: InputMachine._in_text,
    InputState.ESCAPE: InputMachine._in_escape,
    InputState.CSI: InputMachine._in_csi,
    InputState.STRING: InputMachine._in_string,
    InputState.STRING_ESCAPE: InputMachine._in_string_escape,
    InputState.PASTE: InputMachine._in_paste,
}


def typed_line(line: str) -> str:
    """Return a line that the terminal's own line editing has read, without the answers and keys in it."""
    machine = InputMachine()
    tokens = machine.feed(f"{line}\n".encode("utf-8", "surrogateescape"), 0.0)
    while machine.deadline is not None:
        tokens += machine.tick(machine.deadline)
    return "".join(each.text for each in tokens if isinstance(each, Typed | Pasted)).removesuffix("\n")


def _may_be_lines(text: str) -> bool:
    return 1 < len(text) < _MAX_PASTE and ("\r" in text or "\n" in text)


def _is_pasted(text: str) -> bool:
    """Return whether a burst of characters is a paste. Somebody who types ahead may have pressed Enter at its end."""
    if (end := _LINE_END.search(text)) is not None and _VISIBLE.search(text, end.end()):
        return True
    return len(text) > _TYPED_AT_MOST and bool(_CONTROLS.search(text) and _VISIBLE.search(text))  # not a key held down


def _erased(text: str) -> str:
    """Return a text after its Backspaces: it may have been typed ahead, after all."""
    kept: list[str] = []
    for char in text:
        if char not in "\b\x7f":
            kept.append(char)
        elif kept and kept[-1] not in "\r\n":
            kept.pop()
    return "".join(kept)


def colour_of(answer: str) -> tuple[int, int, int] | None:
    """Return a colour such as `rgb:ffff/ffff/ffff` in 8 bits each, None if it is not a colour."""
    colour = _COLOUR.fullmatch(answer)
    if colour is None:
        return None
    red, green, blue = (round(int(part, 16) / (16.0 ** len(part) - 1) * 255) for part in colour.groups())
    return red, green, blue
