"""The words of a shell command line and the simple commands they form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

_COMMAND_NAME = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./+:@%-]*|\[")


def names(text: str) -> frozenset[str]:
    """Return the set of the blank-separated names in a text."""
    return frozenset(text.split())


KEYWORDS = names("if then elif else fi for while until do done case esac select function coproc in [[ ]]")


class NotUnderstood(Exception):
    """The command line contains something that the parser does not follow. The text tells a person what it is."""


@dataclass(frozen=True)
class Word:
    """One word after quote removal. `skeleton` is the same word with a NUL for each quoted character and an SOH for
    each expansion. The shell may treat only the remaining characters specially. `bare` names the expansions outside of
    quotes: a variable, or "(" for a substitution. The shell splits their values, and takes them for wildcards.
    `expands` has every expansion: the name of a variable, or the commands of a substitution."""

    text: str
    skeleton: str
    dynamic: bool = False  # contains an expansion, so the program will see another text
    bare: tuple[str, ...] = ()
    expands: tuple[str | tuple[Command, ...], ...] = ()

    @property
    def is_glob(self) -> bool:
        return any(char in self.skeleton for char in "*?[")

    @property
    def is_tilde(self) -> bool:
        return self.skeleton.startswith("~")

    @property
    def has_brace_expansion(self) -> bool:
        first, last = self.skeleton.find("{"), self.skeleton.rfind("}")
        inside = self.skeleton[first : last + 1] if first >= 0 else ""
        return "," in inside or ".." in inside

    @property
    def is_literal(self) -> bool:
        """Whether the program gets exactly `text`, as one argument."""
        return not (self.dynamic or self.is_glob or self.is_tilde)


ANY = Word("", "\1", dynamic=True)
"""A word, or an input, whose text is known only when the command runs."""


@dataclass
class WordPieces:
    """The pieces of a word that is being read."""

    text: list[str] = field(default_factory=list)
    skeleton: list[str] = field(default_factory=list)
    dynamic: bool = False
    started: bool = False
    bare: list[str] = field(default_factory=list)
    expands: list[str | tuple[Command, ...]] = field(default_factory=list)

    def add(self, char: str, quoted: bool) -> None:
        self.started = True
        self.text.append(char)
        self.skeleton.append("\0" if quoted else char)

    def expand(self, what: str | Sequence[Command], bare: bool = False) -> None:
        """Add the expansion of a variable, or of a substitution with these commands. `bare`: it is not in quotes."""
        self.started = True
        self.expands.append(what if isinstance(what, str) else tuple(what))
        self.dynamic = True
        self.skeleton.append("\1")
        if bare:
            self.bare.append(what if isinstance(what, str) else "(")

    def word(self) -> Word:
        skeleton = "".join(self.skeleton)
        hidden_tilde = re.search("[=:]~", skeleton) is not None  # bash expands it in any word like `name=~/x`
        return Word("".join(self.text), skeleton, self.dynamic or hidden_tilde, tuple(self.bare), tuple(self.expands))


@dataclass(frozen=True)
class Redirect:
    """A redirection: a file that the shell opens for a command. `writes` is False for input."""

    target: Word
    writes: bool


@dataclass(frozen=True)
class Command:
    """One simple command. `raw` is its text as typed, with assignments and redirections. `fed`: the line gives it input
    (a file or a here-document), which many programs run as code. `gets` is that input, or what a pipe gives it: the
    text if it is known, ANY if not, None for no such input."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    raw: str = ""
    fed: bool = False
    gets: Word | None = None

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""


def canonical(words: Sequence[Word]) -> str:
    """Return the words as one text, quoted where they must be: two commands with the same text are the same command."""
    rendered: list[str] = []
    for word in words:
        if word.dynamic:
            rendered.append(word.text + "\1")
        elif "\0" in word.skeleton or not (word.is_glob or word.is_tilde):
            rendered.append(shlex.quote(word.text))
        else:
            rendered.append(word.text)
    return " ".join(rendered)


def is_plain_name(text: str) -> bool:
    """Return whether a text has only the characters of ordinary command names and paths."""
    return _COMMAND_NAME.fullmatch(text) is not None


def is_command_name(text: str) -> bool:
    """Return whether a text is a plain name or path, and not a keyword or other syntax of the shell."""
    return is_plain_name(text) and text not in KEYWORDS


def check_command_word(word: Word) -> None:
    """Raise NotUnderstood unless the text shows which command the word names."""
    if not word.is_literal and word.text != "[":
        raise NotUnderstood("the text does not show the name of a command")
    if word.dynamic:
        raise NotUnderstood("the text does not show the name of a command")
    if word.skeleton in KEYWORDS:
        raise NotUnderstood(f"it uses {word.text!r}")
    if not is_plain_name(word.text):
        raise NotUnderstood("the name of a command is unusual")
