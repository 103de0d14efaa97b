"""The list above the composer: commands and what may follow them, files of both machines, and prompts. It filters while
the person types, Up and Down choose, Tab or Enter take."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table
from rich.text import Text
from textual import work
from textual.widgets import Static

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import LIST_COMMANDS
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from ...session.session_client import FoundNames, SessionClient
from ...slash_commands import session_api
from ...terminal.stdio import in_thread
from .composer import Composer


@dataclass(frozen=True)
class Offer:
    """One line of the list. It puts `insert` in place of the characters from `start` to `end`, with the cursor `back`
    before its end. `enter`: Enter takes it even if the person has not chosen it."""

    shown: str
    does: str
    insert: str
    start: int
    end: int
    back: int = 0
    enter: bool = False


@dataclass(frozen=True)
class Offers:
    """What is offered. Esc closes the list until something else is offered, which has another `subject`."""

    items: Sequence[Offer]
    subject: str
    note: str = ""


Choices = Mapping[str, str]  # what may follow a command, with a few words about each


@dataclass(frozen=True)
class Candidate:
    """A command: `choices` are the arguments that are known; if it `takes_text`, others are as good."""

    name: str
    hint: str
    does: str
    choices: Choices = field(default_factory=dict)
    takes_text: bool = False


def fitting(typed: str, commands: Iterable[Candidate]) -> list[Candidate]:
    """Return the commands that begin with the first word of a text, then those that contain it, sorted by name."""
    if not typed.startswith("/") or any(char.isspace() or char == "/" for char in typed[1:]):
        return []
    word = typed[1:].lower()
    ordered = sorted(commands, key=lambda each: each.name)
    begin = [each for each in ordered if each.name.lower().startswith(word)]
    return begin + [each for each in ordered if word in each.name.lower() and each not in begin]


def command_offers(text: str, commands: Iterable[Candidate]) -> Offers | None:
    """Return the commands that the text may become, or None. Enter completes a name, but sends a lone slash."""
    found, word = fitting(text, commands), text[1:]
    if not found or (len(found) == 1 and found[0].name == word and not found[0].hint):
        return None
    enter = bool(word) and not any(each.name == word for each in found)
    offers = []
    for each in found:
        name, blank = f"/{each.name}", " " if each.hint else ""
        offers.append(Offer(f"{name} {each.hint}".rstrip(), each.does, name + blank, 0, len(text), enter=enter))
    return Offers(offers, text)


def choice_offers(text: str, commands: Iterable[Candidate]) -> Offers | None:
    """Return what may follow a whole command. None if nothing is known, or nothing is missing."""
    name, space, typed = text.removeprefix("/").partition(" ")
    if not text.startswith("/") or not space or "\n" in text:
        return None
    command = next((each for each in commands if each.name == name), None)
    if command is None or typed in command.choices:
        return None
    choices, start, enter = command.choices, len(text) - len(typed), bool(typed) and not command.takes_text
    fits = _fitting_choices(choices, typed.lower())
    offers = [Offer(each, choices[each], each, start, len(text), enter=enter) for each in fits]
    return Offers(offers, f"/{name} ") if offers else None


def _fitting_choices(choices: Choices, sought: str) -> list[str]:
    begin = [each for each in choices if each.lower().startswith(sought)]
    return begin or [each for each in choices if sought in f"{each} {choices[each]}".lower()]


_OPEN = re.compile(r'(?:^|(?<=[\s(\[]))@(?:"([^"\n]*)|([^\s"]*))\Z')  # as the worker reads a mention
_REST = re.compile(r'[^\s"]*"?')
_SPECIAL = "'\\"
_MAX_LINE = 1_000  # characters before the cursor in which an `@` is looked for
_FRESH_S = 2.0
_SLOW_S = 0.3
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_MAX_KEPT = 64


@dataclass(frozen=True)
class Mention:
    """A name that is being typed, without `sign` (an `@`, or none) and quotes. `local`: it is a path on the laptop."""

    query: str
    start: int
    end: int
    sign: str = "@"
    local: bool = False


def mention_at(text: str, cursor: int) -> Mention | None:
    first = max(text.rfind("\n", 0, cursor) + 1, cursor - _MAX_LINE)
    found = _OPEN.search(text[first:cursor])
    if found is None:
        return None
    quoted = found[1] is not None
    rest = _REST.match(text, cursor) if not quoted else re.compile(r'[^"\n]*"').match(text, cursor)
    return Mention(found[1] if quoted else found[2], first + found.start(), rest.end() if rest else cursor)


class FileNames:
    """Offers what the host has found; while an answer is on its way, what was found before and still fits."""

    def __init__(self, client: SessionClient, host: str, changed: Callable[[], object]) -> None:
        self._client = client
        self._host = host
        self._changed = changed
        self._known: dict[str, tuple[float, FoundNames]] = {}
        self._last: tuple[str, ...] = ()
        self._note = ""

    def wanted(self, mention: Mention) -> bool:
        """Return whether the host must be asked about a mention."""
        since, found = self._known.get(mention.query, (0.0, None))
        return found is None or not found.settled or time.monotonic() - since > _FRESH_S

    async def ask(self, query: str) -> None:
        pause = _PAUSE_S
        while True:
            asked = asyncio.ensure_future(self._client.names(query))
            try:
                if not (await asyncio.wait([asked], timeout=_SLOW_S))[0]:
                    self._say(f"asking {self._host} …")
                found = await asked
            except CcbError:
                self._say(f"no connection to {self._host}: only what was found before")
                return
            finally:
                asked.cancel()
            if found is None:
                self._say("the worker of this session cannot list files: it is of an older version")
                return
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            self._known[query] = time.monotonic(), found
            self._last = found.names
            self._say("the tree is too large to know all of it: ./ lists a directory" if found.cut else "")
            if found.settled:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _say(self, note: str) -> None:
        self._note = note
        self._changed()

    def offers(self, mention: Mention) -> Offers | None:
        """Return what is known to fit. None if that is nothing, or what is typed already."""
        query = mention.query
        fit = tuple(each for each in self._last if holds_in_order(each, query.lower()))
        names = self._known[query][1].names if query in self._known else fit
        if (names and names[0] == query and not query.endswith("/")) or not (names or self._note):
            return None
        return Offers([offer_of(each, mention) for each in names], f"{mention.sign}{mention.start}", self._note)


def offer_of(name: str, mention: Mention) -> Offer:
    quoted = any(char.isspace() or (char in _SPECIAL and not mention.sign) for char in name)
    directory = name.endswith("/")
    within = name if mention.sign else name.replace("\\", "\\\\")  # a command reads its words as a shell does
    insert = mention.sign + (f'"{within}"' if quoted else name) + ("" if directory else " ")
    query, back = mention.query, int(quoted and directory)
    is_typed = not mention.sign and (not query or query.endswith("/") or name == f"{query}/")  # Enter sends that
    enter = query.lower() in name.lower() and not is_typed
    return Offer(name, "", insert, mention.start, mention.end, back, enter=enter)


_MAX_SHOWN = 50
_SHOWN, _SEARCHED = 200, 2_000  # characters


def history_offers(text: str, sent: Sequence[str]) -> Offers:
    """Return the prompts that hold all words of `text`, then those that hold its letters in order, the newest first."""
    wanted = text.lower()
    words = wanted.split()
    newest = [each for each in dict.fromkeys(reversed(sent)) if each != text]
    found = [each for each in newest if all(word in each[:_SEARCHED].lower() for word in words)]
    if len(found) < _MAX_SHOWN:
        held = set(found)
        found += [each for each in newest if each not in held and holds_in_order(each[:_SEARCHED], wanted)]
    shown = [(one_line(each[: 2 * _SHOWN])[:_SHOWN], each) for each in found[:_MAX_SHOWN]]
    items = [Offer(line, "", prompt, 0, len(text), enter=True) for line, prompt in shown]
    more = f"{len(found)} prompts fit" if len(found) > _MAX_SHOWN else ""
    return Offers(items, "history", more if items else "no earlier prompt fits: Esc goes back")


def holds_in_order(text: str, letters: str) -> bool:
    rest = iter(text.lower())
    return all(letter in rest for letter in letters if not letter.isspace())


_LOCAL: Mapping[str, tuple[bool, ...]] = {
    "get": (False, True),
    "put": (True, False),
    "open": (False,),
    "add-dir": (False,),
    "export": (True,),
}
"""By command, whether each of its arguments is a path on the laptop."""

_WORD = re.compile(r'"(?P<quoted>[^"]*)(?P<end>"|\Z)|(?P<plain>\S+)')
_MAX_NAMES, _PATH_ARGUMENTS_MAX_SHOWN = 20_000, 100


def path_argument_at(text: str, cursor: int) -> Mention | None:
    """Return the path at the cursor of a command that takes paths. Only the end of the text is completed."""
    command, space, _ = text.partition(" ")
    places = _LOCAL.get(command.removeprefix("/"), ()) if command.startswith("/") else ()
    if not places or not space or "\n" in text or text[cursor:] not in ("", '"'):
        return None
    end, text = len(text), text[:cursor]
    words = list(_WORD.finditer(text, len(command) + 1))
    last = words[-1] if words else None
    if last is None or (last.end() == len(text) and last["end"] == '"') or text[last.end() :]:
        number, query, start = len(words), "", len(text)  # the next word
        if not text.endswith(" "):
            return None
    else:
        number, start = len(words) - 1, last.start()
        query = last["quoted"].replace("\\\\", "\\") if last["plain"] is None else last["plain"]
    return Mention(query, start, end, sign="", local=places[number]) if number < len(places) else None


class LaptopNames:
    """Offers the entries of a directory of the laptop."""

    def __init__(self, changed: Callable[[], object]) -> None:
        self._changed = changed
        self._folder: str | None = None
        self._names: list[str] = []

    def wanted(self, mention: Mention) -> bool:
        """Return whether the directory must be read anew: it is another one, or its own name has just been typed."""
        folder, name = _split(mention.query)
        return folder != self._folder or not name

    async def ask(self, query: str) -> None:
        folder, _ = _split(query)
        names = await in_thread(lambda: _entries(folder))
        self._folder, self._names = folder, names
        self._changed()

    def offers(self, mention: Mention) -> Offers | None:
        """Return the entries that begin with what is typed. None if that is nothing, or what is typed already."""
        folder, typed = _split(mention.query)
        if folder != self._folder:
            return None
        fits = [each for each in self._names if each.lower().startswith(typed.lower())]
        shown = [each for each in fits if typed.startswith(".") or not each.startswith(".")][:_PATH_ARGUMENTS_MAX_SHOWN]
        if not shown or shown == [typed]:
            return None
        offers = [offer_of(folder + each, mention) for each in shown]
        return Offers(offers, f"laptop {mention.start}")


def _split(path: str) -> tuple[str, str]:
    folder, slash, name = path.rpartition("/")
    return folder + slash, name


def _entries(folder: str) -> list[str]:
    names: list[str] = []
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            for entry in entries:
                if entry.name.isprintable() and '"' not in entry.name:
                    names.append(f"{entry.name}/" if entry.is_dir() else entry.name)
                if len(names) == _MAX_NAMES:
                    break
    except (OSError, RuntimeError):  # RuntimeError: nobody knows the home of this user
        return []
    return sorted(names)


_MAX_TEXT = 200  # characters


def from_worker(answer: Json) -> list[Candidate]:
    try:
        listed = session_api.WorkerCommands.model_validate(answer).commands
    except ValidationError:
        return []

    def shown(text: str) -> str:
        return one_line(text)[:_MAX_TEXT]

    return [Candidate(shown(each.name), shown(each.argumentHint), shown(each.description)) for each in listed]


class CommandCache:
    """Keeps the worker's list of commands for completion. `known` is the last one; an older worker has none."""

    def __init__(self, client: SessionClient) -> None:
        self.known: list[Candidate] = []
        self._client = client
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def ask(self) -> bool:
        async with self._asking:
            if time.monotonic() - self._asked_at < _FRESH_S or not self._client.driving:
                return False
            self._asked_at = time.monotonic()
            try:
                answer = await self._client.request(Request(LIST_COMMANDS, None))
            except (CcbError, RequestFailed):
                return False
            before, self.known = self.known, from_worker(answer)
            return self.known != before

    async def knows(self, name: str) -> bool:
        if not any(each.name == name for each in self.known):
            await self.ask()
        return any(each.name == name for each in self.known)


