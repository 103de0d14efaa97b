"""A conservative parser of POSIX and bash command lines.

It answers one question: which simple commands would a shell run, and which files would it open for them? Anything it
is not sure about raises NotUnderstood, and then a person is asked. It is no sandbox: a command does what its program
does.
"""

from __future__ import annotations

import os
import re
import unicodedata

from ccb.tunnel.wire.dataclass import dataclass

from .variables import reads_utf8
from .words import Command, NotUnderstood, Redirect, Word, WordPieces, check_command_word

_MAX_CHARS = 20_000
_MAX_DEPTH = 12

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PARAMETER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*-])")
_BRACED = re.compile(r"\$\{#?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?$!#@*])(?::?-[A-Za-z0-9_./-]*)?\}")
_JOINABLE = re.compile(r"[A-Za-z0-9_./,@%+ \t-]")
_VARIABLE_FOR_REDIRECT = re.compile(r"\{.*\}|[0-9]+", re.DOTALL)
_HEREDOC_END = re.compile(r"(['\"]?)([A-Za-z0-9_]+)\1")


def parse(text: str, strict: bool = False) -> list[Command]:
    """Return every simple command that the line may run, including those in substitutions. Raise NotUnderstood for a
    line that the parser does not follow. `strict`: follow only lines without expansion, wildcard, assignment,
    redirection, group and line continuation."""
    if len(text) > _MAX_CHARS:
        raise NotUnderstood("it is too long to check")
    for char in text:
        category = unicodedata.category(char)
        if (category == "Cc" and char not in "\n\t") or category == "Cs":
            raise NotUnderstood("it contains a control character")
    if not text.isascii() and not reads_utf8(os.environ):
        raise NotUnderstood("it is not ASCII, and the shell's locale does not read UTF-8")
    reader = _Reader(text)
    reader.read_list("", 0)
    if strict:
        _check_plain(reader)
    return reader.commands


def _check_plain(reader: _Reader) -> None:
    """Raise NotUnderstood unless the line is made of literal words and separators only."""
    if reader.redirects_or_groups or "\\\n" in reader.text:
        raise NotUnderstood("it has a redirection, a group or a line continuation")
    for command in reader.commands:
        if command.assignments or not all(word.is_literal for word in command.words):
            raise NotUnderstood("it has an assignment, an expansion or a wildcard")


