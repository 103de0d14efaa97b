"""The words and simple commands of a command line, and what setting a variable changes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

PLAIN_NAME = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./+:@%-]*|\[")  # the characters of ordinary command names and paths


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = names("if then elif else fi for while until do done case esac select function coproc in [[ ]]")


class NotUnderstood(Exception):
    """The parser does not follow the command line; the text tells a person why."""


@dataclass(frozen=True)
class Word:
    """One word after quote removal. `skeleton` has a NUL for each quoted character and an SOH for each expansion: only
    the others are special. `bare` names the expansions outside of quotes, whose values the shell splits and takes for
    wildcards: a variable, or "(" for a substitution. `expands` has all: a variable's name, or commands."""

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
    def is_literal(self) -> bool:
        """Whether the program gets exactly `text`, as one argument."""
        return not (self.dynamic or self.is_glob or self.is_tilde)


def literal(text: str) -> Word:
    return Word(text, "\0" * len(text))


ANY = Word("", "\1", dynamic=True)  # a word, or an input, whose text is known only when the command runs


@dataclass
class Pieces:
    """A word that is being read."""

    text: list[str] = field(default_factory=list)
    skeleton: list[str] = field(default_factory=list)
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
        self.skeleton.append("\1")
        if bare:
            self.bare.append(what if isinstance(what, str) else "(")

    def word(self) -> Word:
        skeleton = "".join(self.skeleton)
        tilde = re.search("[=:]~", skeleton) is not None  # bash expands it in any word like `name=~/x`
        return Word("".join(self.text), skeleton, bool(self.expands) or tilde, tuple(self.bare), tuple(self.expands))


@dataclass(frozen=True)
class Redirect:
    """A file that the shell opens for a command."""

    target: Word
    writes: bool


@dataclass(frozen=True)
class Command:
    """One simple command. `raw` is its text as typed. `fed`: the line gives it input, which many programs run as code.
    `gets` is that input, or what a pipe gives it: the text if it is known, ANY if not."""

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
    """Return the words as one text, quoted where they must be: it is the same for the same command."""
    rendered: list[str] = []
    for word in words:
        if word.dynamic:
            rendered.append(word.text + "\1")
        elif "\0" in word.skeleton or not (word.is_glob or word.is_tilde):
            rendered.append(shlex.quote(word.text))
        else:
            rendered.append(word.text)
    return " ".join(rendered)


# Variables that change how output looks, not what runs.
_HARMLESS = re.compile(
    r"TZ|LANG|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|CI|NODE_ENV"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONIOENCODING|RUST_BACKTRACE|RUST_LOG|GOOS|GOARCH|CGO_ENABLED"
    r"|GIT_OPTIONAL_LOCKS|DEBIAN_FRONTEND|CARGO_TERM_COLOR|TERM"
)
_HARMLESS_VALUE = re.compile(r"[A-Za-z0-9_.,:=@+-]*")
_TIME_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*|")
_LOCAL = re.compile(r"[a-z][a-z0-9_]*")
_LOCAL_BUT = re.compile(r"path|fpath|cdpath|manpath|histchars|auto_resume|.*_proxy")
_LOCALE = re.compile(r"(?:C|POSIX)|[A-Za-z]+(?:_[A-Za-z]+)?\.(?:utf-?8)(?:@[a-z]+)?", re.IGNORECASE)
_SETTERS = names("export declare typeset local readonly read mapfile readarray getopts let unset env sudo")
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SETS = {"printf": re.compile(r"-v|(?s:.*)%[^%a-zA-Z]*(?:[hlLjzt]*)n"), "wait": re.compile(r"-[a-z]*p")}
_DECIDING = re.compile(
    r"(?<![A-Za-z0-9_])(?:PATH|IFS|ENV|BASH_ENV|BASH_FUNC.*|BASHOPTS|SHELLOPTS|PROMPT_COMMAND|PS4|LD_[A-Z_]+|CDPATH)"
    r"(?![A-Za-z0-9_])"
)
"""Variables that decide which program a name stands for, or that are run as code."""
_COMMANDS = re.compile(
    r"(?:GIT_\w{0,30}(?:EDITOR|PAGER|SSH|ASKPASS|DIFF|COMMAND|CONFIG)\w{0,30}|(?:MAN)?PAGER|EDITOR|VISUAL|LESSOPEN|LESSCLOSE|PS1"
    r"|(?:GNU)?MAKEFLAGS|TAR_OPTIONS|PYTEST_ADDOPTS|NODE_OPTIONS)\+?=(?!(?:cat|true|:|less|vim?|nano)?$)"
)
"""Assignments that programs run, or take options from; these values run nothing that deny rules are about."""

