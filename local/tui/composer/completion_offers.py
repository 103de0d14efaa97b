"""The slash commands that fit what is typed, and what may follow them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

Choices = Mapping[str, str]
"""What may follow a command, with a few words about each."""


@dataclass(frozen=True)
class Candidate:
    """One command. `name` is without its slash, `hint` shows its arguments, `does` explains it, `choices` are the
    arguments that are known; if it `takes_text`, others are as good. `on_host`: the worker carries it out. All texts
    can be shown."""

    name: str
    hint: str
    does: str
    on_host: bool = False
    choices: Choices = field(default_factory=dict)
    takes_text: bool = False


def fitting(typed: str, commands: Iterable[Candidate]) -> Sequence[Candidate]:
    """Return the commands that the text in the composer may become: those that begin with it, then those that contain
    it, each sorted by name. [] if it is not the first word of a command."""
    if not typed.startswith("/") or any(char.isspace() or char == "/" for char in typed[1:]):
        return []
    word = typed[1:].lower()
    ordered = sorted(commands, key=lambda each: each.name)
    begin = [each for each in ordered if each.name.lower().startswith(word)]
    return begin + [each for each in ordered if word in each.name.lower() and each not in begin]


def command_offers(text: str, commands: Iterable[Candidate]) -> Offers | None:
    """Return the commands that the text may become. Return None if no command begins so, or the text is a whole one.
    Enter completes a name that is not whole yet, but sends a lone slash."""
    found, word = fitting(text, commands), text[1:]
    if not found or (len(found) == 1 and found[0].name == word and not found[0].hint):
        return None
    whole = any(each.name == word for each in found)
    return Offers(
        [
            Offer(
                f"/{each.name} {each.hint}".rstrip(),
                each.does,
                f"/{each.name}" + (" " if each.hint else ""),
                0,
                len(text),
                enter=bool(word) and not whole,
            )
            for each in found
        ],
        text,
    )


def choice_offers(text: str, commands: Iterable[Candidate]) -> Offers | None:
    """Return what may follow a whole command. None if nothing is known, or nothing is missing."""
    name, space, typed = text.removeprefix("/").partition(" ")
    if not text.startswith("/") or not space or "\n" in text:
        return None
    command = next((each for each in commands if each.name == name), None)
    choices: Choices = command.choices if command is not None else {}
    sought = typed.lower()
    fits = [each for each in choices if each.lower().startswith(sought)]
    fits = fits or [each for each in choices if sought in f"{each} {choices[each]}".lower()]
    if not fits or typed in choices:
        return None
    start, enter = len(text) - len(typed), bool(typed) and command is not None and not command.takes_text
    return Offers([Offer(each, choices[each], each, start, len(text), enter=enter) for each in fits], f"/{name} ")


@dataclass(frozen=True)
class Offer:
    """One line of the list. Taking it puts `insert` in place of the characters from `start` to `end` of the text, with
    the cursor `back` characters before its end. `enter`: Enter takes it even if the person has not chosen it. `shown`
    and `does` can be shown."""

    shown: str
    does: str
    insert: str
    start: int
    end: int
    back: int = 0
    enter: bool = False


@dataclass(frozen=True)
class Offers:
    """Everything that is offered for the text. `note` is shown below. Esc closes the list until there are offers about
    something else: those have another `subject`."""

    items: Sequence[Offer]
    subject: str
    note: str = ""
