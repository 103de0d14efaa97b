"""What a slash command is, and what it replies: an async function over `SessionApi`, which draws nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.dataclass import dataclass

from ..transcript.blocks import Level
from .session_api import NextSession, Place, SessionApi

if TYPE_CHECKING:
    from ..files.copying import Transfer

Choices = Mapping[str, str]  # what may follow a command, with a few words about each


@dataclass(frozen=True)
class Text:
    """Something to read. One that is `brief` goes to the status line of the screen, and disappears soon."""

    text: str | Sequence[str] = ""
    level: Level = Level.INFO
    brief: bool = False

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n") if isinstance(self.text, str) else [*self.text]


@dataclass(frozen=True)
class Page(Text):
    """A longer text, which the screen shows on a page of its own, below its `title`."""

    title: str = ""


@dataclass(frozen=True)
class ReplyRow:
    """One row of a list. `choose` is the command line that stands for it, `section` the heading above it."""

    name: str
    text: str = ""
    choose: str = ""
    section: str = ""

    @property
    def line(self) -> str:
        return f"{self.name}: {self.text}" if self.text else self.name


@dataclass(frozen=True)
class Rows:
    """A list. With a `title` the screen shows it in a panel, narrowed to `sought`."""

    rows: Sequence[ReplyRow] = ()
    none: str = ""
    after: str = ""
    title: str = ""
    sought: str = ""

    @property
    def text(self) -> Text:
        return Text([*(each.line for each in self.rows), *filter(None, [self.after])] if self.rows else self.none)


@dataclass(frozen=True)
class Picker(Rows):
    """A list of which one row is chosen, which `does` something. `current` is the name of the one in force, or ""."""

    current: str = ""
    does: str = "takes it"


@dataclass(frozen=True)
class Live:
    updates: AsyncIterator[Rows]


@dataclass(frozen=True)
class Copying:
    """A copy has begun. If `shown`, the file is shown to the person afterwards."""

    transfer: Transfer
    shown: bool = False


@dataclass(frozen=True)
class OpenNext:
    """The fetched file that waits first is to be opened."""


@dataclass(frozen=True)
class Switch:
    following: NextSession


@dataclass(frozen=True)
class Leave:
    """The person leaves. `moves_to`: the session goes to another machine then, and the person with it."""

    stops: bool = False
    moves_to: str = ""


@dataclass(frozen=True)
class OnScreen:
    """The screen does what the command is called."""


Reply = Text | Rows | Live | Copying | OpenNext | Switch | Leave | OnScreen
Run = Callable[[SessionApi, str], Awaitable[Reply]]
NOTHING = Text()


@dataclass(frozen=True)
class LaptopCommand:
    """A slash command. It offers `choices` at once, `asked` when asked; if it `takes_text`, other arguments, too."""

    name: str
    hint: str
    does: str
    run: Run
    places: frozenset[Place] = frozenset((Place.SCREEN, Place.LINES))
    aliases: tuple[str, ...] = ()
    choices: Choices | Callable[[SessionApi], Choices] = field(default_factory=dict)
    asked: Callable[[SessionApi], Awaitable[Choices]] | None = None
    takes_text: bool = False

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.hint}".rstrip()


def command(usage: str, does: str, **more: Any) -> Callable[[Run], LaptopCommand]:
    """Make a command. `usage` is its name, and what may follow; `more` are fields of `LaptopCommand`."""
    name, _, hint = usage.partition(" ")
    return lambda run: LaptopCommand(name, hint, does, run, **more)


def everywhere(usage: str, does: str, **more: Any) -> Callable[[Run], LaptopCommand]:
    return command(usage, does, places=frozenset(Place), **more)


async def _view(_api: SessionApi, _argument: str) -> Reply:
    return OnScreen()


def view(usage: str, does: str, **more: Any) -> LaptopCommand:
    return command(usage, does, places=frozenset((Place.SCREEN,)), **more)(_view)
