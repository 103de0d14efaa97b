"""The list above the composer: it filters while the person types, Up and Down choose, Tab or Enter take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence

from rich.table import Table
from rich.text import Text
from textual.widgets import Static

from ...session.session_client import SessionClient
from .completion_names import (
    Candidate,
    FileNames,
    LaptopNames,
    Mention,
    Offer,
    Offers,
    WorkerCommands,
    choice_offers,
    command_offers,
    history_offers,
    mention_at,
    path_argument_at,
)
from .composer import Composer

_ROWS = 8
_NAME_COLUMNS = 30
_NOTHING = Offers((), "")


class CompletionList(Static):
    """Shows what the text of the composer may become: commands, what may follow them, and files on `host` or the
    laptop. `own` returns the commands of the REPL. They and their other names `own_names` win over those of the
    worker."""

    DEFAULT_CSS = """
    CompletionList { height: auto; padding: 0 1; background: $background; display: none; }
    CompletionList.open { display: block; }
    """

    def __init__(
        self,
        composer: Composer,
        client: SessionClient,
        host: str,
        own: Callable[[], Sequence[Candidate]],
        asks: Callable[[str], Awaitable[bool]],
        own_names: Container[str] = (),
    ) -> None:
        super().__init__()
        self.worker_commands = WorkerCommands(client)
        self._own_names = own_names
        self._composer = composer
        self._own = own
        self._asks = asks
        self._files = FileNames(client, host, self.refresh_list)
        self._laptop_files = LaptopNames(self.refresh_list)
        self._offers = _NOTHING
        self._drawn: tuple[Offers, int] = _NOTHING, 0
        self._at = 0
        self._moved = False
        self._asked = ""
        self._searching = False  # in the prompts that were sent
        self._dismissed = ""  # the subject of the list that the person has closed

    def on_mount(self) -> None:
        self.watch(self._composer, "selection", self.refresh_list, init=False)

    @property
    def chosen(self) -> Offer | None:
        """What Tab takes, None if nothing is offered."""
        return self._offers.items[self._at] if self._offers.items else None

    def refresh_list(self) -> None:
        offers = _NOTHING if self._composer.read_only else self._offered()
        if offers.subject != self._dismissed:
            self._dismissed = ""
        before, subject = self.chosen.shown if self.chosen is not None else "", self._offers.subject
        self._offers = _NOTHING if self._dismissed else offers
        shown = [each.shown for each in self._offers.items]
        self._moved = self._moved and before in shown
        self._at = shown.index(before) if self._moved else 0
        self.set_class(bool(shown or self._offers.note), "open")
        self._draw()
        if shown and subject != self._offers.subject and self._offers.subject.startswith("/"):
            self.run_worker(self._refresh_after(self.worker_commands.ask()), exclusive=True, group="commands")

    def _offered(self) -> Offers:
        text = self._composer.text
        if self._searching:
            return history_offers(text, self._composer.recall.sent)
        at = self._composer.cursor_at
        if text.startswith("/") and " " in text:
            self.run_worker(self._refresh_after(self._asks(text[1:].partition(" ")[0])), group="arguments")
        mention = path_argument_at(text, at) or mention_at(text, at)
        commands = self._all_commands() if text.startswith("/") else ()
        about_command = command_offers(text, commands) or (choice_offers(text, commands) if mention is None else None)
        if about_command is not None or mention is None:
            if self._asked:
                self._asked = ""
                self.workers.cancel_group(self, "names")
            return about_command or _NOTHING
        return self._files_offered(mention)

    def _files_offered(self, mention: Mention) -> Offers:
        asked = f"{mention.start} {mention.query}"
        files = self._laptop_files if mention.local else self._files
        if asked != self._asked:
            self._asked = asked
            if files.wanted(mention):
                self.run_worker(files.ask(mention.query), exclusive=True, group="names")
        return files.offers(mention) or _NOTHING

    def _all_commands(self) -> list[Candidate]:
        own = list(self._own())
        names = {each.name for each in own}
        others = (each for each in self.worker_commands.known if each.name not in names)
        return own + [each for each in others if each.name not in self._own_names]

    async def _refresh_after(self, asking: Awaitable[bool]) -> None:
        if await asking:
            self.refresh_list()

    def take_key(self, key: str) -> bool:
        if key in ("enter", "tab"):
            self.refresh_list()  # the text may have changed since the list was drawn
        chosen = self.chosen
        if (key == "history" and not self._searching) or (key == "escape" and self._searching):
            self._searching, self._moved = not self._searching, False
            self.refresh_list()
            return True
        if chosen is None:
            return key == "history"
        if key in ("up", "down", "history"):
            self._at = (self._at + (-1 if key == "up" else 1)) % len(self._offers.items)
            self._moved = True
            self._draw()
        elif key == "escape":
            self._dismissed = self._offers.subject
            self.refresh_list()
        elif key == "tab" or (key == "enter" and (chosen.enter or self._moved)):
            self._moved = self._searching = False
            self._composer.put(chosen.insert, chosen.start, chosen.end, chosen.back)
        else:
            return False
        return True

    def _draw(self) -> None:
        if self._drawn == (self._offers, self._at):
            return
        self._drawn = self._offers, self._at
        items = self._offers.items
        first = min(max(0, self._at - _ROWS + 1), max(0, len(items) - _ROWS))
        table = Table.grid(padding=(0, 2))
        explained = any(each.does for each in items)
        table.add_column(max_width=_NAME_COLUMNS if explained else None, no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, overflow="ellipsis")
        for place, each in enumerate(items[first : first + _ROWS], first):
            mark, style = ("❯", "bold") if place == self._at else (" ", "dim")
            table.add_row(Text(f"{mark} {each.shown}"), Text(each.does), style=style)
        if self._offers.note:
            table.add_row(Text(f"  {self._offers.note}", style="dim italic"), "")
        self.update(table)