@dataclass
class _HereDoc:
    end: str
    quoted: bool
    strip_tabs: bool


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[Command] = []
        self.redirects_or_groups = False
        self._heredocs: list[_HereDoc] = []

    def _peek(self, offset: int = 0) -> str:
        return self.text[self.at + offset : self.at + offset + 1]

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def read_list(self, closer: str, depth: int) -> None:
        """Read commands up to `closer` (`)` or `}`), which is consumed, or to the end of the text if it is ""."""
        if depth > _MAX_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        self._skip_blanks_and_comments()
        while not self._take_end_of_list(closer):
            self._read_list_item(depth)
            self._skip_blanks_and_comments()

    def _take_end_of_list(self, closer: str) -> bool:
        if not self._peek():
            if closer:
                raise NotUnderstood(f"a {closer!r} is missing")
            self._refuse_open_heredoc()
            return True
        if closer == ")" and self._starts(")"):
            self._refuse_open_heredoc()
        elif closer != "}" or not self._is_reserved("}"):
            return False
        self.at += 1
        return True

    def _read_list_item(self, depth: int) -> None:
        char = self._peek()
        if char == "\n":
            self.at += 1
            self._read_heredocs()
        elif char == "(":
            if self._starts("(("):
                raise NotUnderstood("it contains arithmetic")
            self._read_group(")", depth)
        elif self._is_reserved("{"):
            self._read_group("}", depth)
        elif self._is_reserved("!"):
            self.at += 1
        elif char in ";&|" and not self._starts("&>"):
            self._read_separator()
        else:
            self._read_command(depth)

    def _read_group(self, closer: str, depth: int) -> None:
        self.redirects_or_groups = True
        self.at += 1
        self.read_list(closer, depth + 1)
        self._read_trailing_redirects(depth)

    def _refuse_open_heredoc(self) -> None:
        if self._heredocs:
            raise NotUnderstood("a here-document does not end")

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
        """Read the redirections after a group or subshell, and keep them as a command without words."""
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
                raise NotUnderstood("it defines a function or contains a '(' that is not expected")
            if both:  # to a plain sh, `a &>f b` is `a &` and then `>f b`
                raise NotUnderstood("'&>' is not at the end")
            word = self._read_word(depth)
            if not words and _ASSIGNMENT.match(word.skeleton):
                assignments.append(word)
            else:
                words.append(word)
            end = self.at
        if words:
            check_command_word(words[0])
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
        self.redirects_or_groups = True
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
        if operator in (">&", "<&") and re.match(r"-[^\s;|&()<>]", self.text[self.at : self.at + 2]):
            raise NotUnderstood("shells read what follows '-' in different ways here")
        target = self._read_word(depth)
        if operator == "<<<":
            return []
        if operator in (">&", "<&") and target.is_literal and re.fullmatch(r"[0-9]+-?|-", target.text):
            return []
        if operator == "<>":
            return [Redirect(target, writes=False), Redirect(target, writes=True)]
        return [Redirect(target, writes=operator not in ("<", "<&"))]

    def _skip_blanks_in_line(self) -> None:
        while self._peek() in (" ", "\t") or self._starts("\\\n"):
            if self._peek() == "\\" and self.at and self.text[self.at - 1] not in " \t\n":
                raise NotUnderstood("a line break joins two parts")  # the shell may read both as one operator
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

    def _read_heredocs(self) -> None:
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
                    raise NotUnderstood("a here-document contains expansions")
        self._heredocs = []

    def _read_word(self, depth: int) -> Word:
        pieces = WordPieces()
        while not self._at_end_of_word():
            self._read_piece(pieces, depth)
        if not pieces.started:
            raise NotUnderstood(f"{self._peek()!r} is not expected here")
        word = pieces.word()
        if word.has_brace_expansion:
            raise NotUnderstood("it contains a brace expansion")
        if self._peek() in ("<", ">") and _VARIABLE_FOR_REDIRECT.fullmatch(word.skeleton):
            raise NotUnderstood("a redirection sets a variable")
        return word

    def _at_end_of_word(self) -> bool:
        char = self._peek()
        if not char or char in " \t\n;&|)":
            return True
        return char in "<>" and self._peek(1) != "("  # <(…) and >(…) are part of a word

    def _read_piece(self, pieces: WordPieces, depth: int) -> None:
        char = self._peek()
        if char in "<>":
            if "".join(pieces.skeleton[-1:]) == "}":
                raise NotUnderstood("a redirection sets a variable")
            self.at += 2
            pieces.expand(self._read_substitution(depth))
        elif char == "(":
            raise NotUnderstood("a word contains a '('")
        elif char == "\\":
            self._read_escape(pieces)
        elif char == "'":
            self._read_single_quoted(pieces)
        elif char == '"':
            self._read_double_quoted(pieces, depth)
        elif char == "$":
            self._read_dollar(pieces, depth, quoted=False)
        elif char == "`":
            self._read_backticks(pieces, depth, quoted=False)
        elif char.isspace() or unicodedata.category(char)[0] in "ZC":
            raise NotUnderstood("it contains an invisible or unusual blank character")
        else:
            pieces.add(char, quoted=False)
            self.at += 1

    def _read_single_quoted(self, pieces: WordPieces) -> None:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise NotUnderstood("a quote is not closed")
        pieces.started = True
        for char in self.text[self.at + 1 : end]:
            pieces.add(char, quoted=True)
        self.at = end + 1

    def _read_escape(self, pieces: WordPieces) -> None:
        escaped = self._peek(1)
        if not escaped:
            raise NotUnderstood("it ends in a backslash")
        if escaped != "\n":
            pieces.add(escaped, quoted=True)
        elif not self._joins_plainly(pieces):
            raise NotUnderstood("a line break joins two parts")
        self.at += 2

    def _joins_plainly(self, pieces: WordPieces) -> bool:
        """Return whether the line continuation here stands between characters that mean the same when joined."""
        before, after = self.text[self.at - 1 : self.at], self._peek(2)
        return bool(_JOINABLE.match(before) and _JOINABLE.match(after)) and pieces.skeleton[-1:] != ["\1"]

    def _read_double_quoted(self, pieces: WordPieces, depth: int) -> None:
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
                self._read_backticks(pieces, depth, quoted=True)
            else:
                pieces.add(char, quoted=True)
                self.at += 1

    def _read_dollar(self, pieces: WordPieces, depth: int, quoted: bool) -> None:
        if self._starts("$\\\n"):
            raise NotUnderstood("a line break splits an expansion")  # the shell joins the lines first
        if self._starts("$((") or self._starts("$["):
            raise NotUnderstood("it contains arithmetic")
        if self._starts("$("):
            self.at += 2
            pieces.expand(self._read_substitution(depth), not quoted)
            return
        if not quoted and self._peek(1) in ("'", '"') and self._peek(1):
            raise NotUnderstood("it contains a $'…' string")
        pattern = _BRACED if self._starts("${") else _PARAMETER
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
            pieces.expand(found[1], not quoted)
        elif self._starts("${"):
            raise NotUnderstood("it contains an expansion that is not simple")
        else:
            pieces.add("$", quoted)
            self.at += 1

    def _read_substitution(self, depth: int) -> list[Command]:
        """Read up to the `)` of a substitution, and return its commands. Refuse one that follows a here-document on its
        line: shells disagree on whether a line feed in the substitution starts the text of the here-document."""
        if self._heredocs:
            raise NotUnderstood("a substitution follows a here-document on its line")
        before = len(self.commands)
        self.read_list(")", depth + 1)
        return self.commands[before:]

    def _read_backticks(self, pieces: WordPieces, depth: int, quoted: bool) -> None:
        end = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inner:
            raise NotUnderstood("it contains backticks that are not simple")
        if depth >= _MAX_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        reader = _Reader(inner)
        reader.read_list("", depth + 1)
        self.commands += reader.commands
        self.redirects_or_groups = self.redirects_or_groups or reader.redirects_or_groups
        pieces.expand(reader.commands, not quoted)
        self.at = end + 1
