"""The panel of /model: the models that the session may use, narrowed by typing, with window, prices and provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events

from ccb.tunnel.plain_text import one_line

from ...commands.session_table import cut
from ...providers.known_models import ModelOffer, price_text, window_text
from ..widgets.painting import CARET
from .list_panel import ListPanel, PanelClosed, typed

_FRAME_LINES, _FRAME_CELLS = 11, 6
_NAME_CELLS, _WIDE = 44, 90
_KEYS = "{model-take!} takes it · Esc keeps the present one · type to search"


class ModelPanel(ListPanel):
    """`current` is the model of the session, which is marked. `choose` is called with the name that the person
    takes. `notes` say which providers have not answered."""

    MAX_ROWS = 12
    LETTERS = False

    def __init__(
        self, offers: Sequence[ModelOffer], current: str, choose: Callable[[str], object], notes: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._offers = offers
        self._current = current
        self._choose = choose
        self._notes = notes
        self._sought = ""
        self._at = next((place for place, each in enumerate(offers) if each.name == current), 0)

    def show(self, offers: Sequence[ModelOffer], notes: Sequence[str]) -> None:
        """Show newer lists; the mark stays where it is."""
        marked = self._marked
        self._offers, self._notes = offers, notes
        found = self._found
        self._at = found.index(marked) if marked in found else min(self._at, max(0, len(found) - 1))
        self._draw()

    @property
    def _found(self) -> list[ModelOffer]:
        words = self._sought.lower().split()
        return [each for each in self._offers if all(word in f"{each.name} {each.title}".lower() for word in words)]

    @property
    def _marked(self) -> ModelOffer | None:
        found = self._found
        return found[self._at] if self._at < len(found) else None

    def _pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            self.post_message(PanelClosed())
        elif self.keymap.has("model-take", event.key):
            if self._marked is not None:
                self._choose(self._marked.name)
        elif not self._step(event.key, len(self._found)):
            self._search(typed(self._sought, event))

    def _pasted(self, text: str) -> None:
        self._search(self._sought + text)

    def _search(self, text: str) -> None:
        if text != self._sought:
            self._sought, self._at = text, 0

    def _draw(self) -> None:
        palette, found = self._palette, self._found
        width = max(20, self.size.width or self.app.size.width - _FRAME_CELLS)
        rows = self._room(_FRAME_LINES + len(self._notes))
        head = Text("Models   ", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"{one_line(self._sought)}{CARET}", style=f"not bold {palette.accent}")
        shown = self._window(len(found), rows)
        lines = [self._line(found[place], width, marked=place == self._at) for place in shown]
        if not lines:
            lines = [Text("  No model fits what you typed.", style=palette.dim)]
        count = f"{len(found)} of {len(self._offers)}" if self._sought else str(len(self._offers))
        notes = [Text(cut(one_line(each), width), style=palette.warn, no_wrap=True) for each in self._notes]
        keys = f"{count} {'model' if count == '1' else 'models'} · {self.keymap.filled(_KEYS)}"
        self.update(Group(head, *lines, *notes, Text(keys, style=palette.dim)))

    def _line(self, offer: ModelOffer, width: int, *, marked: bool) -> Text:
        palette, line = self._palette, self._row(marked=marked)
        here = offer.name == self._current
        room = min(_NAME_CELLS, max(16, width - 46))
        name = cut(one_line(offer.name), room)
        line.append(name, style="bold" if marked else f"not bold {palette.good}" if here else "not bold")
        line.append(" " * (room - cell_len(name)))
        prices = f"$ {price_text(offer.input_price)} / {price_text(offer.output_price)}"
        prices = prices if offer.input_price is not None else ""
        facts = f"  {window_text(offer.window):>6}  {prices:<17}  {offer.provider:<12}"
        line.append(facts, style=f"not bold {palette.dim}")
        if here:
            line.append("  now", style=f"not bold {palette.good}")
        elif width >= _WIDE:
            line.append(f"  {offer.can}", style=f"not bold {palette.dim}")
        return line
