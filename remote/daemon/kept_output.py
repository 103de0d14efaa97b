"""The last output of a terminal, and what of it brings its screen back on another one."""

from __future__ import annotations

import re

KEPT = 256 * 1024  # bytes
_SLACK = 64 * 1024  # bytes more before something is dropped
_TO_A_BORDER = 4096  # bytes in which a place between two sequences is looked for
_MAX_MODES = 64
_LINES = 100  # of a terminal that shows no full-screen program
_MODE = re.compile(rb"\x1b\[\?([0-9;]{1,40})([hl])")
_FULL_SCREEN = (b"1049", b"1047", b"47")
_USUALLY_SET = (b"7", b"25")  # wrapping, the cursor
# What a terminal answers: its answer to the second print would be typed into the shell.
_QUESTION = re.compile(
    rb"\x05|\x1bZ|\x1b\[[0-9;<=>?]*[cnx]|\x1b\[>?[0-9]*q|\x1b\[\?u|\x1b\[\??[0-9;]*\$p|\x1b\][^\x07\x1b]*\?(?:\x07|\x1b\\)"
)


class KeptOutput:
    """The last `KEPT` bytes of an output. `end` counts all bytes so far."""

    def __init__(self) -> None:
        self.end = 0
        self._kept = bytearray()
        self._modes: dict[bytes, bytes] = {}  # set by bytes that were dropped

    def add(self, data: bytes) -> None:
        self._kept += data
        self.end += len(data)
        if len(self._kept) > KEPT + _SLACK:
            self._drop(self._border(len(self._kept) - KEPT))

    def since(self, position: int) -> bytes:
        return bytes(self._kept[max(0, len(self._kept) - (self.end - position)) :])

    @property
    def full_screen(self) -> bool:
        """Whether a program has switched to the other screen, which has no lines above it."""
        modes = self._all_modes()
        return any(modes.get(each) == b"h" for each in _FULL_SCREEN)

    def replay(self) -> bytes:
        """Return what another terminal has to be sent first."""
        if not self._kept:
            return b""
        modes, start = self._all_modes(), 0
        if not self.full_screen:
            start = len(self._kept)
            for _ in range(_LINES):
                start = self._kept.rfind(b"\n", 0, start)
                if start < 0:
                    break
            start += 1
        changed = [mode for mode in modes.items() if (mode[0] in _USUALLY_SET) != (mode[1] == b"h")]
        set_modes = b"".join(b"\x1b[?%s%s" % mode for mode in changed)
        return b"\x1b[0m" + set_modes + _QUESTION.sub(b"", self._kept[start:])

    def _all_modes(self) -> dict[bytes, bytes]:
        return {**self._modes, **_modes_in(self._kept)}

    def _border(self, at: int) -> int:
        """Return a place from `at` on where no sequence is cut."""
        until = at + _TO_A_BORDER
        line, sequence = self._kept.find(b"\n", at, until) + 1, self._kept.find(b"\x1b", at, until)
        return min((each for each in (line, sequence) if each > 0), default=at)

    def _drop(self, size: int) -> None:
        self._modes.update(_modes_in(self._kept[:size]))
        while len(self._modes) > _MAX_MODES:
            del self._modes[next(iter(self._modes))]
        del self._kept[:size]


def _modes_in(data: bytearray) -> dict[bytes, bytes]:
    return {number: match[2] for match in _MODE.finditer(data) for number in match[1].split(b";") if number}
