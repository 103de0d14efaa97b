"""A conservative parser of POSIX and bash command lines: anything it is not sure about raises NotUnderstood."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import replace
from typing import Union

from ccb.tunnel.wire.dataclass import dataclass

from .shell_words import ANY, KEYWORDS, PLAIN_NAME, Command, NotUnderstood, Pieces, Redirect, Word, literal, reads_utf8

_MAX_CHARS = 20_000
_MAX_DEPTH = 12
_MAX_WILDCARDS = 50  # words, for each of which a directory is read
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_PARAMETER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*-])")
_BRACED = re.compile(r"\$\{#?([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[?$!#@*])(?::?-[A-Za-z0-9_./-]*)?\}")
_JOINABLE = re.compile(r"[A-Za-z0-9_./,@%+ \t-]")
_VARIABLE_FOR_REDIRECT = re.compile(r"\{.*\}|[0-9]+", re.DOTALL)
_HEREDOC_END = re.compile(r"(['\"]?)([A-Za-z0-9_]+)\1(?=[ \t\n;&|<>]|\Z)")
_SEPARATOR = re.compile(r";[;&|]|&&|\|\||\|&|[;&|]")
_REDIRECT = re.compile(r"(?:([0-9]+)(?!&)|(?![<>]\())(&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|<|>)")  # <(…) is a word
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")  # behind >& or <&
_WRITES = {"<": (False,), "<&": (False,), "<>": (False, True)}  # the other redirections write
_TELLS_FILES = ("cat", "zcat", "curl", "wget")


def parse(text: str) -> list[Command]:
    """Return every simple command that the line may run, including those in substitutions, each with what it reads.
    Raise NotUnderstood for a line that the parser does not follow."""
    return _read(text).with_inputs()


def is_plain(text: str) -> bool:
    """Return whether a line that `parse` follows has only literal words and separators."""
    reader = _read(text)
    return not (reader.redirects_or_groups or "\\\n" in text) and all(
        not command.assignments and all(word.is_literal for word in command.words) for command in reader.commands
    )


def _read(text: str) -> _Reader:
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
    opened = [redirect.target for command in reader.commands for redirect in command.redirects]
    words = [word for command in reader.commands for word in command.words]
    if sum(word.is_glob for word in (*words, *opened)) > _MAX_WILDCARDS:
        raise NotUnderstood("it has too many words with wildcards")
    return reader


@dataclass
class _HereDoc:
    end: str
    quoted: bool
    strip_tabs: bool
    text: str = ""


_Input = Union[Word, _HereDoc, int, None]
"""What a line gives a command to read: a text, a here-document, what the command of this number prints, or nothing."""


def _printed(command: Command, gets: Word | None) -> Word | None:
    """Return what a command prints: ANY if that is not known, None for the content of a file or page."""
    arguments = [word.text for word in command.words[1:]]
    if arguments and gets is None and command.name in _TELLS_FILES and not any(word.expands for word in command.words):
        return None
    if command.redirects or not all(word.is_literal for word in command.words):
        return ANY
    if command.name == "cat" and arguments in ([], ["-"]):
        return gets or ANY
    text = _echoed(command.name, arguments)
    return literal(text) if text is not None and "\\" not in text else ANY


def _echoed(name: str, arguments: list[str]) -> str | None:
    """Return what echo or printf prints, None if that is not known."""
    first = arguments[0] if arguments else ""
    if name == "echo":
        rest = arguments[1:] if first == "-n" else arguments
        return None if rest and rest[0].startswith("-") else " ".join(rest)
    if name == "printf" and len(arguments) == 1 and "%" not in first:
        return first.replace("\\n", "\n")
    if name == "printf" and first in ("%s", "%s\\n"):
        return ("\n" if len(first) > 2 else "").join(arguments[1:])
    return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[Command] = []
        self.redirects_or_groups = False
        self._heredocs: list[_HereDoc] = []
        self._inputs: list[_Input] = []  # of each command
        self._input: _Input = None  # of the next command
        self._input_of_list: _Input = None
        self._own_input: _Input = None  # by a redirection of the command that is being read
        self._printer: _Input = None  # the command before a pipe
        self._after_pipe = False
        self._is_replaced = False  # `exec <file` has given the shell itself another input

    def with_inputs(self) -> list[Command]:
        found: list[Command] = []
        for command, given in zip(self.commands, self._inputs):
            if isinstance(given, int):
                given = _printed(found[given], found[given].gets)
            elif isinstance(given, _HereDoc):
                given = ANY if "\\" in given.text and not given.quoted else literal(given.text)
            found.append(replace(command, gets=given or command.gets))
        return found

    def _add(self, command: Command, given: _Input) -> None:
        self.commands.append(command)
        self._inputs.append(ANY if given is None and self._is_replaced else given)

    def _peek(self, offset: int = 0) -> str:
        return self.text[self.at + offset : self.at + offset + 1]

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def _at_redirect(self) -> bool:
        return _REDIRECT.match(self.text, self.at) is not None

    def read_list(self, closer: str, depth: int) -> None:
        """Read commands up to `closer` (`)` or `}`), which is consumed, or to the end of the text if it is ""."""
        if depth > _MAX_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        around, self._input_of_list, self._after_pipe = self._input_of_list, self._input, False
        self._skip_blanks_and_comments()
        while not self._take_end_of_list(closer):
            self._read_list_item(depth)
            self._skip_blanks_and_comments()
        self._input, self._input_of_list, self._after_pipe = self._input_of_list, around, False

    def _take_end_of_list(self, closer: str) -> bool:
        if closer and not self._peek():
            raise NotUnderstood(f"a {closer!r} is missing")
        at_end = not self._peek() or (closer == ")" and self._starts(")"))
        if at_end and self._heredocs:
            raise NotUnderstood("a here-document does not end")
        if not at_end and (closer != "}" or not self._is_reserved("}")):
            return False
        self.at += len(self._peek())
        return True

    def _read_list_item(self, depth: int) -> None:
        char = self._peek()
        if char == "\n":
            self.at += 1
            self._read_heredocs()
            if not self._after_pipe:
                self._input = self._input_of_list
        elif self._starts("(("):
            raise NotUnderstood("it contains arithmetic")
        elif char == "(":
            self._read_group(")", depth)
        elif self._is_reserved("{"):
            self._read_group("}", depth)
        elif self._is_reserved("!"):
            self.at += 1
        elif char in ";&|" and not self._starts("&>"):
            operator = _SEPARATOR.match(self.text, self.at)
            assert operator is not None
            if operator[0] in (";;", ";&", ";|"):
                raise NotUnderstood(f"{operator[0]!r} is not expected here")
            self.at = operator.end()
            self._after_pipe = operator[0] in ("|", "|&")
            self._input = self._printer if self._after_pipe else self._input_of_list
        else:
            self._read_command(depth)

    def _read_group(self, closer: str, depth: int) -> None:
        """Read a group or subshell; the redirections behind it count as a command without words."""
        self.redirects_or_groups = True
        self.at += 1
        first, given = len(self.commands), self._input
        self.read_list(closer, depth + 1)
        end, start = len(self.commands), self.at
        self._own_input = None
        redirects: list[Redirect] = []
        self._skip_blanks_and_comments()
        while self._at_redirect():
            redirects += self._read_redirect(depth)
            self._skip_blanks_and_comments()
        if redirects:
            self._add(Command((), (), tuple(redirects), self.text[start : self.at].strip()), None)
        if self._peek() not in ("", "\n", ";", "&", "|", ")", "}"):
            raise NotUnderstood("something unexpected follows a group")
        for at in range(first, end):
            found = self._inputs[at]
            found = self._own_input if found is None else found
            is_shared = found is not None and found in (given, self._own_input) and end > first + 1
            self._inputs[at] = ANY if is_shared else found  # one command may leave a part of it to the next
        self._printer, self._after_pipe = ANY, False

    def _is_reserved(self, word: str) -> bool:
        after = self._peek(len(word))
        return self._starts(word) and (after == "" or after in " \t\n;&|()<>")

    def _skip_blanks_and_comments(self) -> None:
        self._skip_blanks_in_line()
        while self._peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            self._skip_blanks_in_line()

    def _skip_blanks_in_line(self) -> None:
        while self._peek() in (" ", "\t") or self._starts("\\\n"):
            if self._peek() == "\\" and self.at and self.text[self.at - 1] not in " \t\n":
                raise NotUnderstood("a line break joins two parts")  # the shell may read both as one operator
            self.at += 2 if self._peek() == "\\" else 1

    def _read_command(self, depth: int) -> None:
        start = end = self.at
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirect] = []
        both, self._own_input = False, None
        while True:
            self._skip_blanks_and_comments()
            char = self._peek()
            if self._at_redirect():
                both = both or char == "&"
                redirects += self._read_redirect(depth)
                end = self.at
                continue
            if char in "\n;&|)":  # or at the end
                break
            if char == "(":
                raise NotUnderstood("it defines a function or contains a '(' that is not expected")
            if both:  # to a plain sh, `a &>f b` is `a &` and then `>f b`
                raise NotUnderstood("'&>' is not at the end")
            word = self._read_word(depth)
            is_assignment = not words and _ASSIGNMENT.match(word.skeleton)
            (assignments if is_assignment else words).append(word)
            end = self.at
        if words:
            _check_name(words[0])
        elif not assignments and not redirects:
            raise NotUnderstood(f"{char!r} is not expected here")
        fed = self._own_input is not None
        raw = self.text[start:end].strip()
        command = Command(tuple(words), tuple(assignments), tuple(redirects), raw, fed)
        self._add(command, self._own_input if fed else self._input)
        self._printer, self._after_pipe = len(self.commands) - 1, False
        if fed and command.name in ("exec", "command", "builtin"):  # the shell itself reads it from now on
            self._is_replaced = True

    def _read_redirect(self, depth: int) -> list[Redirect]:
        self.redirects_or_groups = True
        found = _REDIRECT.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        operator, for_stdin = found[2], found[1] in (None, "0")
        if operator in ("<<", "<<-"):
            heredoc = self._read_heredoc_start(operator == "<<-", depth)
            self._own_input = heredoc if for_stdin else ANY
            return []
        self._skip_blanks_in_line()
        if self._peek() in ("", "\n", ";", "|", "&", "(", ")") or self._at_redirect():
            raise NotUnderstood("a redirection has no target")
        if operator in (">&", "<&") and re.match(r"-[^\s;|&()<>]", self.text[self.at : self.at + 2]):
            raise NotUnderstood("shells read what follows '-' in different ways here")
        target = self._read_word(depth)
        if operator.startswith("<"):
            self._own_input = target if operator == "<<<" and for_stdin and target.is_literal else ANY
        is_descriptor = operator in (">&", "<&") and target.is_literal and _DESCRIPTOR.fullmatch(target.text)
        if operator == "<<<" or is_descriptor:
            return []
        return [Redirect(target, writes) for writes in _WRITES.get(operator, (True,))]

    def _read_heredoc_start(self, strip_tabs: bool, depth: int) -> _HereDoc:
        if depth:
            raise NotUnderstood("a here-document is inside a group or substitution")
        self._skip_blanks_in_line()
        found = _HEREDOC_END.match(self.text, self.at)
        if not found:
            raise NotUnderstood("the end word of a here-document is unusual")
        self.at = found.end()
        self._heredocs.append(_HereDoc(found.group(2), bool(found.group(1)), strip_tabs))
        return self._heredocs[-1]

    def _read_heredocs(self) -> None:
        for heredoc in self._heredocs:
            while True:
                if self.at >= len(self.text):
                    raise NotUnderstood("a here-document does not end")
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                line = line.lstrip("\t") if heredoc.strip_tabs else line
                if line == heredoc.end:
                    break
                heredoc.text += f"{line}\n"
                if not heredoc.quoted and (re.search(r"[`$]", line) or line.endswith("\\")):
                    raise NotUnderstood("a here-document contains expansions")
        self._heredocs = []

    def _read_word(self, depth: int) -> Word:
        pieces = Pieces()
        while (char := self._peek()) and char not in " \t\n;&|)":
            if char in "<>" and self._peek(1) != "(":  # <(…) and >(…) are part of a word
                break
            self._read_piece(char, pieces, depth)
        if not pieces.started:
            raise NotUnderstood(f"{char!r} is not expected here")
        word = pieces.word()
        first, last = word.skeleton.find("{"), word.skeleton.rfind("}")
        braced = word.skeleton[first : last + 1] if first >= 0 else ""
        if "," in braced or ".." in braced:
            raise NotUnderstood("it contains a brace expansion")
        if char in ("<", ">") and _VARIABLE_FOR_REDIRECT.fullmatch(word.skeleton):
            raise NotUnderstood("a redirection sets a variable")
        return word

    def _read_piece(self, char: str, pieces: Pieces, depth: int) -> None:
        if char in "<>":
            if pieces.skeleton[-1:] == ["}"]:
                raise NotUnderstood("a redirection sets a variable")
            self.at += 2
            pieces.expand(self._read_substitution(depth, is_fed=char == ">"))
        elif char == "(":
            raise NotUnderstood("a word contains a '('")
        elif char == "\\":
            self._read_escape(pieces)
        elif char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise NotUnderstood("a quote is not closed")
            pieces.started = True
            for quoted in self.text[self.at + 1 : end]:
                pieces.add(quoted, quoted=True)
            self.at = end + 1
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

    def _read_escape(self, pieces: Pieces) -> None:
        before, escaped, after = self.text[self.at - 1 : self.at], self._peek(1), self._peek(2)
        if not escaped:
            raise NotUnderstood("it ends in a backslash")
        if escaped != "\n":
            pieces.add(escaped, quoted=True)
        elif not (_JOINABLE.match(before) and _JOINABLE.match(after)) or pieces.skeleton[-1:] == ["\1"]:
            raise NotUnderstood("a line break joins two parts")  # they may mean something else when joined
        self.at += 2

    def _read_double_quoted(self, pieces: Pieces, depth: int) -> None:
        pieces.started = True
        self.at += 1
        while (char := self._peek()) != '"':
            if not char:
                raise NotUnderstood("a quote is not closed")
            if char == "\\" and self._peek(1) in ("$", "`", '"', "\\", "\n"):
                self._read_escape(pieces)
            elif char == "$":
                self._read_dollar(pieces, depth, quoted=True)
            elif char == "`":
                self._read_backticks(pieces, depth, quoted=True)
            else:
                pieces.add(char, quoted=True)
                self.at += 1
        self.at += 1

    def _read_dollar(self, pieces: Pieces, depth: int, quoted: bool) -> None:
        if self._starts("$\\\n"):
            raise NotUnderstood("a line break splits an expansion")  # the shell joins the lines first
        if self._starts("$((") or self._starts("$["):
            raise NotUnderstood("it contains arithmetic")
        if self._starts("$("):
            self.at += 2
            pieces.expand(self._read_substitution(depth), not quoted)
            return
        if not quoted and self._peek(1) in ("'", '"'):
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

    def _read_substitution(self, depth: int, is_fed: bool = False) -> list[Command]:
        """Read up to the `)` of a substitution, and return its commands. Refuse one behind a here-document: shells
        disagree on whether a line feed in it starts the text of the here-document."""
        if self._heredocs:
            raise NotUnderstood("a substitution follows a here-document on its line")
        before = len(self.commands)
        held = self._input, self._own_input, self._printer
        if is_fed:
            self._input = ANY
        self.read_list(")", depth + 1)
        self._input, self._own_input, self._printer = held
        return self.commands[before:]

    def _read_backticks(self, pieces: Pieces, depth: int, quoted: bool) -> None:
        end = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inner:
            raise NotUnderstood("it contains backticks that are not simple")
        reader = _Reader(inner)
        reader._input = None if self._input is None else ANY
        reader.read_list("", depth + 1)
        for command in reader.with_inputs():
            self._add(command, None)
        self.redirects_or_groups = self.redirects_or_groups or reader.redirects_or_groups
        pieces.expand(reader.commands, not quoted)
        self.at = end + 1


def _check_name(word: Word) -> None:
    if word.dynamic or not (word.is_literal or word.text == "["):
        raise NotUnderstood("the text does not show the name of a command")
    if word.skeleton in KEYWORDS:
        raise NotUnderstood(f"it uses {word.text!r}")
    if not PLAIN_NAME.fullmatch(word.text):
        raise NotUnderstood("the name of a command is unusual")