_ROWS = 8
_NAME_COLUMNS = 30
_NOTHING = Offers((), "")


class CompletionList(Static):
    """Shows what the text of the composer may become. The commands of the REPL, which `own` returns, and their other
    names `own_names` win over those of the worker."""

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
        self.worker_commands = CommandCache(client)
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
            self._ask_commands()

    def _offered(self) -> Offers:
        text = self._composer.text
        if self._searching:
            return history_offers(text, self._composer.recall.sent)
        at = self._composer.cursor_at
        if text.startswith("/") and " " in text:
            self._ask_arguments(text[1:].partition(" ")[0])
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
                self._ask_names(files, mention.query)
        return files.offers(mention) or _NOTHING

    def _all_commands(self) -> list[Candidate]:
        own = list(self._own())
        names = {each.name for each in own}
        others = (each for each in self.worker_commands.known if each.name not in names)
        return own + [each for each in others if each.name not in self._own_names]

    @work(exclusive=True, group="commands")
    async def _ask_commands(self) -> None:
        if await self.worker_commands.ask():
            self.refresh_list()

    @work(group="arguments")
    async def _ask_arguments(self, command: str) -> None:
        if await self._asks(command):
            self.refresh_list()

    @work(exclusive=True, group="names")
    async def _ask_names(self, files: FileNames | LaptopNames, query: str) -> None:
        await files.ask(query)

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
