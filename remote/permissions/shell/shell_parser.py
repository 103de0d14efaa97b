"""A conservative parser of POSIX and bash command lines.

It answers one question: which simple commands would a shell run, and which files would it open for them? Anything it
is not sure about raises NotUnderstood, and then a person is asked. It is no sandbox: a command does what its program
does.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import replace
from typing import Union

from ccb.tunnel.wire.dataclass import dataclass

from .shell_words import ANY, Command, NotUnderstood, Redirect, Word, WordPieces, check_command_word, names, reads_utf8

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
    return reader.with_inputs()


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
    text: str = ""


_Input = Union[Word, _HereDoc, int, None]
"""What a command reads: a text, a here-document, or what the command of this number prints; None if the line gives it
nothing."""


_TELLS_FILES = names("cat zcat curl wget")


def _printed(command: Command, gets: Word | None) -> Word | None:
    """Return what a command prints: ANY if that is not known, None if it is the content of a file or page, which counts
    as little as that of a script."""
    arguments = [word.text for word in command.words[1:]]
    if arguments and gets is None and _tells_a_file(command):
        return None
    if command.redirects or not all(word.is_literal for word in command.words):
        return ANY
    if command.name == "cat" and arguments in ([], ["-"]):
        return gets or ANY
    text = _echoed(arguments) if command.name == "echo" else _formatted(arguments) if command.name == "printf" else None
    return _text(text) if text is not None and "\\" not in text else ANY


def _tells_a_file(command: Command) -> bool:
    return command.name in _TELLS_FILES and not any(word.expands for word in command.words)


def _echoed(arguments: list[str]) -> str | None:
    """Return what echo prints, None if that is not known."""
    arguments = arguments[1:] if arguments[:1] == ["-n"] else arguments
    return None if "".join(arguments[:1]).startswith("-") else " ".join(arguments)


def _formatted(arguments: list[str]) -> str | None:
    """Return what printf prints, None if that is not known."""
    if len(arguments) == 1 and "%" not in arguments[0]:
        return arguments[0].replace("\\n", "\n")
    if arguments[:1] in (["%s"], ["%s\\n"]):
        return ("\n" if len(arguments[0]) > 2 else "").join(arguments[1:])
    return None


def _text(text: str) -> Word:
    return Word(text, "\0" * len(text))


def _is_descriptor(target: Word) -> bool:
    return target.is_literal and re.fullmatch(r"[0-9]+-?|-", target.text) is not None


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
        """Return the commands, each with what it reads."""
        found: list[Command] = []
        for command, given in zip(self.commands, self._inputs):
            if isinstance(given, int):
                given = _printed(found[given], found[given].gets)
            elif isinstance(given, _HereDoc):
                given = ANY if "\\" in given.text and not given.quoted else _text(given.text)
            found.append(replace(command, gets=given or command.gets))
        return found

    def _add(self, command: Command, given: _Input) -> None:
        self.commands.append(command)
        self._inputs.append(ANY if given is None and self._is_replaced else given)

    def _peek(self, offset: int = 0) -> str:
        return self.text[self.at + offset : self.at + offset + 1]

    def _starts(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

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
            if not self._after_pipe:
                self._input = self._input_of_list
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
        first, given = len(self.commands), self._input
        self.read_list(closer, depth + 1)
        end = len(self.commands)
        self._own_input = None
        self._read_trailing_redirects(depth)
        for at in range(first, end):
            found = self._inputs[at]
            found = self._own_input if found is None else found
            is_shared = found is not None and found in (given, self._own_input) and end > first + 1
            self._inputs[at] = ANY if is_shared else found  # one command may leave a part of it to the next
        self._printer, self._after_pipe = ANY, False

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
                self._after_pipe = operator in ("|", "|&")
                self._input = self._printer if self._after_pipe else self._input_of_list
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
            self._add(Command((), (), tuple(redirects), self.text[start : self.at].strip()), None)
        if self._peek() not in ("", "\n", ";", "&", "|", ")", "}"):
            raise NotUnderstood("something unexpected follows a group")

    def _read_command(self, depth: int) -> None:
        start = self.at
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirect] = []
        end, both = start, False
        given: _Input = None
        while True:
            self._skip_blanks_and_comments()
            char = self._peek()
            if self._at_redirect():
                both = both or self._peek() == "&"
                self._own_input = None
                redirects += self._read_redirect(depth)
                given = given if self._own_input is None else self._own_input
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
        self._add_read(Command(tuple(words), tuple(assignments), tuple(redirects), raw, given is not None), given)

    def _add_read(self, command: Command, given: _Input) -> None:
        """Add a command that was read, with the input that its redirections give it."""
        self._add(command, given if command.fed else self._input)
        self._printer, self._after_pipe = len(self.commands) - 1, False
        if command.fed and command.name in ("exec", "command", "builtin"):  # the shell itself reads it from now on
            self._is_replaced = True

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
        descriptor, operator = self._read_operator()
        if operator in ("<<", "<<-"):
            self._read_heredoc_start(operator == "<<-", depth)
            self._own_input = self._heredocs[-1] if descriptor in ("", "0") else ANY
            return []
        self._skip_blanks_in_line()
        if self._peek() in ("", "\n", ";", "|", "&", "(", ")") or self._at_redirect():
            raise NotUnderstood("a redirection has no target")
        if operator in (">&", "<&") and re.match(r"-[^\s;|&()<>]", self.text[self.at : self.at + 2]):
            raise NotUnderstood("shells read what follows '-' in different ways here")
        target = self._read_word(depth)
        if operator.startswith("<"):
            is_text = operator == "<<<" and descriptor in ("", "0") and target.is_literal
            self._own_input = target if is_text else ANY
        if operator == "<<<" or (operator in (">&", "<&") and _is_descriptor(target)):
            return []
        if operator == "<>":
            return [Redirect(target, writes=False), Redirect(target, writes=True)]
        return [Redirect(target, writes=operator not in ("<", "<&"))]

    def _read_operator(self) -> tuple[str, str]:
        """Read the descriptor ("" for none) and the operator of a redirection."""
        descriptor = ""
        while self._peek().isdigit():
            descriptor += self._peek()
            self.at += 1
        operators = ("<<<", "<<-", "<<", "<>", "<&", "&>>", "&>", ">>", ">|", ">&", "<", ">")
        operator = next(each for each in operators if self._starts(each))
        self.at += len(operator)
        return descriptor, operator

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
                line = line.lstrip("\t") if heredoc.strip_tabs else line
                if line == heredoc.end:
                    break
                heredoc.text += f"{line}\n"
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
            pieces.expand(self._read_substitution(depth, is_fed=char == ">"))
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

    def _read_substitution(self, depth: int, is_fed: bool = False) -> list[Command]:
        """Read up to the `)` of a substitution, and return its commands. Refuse one that follows a here-document on its
        line: shells disagree on whether a line feed in the substitution starts the text of the here-document."""
        if self._heredocs:
            raise NotUnderstood("a substitution follows a here-document on its line")
        before = len(self.commands)
        held = self._input, self._own_input, self._printer
        if is_fed:
            self._input = ANY
        self.read_list(")", depth + 1)
        self._input, self._own_input, self._printer = held
        return self.commands[before:]

    def _read_backticks(self, pieces: WordPieces, depth: int, quoted: bool) -> None:
        end = self.text.find("`", self.at + 1)
        inner = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inner:
            raise NotUnderstood("it contains backticks that are not simple")
        if depth >= _MAX_DEPTH:
            raise NotUnderstood("it is nested too deeply")
        reader = _Reader(inner)
        reader._input = None if self._input is None else ANY
        reader.read_list("", depth + 1)
        for command in reader.with_inputs():
            self._add(command, None)
        self.redirects_or_groups = self.redirects_or_groups or reader.redirects_or_groups
        pieces.expand(reader.commands, not quoted)
        self.at = end + 1