# Variables that the environment sets and whose values are no wildcards: a name, a number or one path.
_FROM_OUTSIDE = names("HOME PWD USER LOGNAME HOSTNAME UID EUID PPID SHELL TMPDIR VIRTUAL_ENV RANDOM SECONDS LINENO")
_NUMBERS = names("? $ ! #")
_WILD = re.compile(r"[*?\[\\\1]")


def is_harmless_assignment(assignment: Word, has_command: bool) -> bool:
    """Return whether setting this variable changes neither which program runs nor how it is configured. A lower-case
    variable without a command stays in the shell."""
    name, _, value = assignment.text.partition("=")
    name = name.rstrip("+")
    if not _HARMLESS.fullmatch(name):
        return not has_command and bool(_LOCAL.fullmatch(name)) and not _LOCAL_BUT.fullmatch(name)
    if assignment.dynamic:
        return has_command
    if name == "LANG" or name.startswith("LC_"):
        return not value or _LOCALE.fullmatch(value) is not None
    return (_TIME_ZONE if name == "TZ" else _HARMLESS_VALUE).fullmatch(value) is not None


def reads_utf8(environ: Mapping[str, str]) -> bool:
    """Return whether a shell finds the ends of characters where UTF-8 has them: in some other encodings, a backslash or
    a bar may be the second half of a character."""
    name = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "C"
    return _LOCALE.fullmatch(name) is not None


def decides_what_runs(command: Command) -> bool:
    """Return whether a command may set a variable that decides what other names stand for, such as PATH."""
    if any(_DECIDING.match(_variable(word)) for word in command.assignments):
        return True
    arguments = command.words[1:]
    set_here = (*command.assignments, *(arguments if command.name in _SETTERS else ()))
    if any(_COMMANDS.match(word.text) for word in set_here):
        return True
    if command.name in _SETS:
        return any(_SETS[command.name].match(word.text) for word in arguments)
    sets_any = command.name not in ("env", "sudo")  # an argument that is not written out may be a name
    return command.name in _SETTERS and any(
        _DECIDING.match(word.text) or (sets_any and word.dynamic and not _NAMED.match(word.text)) for word in arguments
    )


def _variable(assignment: Word) -> str:
    return assignment.text.partition("=")[0].rstrip("+")


def splits_into_files(command: Command, commands: Sequence[Command]) -> bool:
    """Return whether the shell may take the value of an expansion for wildcards, and list directories that the text
    does not name. `commands` are all commands of the line."""
    return any(not _is_tame(name, commands) for word in command.words for name in word.bare)


def _is_tame(name: str, commands: Sequence[Command]) -> bool:
    if name in _NUMBERS:
        return True
    values = [word for command in commands for word in command.assignments if _variable(word) == name]
    if not values:
        return name in _FROM_OUTSIDE
    return not any(word.dynamic or _WILD.search(word.text) for word in values)


_WITHOUT_BLANKS = _NUMBERS | names("HOME USER LOGNAME HOSTNAME UID EUID PPID")
_TELLERS = names("nproc whoami hostname arch logname")
_GIT_TELLERS = names("rev-parse merge-base describe branch symbolic-ref")
_TOLD = re.compile(r"--show-current|--short|--abbrev-ref|--tags|[A-Za-z0-9_./@~^]+")


def is_never_option(word: Word) -> bool:
    """Return whether the values of all expansions in a word begin with no dash and contain no blank or equals sign."""
    return bool(word.expands) and all(
        each in _WITHOUT_BLANKS if isinstance(each, str) else bool(each) and all(map(_tells_name, each))
        for each in word.expands
    )


def _tells_name(command: Command) -> bool:
    words = [word.text for word in command.words]
    start = 2 if words[:1] == ["git"] and words[1:2] and words[1] in _GIT_TELLERS else 1
    if command.assignments or not words or (start == 1 and words[0] not in _TELLERS):
        return False
    return all(word.is_literal for word in command.words) and all(map(_TOLD.fullmatch, words[start:]))
