"""A conservative reader of POSIX and bash command lines.

It answers one question: which simple commands would a shell run, and which files would it open for them? Whatever it
is not sure about raises NotUnderstood, which asks a person. It is no sandbox: a command does what its program does."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

_MOST_CHARS = 20_000
_MOST_DEPTH = 12

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PARAMETER = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*-])")
_BRACED = re.compile(r"\$\{#?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?$!#@*])(?::?-[A-Za-z0-9_./-]*)?\}")
_BRACE_EXPANSION = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_./:][A-Za-z0-9_./+:@%-]*|\[")
_HEREDOC_END = re.compile(r"(['\"]?)([A-Za-z0-9_]+)\1")


def names(text: str) -> frozenset[str]:
    """A set of names from a text with blanks between them."""
    return frozenset(text.split())


_KEYWORDS = names("if then elif else fi for while until do done case esac select function coproc in [[ ]]")


class NotUnderstood(Exception):
    """The command line holds something this reader does not follow. The text says what, for a person."""


@dataclass(frozen=True)
class Word:
    """One word after quote removal. `skeleton` is the same with each quoted character replaced by a NUL and each expansion
    by an SOH, so that what the shell would treat specially can be told from what it would not."""

    text: str
    skeleton: str
    dynamic: bool = False  # holds an expansion: the text is not what the program will see

    @property
    def is_glob(self) -> bool:
        return any(char in self.skeleton for char in "*?[")

    @property
    def is_tilde(self) -> bool:
        return self.skeleton.startswith("~")

    @property
    def is_literal(self) -> bool:
        """The program sees exactly `text`, one argument."""
        return not (self.dynamic or self.is_glob or self.is_tilde)


@dataclass(frozen=True)
class Redirect:
    """A file opened for a command. `writes` is False for input."""

    target: Word
    writes: bool


@dataclass(frozen=True)
class Command:
    """One simple command. `raw` is its text as typed, with assignments and redirections; `fed` means that it is given
    input on its own line (a file, a here-document), which for many programs is code."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    raw: str = ""
    fed: bool = False

    @property
    def name(self) -> str:
        return self.words[0].text if self.words else ""


def canonical(words: Sequence[Word]) -> str:
    """The words as one text, quoted where they must be, so that two commands with the same text are the same command."""
    rendered: list[str] = []
    for word in words:
        if word.dynamic:
            rendered.append(word.text + "\1")
        elif "\0" in word.skeleton or not (word.is_glob or word.is_tilde):
            rendered.append(shlex.quote(word.text))
        else:
            rendered.append(word.text)
    return " ".join(rendered)


def parse(text: str) -> list[Command]:
    """Every simple command the line may run, those in substitutions included. Raises NotUnderstood."""
    if len(text) > _MOST_CHARS:
        raise NotUnderstood("it is too long to check")
    for char in text:
        category = unicodedata.category(char)
        if (category == "Cc" and char not in "\n\t") or category == "Cs":
            raise NotUnderstood("it holds a control character")
    reader = _Reader(text)
    reader.read_list("", 0)
    return reader.commands


@dataclass
class _HereDoc:
    end: str
    quoted: bool
    strip_tabs: bool


