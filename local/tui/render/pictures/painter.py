"""Makes of the cells of images what the terminal understands, in the text that goes to it.

All that a terminal gets of an image is made here of pixels that Pillow has decoded: no byte of a file reaches it.
"""

from __future__ import annotations

import base64
import io
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping

from ccb.tunnel.wire.dataclass import dataclass

from ....terminal.asking.graphics import Protocol, through_tmux
from .cells import PLACEHOLDER, RUN, Part, parts
from .decoding import Picture
from .sixel import as_sixels

_CHUNK = 4096  # characters of base64 in a sequence of kitty's
_MAX_KEPT = 1_000  # rows of images as sequences
_QUALITY = 85
_COLOURS = range(16, 232)
"""Of these colours one is the lower part of each image's number in kitty: other programs in its window have others."""


@dataclass(frozen=True)
class Prepared:
    """An image that can be shown. `sequence` is what the terminal has to get before any of its cells."""

    number: int
    picture: Picture
    rows: Mapping[Part, str]
    sequence: str


class Painter:
    """`protocol` is how the terminal shows images, `cell` the pixels of a character. `tmux`: all goes through it."""

    def __init__(self, protocol: Protocol, cell: tuple[int, int], *, tmux: bool = False) -> None:
        self.protocol = protocol
        self.cell = cell
        self._tmux = tmux
        self._colour = secrets.choice(_COLOURS)
        self._pictures: dict[int, Picture] = {}
        self._rows: OrderedDict[Part, str] = OrderedDict()

    def prepared(self, number: int, picture: Picture, columns: int, rows: int) -> Prepared:
        """Encode an image that has been scaled to its cells. Blocks; call it in a thread."""
        if self.protocol is Protocol.KITTY:
            return Prepared(number, picture, {}, self._given_to_kitty(number, picture, columns, rows))
        shown = [Part(number, row, 0, columns) for row in range(rows)]
        return Prepared(number, picture, {part: self._encoded(part, picture) for part in shown}, "")

    def take(self, prepared: Prepared) -> str:
        """Know an image from now on. Return what the terminal has to get first."""
        if self.protocol is not Protocol.KITTY:
            self._pictures[prepared.number] = prepared.picture
            self._rows.update(prepared.rows)
        return prepared.sequence

    def forget(self, number: int) -> str:
        """Forget an image. Return what makes the terminal forget it, too."""
        self._pictures.pop(number, None)
        for part in [each for each in self._rows if each.number == number]:
            del self._rows[part]
        return self._kitty(f"a=d,d=I,i={self._kitty_id(number)},q=2", "") if self.protocol is Protocol.KITTY else ""

    def translated(self, text: str) -> str:
        """Return a text for the terminal with the cells of images as the terminal shows them."""
        return RUN.sub(self._translated, text) if PLACEHOLDER in text else text

    def _translated(self, run: re.Match[str]) -> str:
        if self.protocol is Protocol.KITTY:
            return f"\x1b[38;5;{self._colour}m{run[0]}"
        return "".join(map(self._painted, parts(run[0])))

    def _painted(self, part: Part) -> str:
        """Return a part of an image, drawn over blanks. The cursor ends behind it."""
        blank = " " * part.count
        if part.number not in self._pictures:
            return blank
        return f"\x1b7{blank}\x1b8\x1b7{self._sequence(part)}\x1b8\x1b[{part.count}C"

    def _sequence(self, part: Part) -> str:
        kept = self._rows.pop(part, None)
        self._rows[part] = kept = kept if kept is not None else self._encoded(part, self._pictures[part.number])
        if len(self._rows) > _MAX_KEPT:
            self._rows.popitem(last=False)
        return kept

    def _encoded(self, part: Part, picture: Picture) -> str:
        width, height = self.cell
        left, top = part.column * width, part.row * height
        piece = picture.crop((left, top, left + part.count * width, top + height))
        if self.protocol is Protocol.SIXEL:
            return as_sixels(piece)
        made = io.BytesIO()
        piece.save(made, "JPEG", quality=_QUALITY)
        fields = f"inline=1;width={part.count};height=1;preserveAspectRatio=0;doNotMoveCursor=1;size={made.tell()}"
        return f"\x1b]1337;File={fields}:{base64.b64encode(made.getvalue()).decode()}\x07"

    def _given_to_kitty(self, number: int, picture: Picture, columns: int, rows: int) -> str:
        made = io.BytesIO()
        picture.save(made, "PNG")
        data = base64.b64encode(made.getvalue()).decode()
        chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
        keys = f"a=T,U=1,i={self._kitty_id(number)},c={columns},r={rows},f=100,t=d,q=2,"
        return "".join(
            self._kitty(f"{'' if at else keys}m={int(at < len(chunks) - 1)}", chunk) for at, chunk in enumerate(chunks)
        )

    def _kitty(self, keys: str, payload: str) -> str:
        sequence = f"\x1b_G{keys}{';' if payload else ''}{payload}\x1b\\"
        return through_tmux(sequence) if self._tmux else sequence

    def _kitty_id(self, number: int) -> int:
        """Return what kitty calls an image: its cells have the number as a mark, and the rest as their colour."""
        return number << 24 | self._colour
