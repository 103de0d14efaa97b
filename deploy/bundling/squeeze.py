"""Source with short names of local variables and without the spaces that Python does not need. No line moves."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .arguments import NamedArguments
from .names import outermost, shorter
from .tokens import is_formatted, tokens

_Token = tuple[str, str]
_WORDS = ("name", "number")
_ENDS_OF_OPERANDS = (")", "]", "}")


@dataclass(frozen=True)
class Names:
    """What is known of names beyond one function: which arguments calls name, and the new names of the private names of
    a module."""

    arguments: NamedArguments
    privates: Mapping[str, str]


def squeeze(source: str, tree: ast.Module, known: Names) -> str:
    """Return the short form of `source`, whose tree has the same functions on the same lines."""
    lines = source.split("\n")
    for node in outermost(tree):
        if names := shorter(node, known.arguments):
            begin, end = node.lineno - 1, node.end_lineno or 0
            lines[begin:end] = renamed("\n".join(lines[begin:end]), names).split("\n")
    return narrow(renamed("\n".join(lines), known.privates, everywhere=True))


def renamed(source: str, names: Mapping[str, str], *, everywhere: bool = False) -> str:
    """Return source with the new `names` of the variables of a function or expression; `everywhere`: also where a name
    is that of an attribute or of an argument."""
    return "".join(_renamed(source, names, everywhere))


def _renamed(source: str, names: Mapping[str, str], everywhere: bool) -> Iterator[str]:
    every = [*tokens(source), ("", "")]
    before = last_but_one = ""
    has_parameters: list[bool] = []  # for each open bracket: whether parameters are in it, and not arguments
    for number, (kind, text) in enumerate(every):
        shown = text
        if kind == "name" and text in names:
            is_variable = before not in (".", "!")
            if is_variable and has_parameters and not has_parameters[-1] and before in ("(", ","):
                is_variable = _following(every, number) != "="
            shown = names[text] if is_variable or everywhere else text
        elif kind == "operator":
            if text in "([{":
                has_parameters.append(last_but_one == "def")
            elif text in ")]}":
                has_parameters.pop()
        elif kind == "string" and is_formatted(text):
            shown = "".join(_formatted(text, names, everywhere))
        if kind not in ("space", "line"):
            last_but_one, before = before, text
        yield shown


def _following(every: list[_Token], number: int) -> str:
    return next((text for kind, text in every[number + 1 :] if kind not in ("space", "line")), "")


def _formatted(string: str, names: Mapping[str, str], everywhere: bool) -> Iterator[str]:
    """Return an f-string, in pieces, with the new names in its expressions."""
    at = begin = 0
    while at < len(string):
        if string[at] in "{}" and string[at + 1] == string[at]:
            at += 2
        elif string[at] == "{":
            yield string[begin : at + 1]
            begin, at = at + 1, _end_of_expression(string, at + 1)
            yield renamed(string[begin:at], names, everywhere=everywhere)
            begin = at
        else:
            at += 1
    yield string[begin:]


def _end_of_expression(string: str, at: int) -> int:
    """Return where the expression that begins at `at` ends: before its format or its closing brace."""
    depth = 0
    for kind, text in tokens(string[at:]):
        if not depth and text in (":", "}"):
            break
        if kind == "operator":
            depth += (text in "([{") - (text in ")]}")
        at += len(text)
    return at


def narrow(source: str) -> str:
    """Return `source` with one space for four of its indentation, and without the other spaces that nothing needs, and
    the commas before closing brackets."""
    out: list[str] = []
    open_brackets: list[list[int]] = []  # commas in it, and how many a last one must have before it to be of no use
    last: _Token = ("line", "")
    spaced = False
    comma = 0
    for token in tokens(source):
        kind, text = token
        if kind == "space":
            spaced = True
            if last[0] == "line" and not open_brackets:
                out.append(" " * (len(text) // 4))
            continue
        if kind == "line":
            out.append("\n" * text.count("\n"))
            last, spaced = last if open_brackets else token, True
            continue
        if spaced and _must_part(last, token):
            out.append(" ")
        if text in ("(", "[", "{"):
            open_brackets.append([0, _needed_commas(text, last)])
        elif text in (")", "]", "}"):
            commas, needed = open_brackets.pop()
            if last[1] == "," and commas > needed:
                out[comma] = ""
        elif text == "," and open_brackets:
            open_brackets[-1][0] += 1
            comma = len(out)
        out.append(text)
        last, spaced = token, False
    return "".join(out)


def _needed_commas(bracket: str, last: _Token) -> int:
    """Return how many commas make a tuple between these brackets, 0 if it is none: a call, a list, a set, a dict."""
    kind, text = last
    after_operand = (kind == "name" and not keyword.iskeyword(text)) or text in _ENDS_OF_OPERANDS or kind == "string"
    return int(after_operand if bracket == "[" else not after_operand) if bracket != "{" else 0


def _must_part(one: _Token, two: _Token) -> bool:
    """Return whether there must be a space between two tokens that had one."""
    if one[0] in _WORDS:
        return two[0] in _WORDS or (two[0] == "string" and two[1][0] not in "\"'") or two[1] == "."
    return one[0] == two[0] == "string" or (one[0] == two[0] == "operator" and one[1] in "*/<>" and two[1] in "*/<>=")