@dataclass
class _Pieces:
    """What a word or a simple command is built from while it is read."""

    text: list[str] = field(default_factory=list)
    skeleton: list[str] = field(default_factory=list)
    dynamic: bool = False
    started: bool = False

    def add(self, char: str, quoted: bool) -> None:
        self.started = True
        self.text.append(char)
        self.skeleton.append("\0" if quoted else char)

    def expand(self) -> None:
        self.started = True
        self.dynamic = True
        self.skeleton.append("\1")


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[Command] = []
        self._heredocs: list[_HereDoc] = []

    def _peek(self, offset: int = 0) -> str:
        return self.text[self.at + offset : self.at + offset + 1]

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def read_list(self, closer: str, depth: int) -> None:
        """Commands up to `closer` (`)` or `}`), which is consumed, or to the end of the text."""
        if depth > _MOST_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        while True:
            self._skip_blanks_and_comments()
            char = self._peek()
            if not char:
                if closer:
                    raise NotUnderstood(f"a {closer!r} is missing")
                if self._heredocs:
                    raise NotUnderstood("a here-document does not end")
                return
            if char == "\n":
                self.at += 1
                self._read_heredocs(depth)
            elif char == ")" and closer == ")":
                if self._heredocs:
                    raise NotUnderstood("a here-document does not end")
                self.at += 1
                return
            elif char == "(":
                if self._starts("(("):
                    raise NotUnderstood("it holds arithmetic")
                self.at += 1
                self.read_list(")", depth + 1)
                self._read_trailing_redirects(depth)
            elif self._is_reserved("{"):
                self.at += 1
                self.read_list("}", depth + 1)
                self._read_trailing_redirects(depth)
            elif closer == "}" and self._is_reserved("}"):
                self.at += 1
                return
            elif self._is_reserved("!"):
                self.at += 1
            elif char in ";&|" and not self._starts("&>"):
                self._read_separator()
            else:
                self._read_command(depth)

    def _is_reserved(self, word: str) -> bool:
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return self._starts(word) and (after == "" or after in " \t\n;&|()<>")

    def _skip_blanks_and_comments(self) -> None:
        while True:
            self._skip_blanks_in_line()
            if self._peek() == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _read_separator(self) -> None:
        for operator in (";;", ";&", ";|"):
            if self._starts(operator):
                raise NotUnderstood(f"{operator!r} is not expected here")
        for operator in ("&&", "||", "|&", ";", "&", "|"):
            if self._starts(operator):
                self.at += len(operator)
                return

    def _read_trailing_redirects(self, depth: int) -> None:
        """Redirections of a group or subshell are kept as a command without words."""
        start = self.at
        redirects: list[Redirect] = []
        while True:
            self._skip_blanks_and_comments()
            if not self._at_redirect():
                break
            redirects += self._read_redirect(depth)
        if redirects:
            self.commands.append(Command((), (), tuple(redirects), self.text[start : self.at].strip()))
        if self._peek() not in ("", "\n", ";", "&", "|", ")", "}"):
            raise NotUnderstood("something unexpected follows a group")

    def _read_command(self, depth: int) -> None:
        start = self.at
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirect] = []
        end, fed, both = start, False, False
        while True:
            self._skip_blanks_and_comments()
            char = self._peek()
            if self._at_redirect():
                fed = fed or self._peek() == "<"
                both = both or self._peek() == "&"
                redirects += self._read_redirect(depth)
                end = self.at
                continue
            if not char or char in "\n;&|)":
                break
            if char == "(":
                raise NotUnderstood("it defines a function or holds a '(' that is not expected")
            if both:  # to a plain sh, `a &>f b` is `a &` and then `>f b`
                raise NotUnderstood("'&>' is not at the end")
            word = self._read_word(depth)
            if not words and _ASSIGNMENT.match(word.skeleton):
                assignments.append(word)
            else:
                words.append(word)
            end = self.at
        if words:
            _check_command_word(words[0])
        elif not assignments and not redirects:
            raise NotUnderstood(f"{char!r} is not expected here")
        raw = self.text[start:end].strip()
        self.commands.append(Command(tuple(words), tuple(assignments), tuple(redirects), raw, fed))

    def _at_redirect(self) -> bool:
        if self._starts("&>"):
            return True
        at = self.at
        while self.text[at : at + 1].isdigit() and self.text[at].isascii():
            at += 1
        if self.text[at : at + 1] not in ("<", ">") or self.text[at : at + 1] == "":
            return False
        return at > self.at or self.text[at + 1 : at + 2] != "("  # <(…) and >(…) are words

    def _read_redirect(self, depth: int) -> list[Redirect]:
        while self._peek().isdigit():
            self.at += 1
        for operator in ("<<<", "<<-", "<<", "<>", "<&", "&>>", "&>", ">>", ">|", ">&", "<", ">"):
            if self._starts(operator):
                self.at += len(operator)
                break
        if operator in ("<<", "<<-"):
            self._read_heredoc_start(operator == "<<-", depth)
            return []
        self._skip_blanks_in_line()
        if self._peek() in ("", "\n", ";", "|", "&", "(", ")") or self._at_redirect():
            raise NotUnderstood("a redirection has no target")
        target = self._read_word(depth)
        if operator == "<<<":
            return []
        if operator in (">&", "<&") and target.is_literal and re.fullmatch(r"[0-9]+-?|-", target.text):
            return []
        return [Redirect(target, writes=operator not in ("<", "<&"))]

    def _skip_blanks_in_line(self) -> None:
        while self._peek() in (" ", "\t") or self._starts("\\\n"):
            self.at += 2 if self._peek() == "\\" else 1

    def _read_heredoc_start(self, strip_tabs: bool, depth: int) -> None:
        if depth:
            raise NotUnderstood("a here-document is inside a group or substitution")
        self._skip_blanks_in_line()
        found = _HEREDOC_END.match(self.text, self.at)
        follows = self.text[found.end() : found.end() + 1] if found else "?"
        if not found or (follows and follows not in " \t\n;&|<>"):
            raise NotUnderstood("the end word of a here-document is unusual")
        self.at = found.end()
        self._heredocs.append(_HereDoc(found.group(2), bool(found.group(1)), strip_tabs))

    def _read_heredocs(self, depth: int) -> None:
        for heredoc in self._heredocs:
            while True:
                if self.at >= len(self.text):
                    raise NotUnderstood("a here-document does not end")
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if heredoc.strip_tabs else line) == heredoc.end:
                    break
                if not heredoc.quoted and (re.search(r"[`$]", line) or line.endswith("\\")):
                    raise NotUnderstood("a here-document holds expansions")
        self._heredocs = []

    def _read_word(self, depth: int) -> Word:
        pieces = _Pieces()
        while True:
            char = self._peek()
            if not char or char in " \t\n;&|)":
                break
            if char in "<>":
                if self._peek(1) != "(":
                    break
                self.at += 2
                self._read_substitution(depth)
                pieces.expand()
            elif char == "(":
                raise NotUnderstood("a word holds a '('")
            elif char == "\\":
                self._read_escape(pieces)
            elif char == "'":
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise NotUnderstood("a quote is not closed")
                pieces.started = True
                for inner in self.text[self.at + 1 : end]:
                    pieces.add(inner, quoted=True)
                self.at = end + 1
            elif char == '"':
                self._read_double_quoted(pieces, depth)
            elif char == "$":
                self._read_dollar(pieces, depth, quoted=False)
            elif char == "`":
                self._read_backticks(pieces, depth)
            else:
                if char.isspace() or unicodedata.category(char)[0] in "ZC":
                    raise NotUnderstood("it holds an invisible or unusual blank character")
                pieces.add(char, quoted=False)
                self.at += 1
        if not pieces.started:
            raise NotUnderstood(f"{self._peek()!r} is not expected here")
        word = Word("".join(pieces.text), "".join(pieces.skeleton), pieces.dynamic)
        if _BRACE_EXPANSION.search(word.skeleton):
            raise NotUnderstood("it holds a brace expansion")
        return word

    def _read_escape(self, pieces: _Pieces) -> None:
        escaped = self._peek(1)
        if not escaped:
            raise NotUnderstood("it ends in a backslash")
        if escaped != "\n":
            pieces.add(escaped, quoted=True)
        self.at += 2

    def _read_double_quoted(self, pieces: _Pieces, depth: int) -> None:
        pieces.started = True
        self.at += 1
        while True:
            char = self._peek()
            if not char:
                raise NotUnderstood("a quote is not closed")
            if char == '"':
                self.at += 1
                return
            if char == "\\" and self._peek(1) in ("$", "`", '"', "\\", "\n") and self._peek(1):
                self._read_escape(pieces)
            elif char == "$":
                self._read_dollar(pieces, depth, quoted=True)
            elif char == "`":
                self._read_backticks(pieces, depth)
            else:
                pieces.add(char, quoted=True)
                self.at += 1

    def _read_dollar(self, pieces: _Pieces, depth: int, quoted: bool) -> None:
        if self._starts("$\\\n"):
            raise NotUnderstood("a line break splits an expansion")  # the shell joins the lines first
        if self._starts("$((") or self._starts("$["):
            raise NotUnderstood("it holds arithmetic")
        if self._starts("$("):
            self.at += 2
            self._read_substitution(depth)
            pieces.expand()
            return
        if not quoted and self._peek(1) in ("'", '"') and self._peek(1):
            raise NotUnderstood("it holds a $'…' string")
        pattern = _BRACED if self._starts("${") else _PARAMETER
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
            pieces.expand()
        elif self._starts("${"):
            raise NotUnderstood("it holds an expansion that is not simple")
        else:
            pieces.add("$", quoted)
            self.at += 1

    def _read_substitution(self, depth: int) -> None:
        """Up to its `)`. Whether a line feed in it starts the text of a here-document before it depends on the shell."""
        if self._heredocs:
            raise NotUnderstood("a substitution follows a here-document on its line")
        self.read_list(")", depth + 1)

    def _read_backticks(self, pieces: _Pieces, depth: int) -> None:
        end = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inner:
            raise NotUnderstood("it holds backticks that are not simple")
        if depth >= _MOST_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        reader = _Reader(inner)
        reader.read_list("", depth + 1)
        self.commands += reader.commands
        pieces.expand()
        self.at = end + 1


def is_command_name(text: str) -> bool:
    """A plain name or path that the shell does not take for anything else."""
    return bool(_COMMAND_NAME.fullmatch(text)) and text not in _KEYWORDS


def _check_command_word(word: Word) -> None:
    if not word.is_literal and word.text != "[":
        raise NotUnderstood("the name of a command is not written out")
    if word.dynamic:
        raise NotUnderstood("the name of a command is not written out")
    if word.skeleton in _KEYWORDS:
        raise NotUnderstood(f"it uses {word.text!r}")
    if not _COMMAND_NAME.fullmatch(word.text):
        raise NotUnderstood("the name of a command is unusual")
