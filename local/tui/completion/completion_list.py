"""The list above the composer: it filters while the person types, Up and Down choose, Tab or Enter complete."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from ..widgets.composer import Composer
from .candidates import Candidate, fitting

_ROWS = 8
_NAME_COLUMNS = 30


class CompletionList(Static):
    """Shows which commands the text of the composer may become. `commands` returns all of them; `opened` is called
    when the list appears, so that they can be brought up to date."""

    DEFAULT_CSS = """
    CompletionList { height: auto; padding: 0 1; background: $background; display: none; }
    CompletionList.open { display: block; }
    """

    def __init__(
        self, composer: Composer, commands: Callable[[], Sequence[Candidate]], opened: Callable[[], object]
    ) -> None:
        super().__init__()
        self._composer = composer
        self._commands = commands
        self._opened = opened
        self._fitting: Sequence[Candidate] = ()
        self._at = 0
        self._dismissed = ""  # the text for which the person has closed the list

    @property
    def chosen(self) -> Candidate | None:
        """The command that Tab completes, None while the list is closed."""
        return self._fitting[self._at] if self._fitting else None

    def refresh_list(self) -> None:
        """The text or the commands have changed."""
        text = self._composer.text
        if text != self._dismissed:
            self._dismissed = ""
        before, was_open = self.chosen, bool(self._fitting)
        known = () if self._dismissed or self._composer.read_only else fitting(text, self._commands())
        self._fitting = () if len(known) == 1 and known[0].name == text[1:] and not known[0].hint else known
        names = [each.name for each in self._fitting]
        self._at = names.index(before.name) if before is not None and before.name in names else 0
        self.set_class(bool(self._fitting), "open")
        self._draw()
        if self._fitting and not was_open:
            self._opened()

    def take_key(self, key: str) -> bool:
        """Handle a key of the composer. Return whether the list took it. Enter completes a name that is not whole yet,
        and sends nothing."""
        if key in ("enter", "tab"):
            self.refresh_list()  # the text may have changed since the list was drawn
        chosen = self.chosen
        if chosen is None:
            return False
        if key in ("up", "down"):
            self._at = (self._at + (1 if key == "down" else -1)) % len(self._fitting)
            self._draw()
        elif key == "escape":
            self._dismissed = self._composer.text
            self.refresh_list()
        elif key == "tab" or (key == "enter" and self._is_part_of_a_name()):
            self._composer.text = f"/{chosen.name}" + (" " if chosen.hint else "")
            self._composer.move_cursor(self._composer.document.end)
        else:
            return False
        return True

    def _is_part_of_a_name(self) -> bool:
        """Return whether Enter should complete what is typed. A lone slash is sent, unless the person has chosen."""
        word = self._composer.text[1:]
        return all(each.name != word for each in self._fitting) and (bool(word) or self._at > 0)

    def _draw(self) -> None:
        first = min(max(0, self._at - _ROWS + 1), max(0, len(self._fitting) - _ROWS))
        table = Table.grid(padding=(0, 2))
        table.add_column(max_width=_NAME_COLUMNS, no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, overflow="ellipsis")
        for place, each in enumerate(self._fitting[first : first + _ROWS], first):
            chosen = place == self._at
            name = Text(f"{'❯' if chosen else ' '} /{each.name} {each.hint}".rstrip())
            table.add_row(name, Text(each.does), style="bold" if chosen else "dim")
        self.update(table)
