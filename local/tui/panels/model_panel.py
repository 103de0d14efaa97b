"""The panel of /model: the models that the session may use, narrowed by typing, with window, prices and provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...commands.session_table import cut
from ...providers.known_models import ModelOffer, price_text, window_text
from ...terminal.keymap import DEFAULT_KEYMAP
from ..rendering.themes import Palette, palette_of
from ..widgets.painting import CARET

_MAX_ROWS, _FRAME_LINES, _FRAME_CELLS = 12, 11, 6
_NAME_CELLS, _WIDE = 44, 90
_KEYS = "{model-take!} takes it · Esc keeps the present one · type to search"


class ModelPanel(Static, can_focus=True):
    """`current` is the model of the session, which is marked. `choose` is called with the name that the person
    takes. `notes` say which providers have not answered."""

    DEFAULT_CSS = """
    ModelPanel { height: auto; border: round $accent; padding: 0 1; background: $background; }
    """

    keymap = DEFAULT_KEYMAP

    class ModelsClosed(Message):
        """The person keeps the model."""

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

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

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

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        step = {"up": -1, "down": 1, "pageup": -_MAX_ROWS, "pagedown": _MAX_ROWS}.get(event.key, 0)
        if event.key == "escape":
            self.post_message(self.ModelsClosed())
        elif self.keymap.has("model-take", event.key):
            if self._marked is not None:
                self._choose(self._marked.name)
            return
        elif event.key == "backspace":
            self._search(self._sought[:-1])
        elif event.character and event.is_printable:
            self._search(self._sought + event.character)
        self._at = min(max(self._at + step, 0), max(0, len(self._found) - 1))
        self._draw()

    def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self._search(self._sought + one_line(event.text))
        self._draw()

    def _search(self, text: str) -> None:
        self._sought, self._at = text, 0

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        found = self._found
        width = max(20, self.size.width or self.app.size.width - _FRAME_CELLS)
        rows = max(3, min(_MAX_ROWS, self.app.size.height - _FRAME_LINES - len(self._notes)))
        first = min(max(0, self._at - rows // 2), max(0, len(found) - rows))
        head = Text("Models   ", style="bold", no_wrap=True, overflow="ellipsis")
        head.append(f"{one_line(self._sought)}{CARET}", style=f"not bold {palette.accent}")
        lines = [
            self._line(each, width, palette, marked=place == self._at)
            for place, each in enumerate(found[first : first + rows], first)
        ]
        if not lines:
            lines = [Text("  No model fits what you typed.", style=palette.dim)]
        count = f"{len(found)} of {len(self._offers)}" if self._sought else str(len(self._offers))
        notes = [Text(cut(one_line(each), width), style=palette.warn, no_wrap=True) for each in self._notes]
        self.update(
            Group(
                head,
                *lines,
                *notes,
                Text(
                    f"{count} {'model' if count == '1' else 'models'} · {self.keymap.filled(_KEYS)}", style=palette.dim
                ),
            )
        )

    def _line(self, offer: ModelOffer, width: int, palette: Palette, *, marked: bool) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("› " if marked else "  ", style=f"bold {palette.accent}")
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
