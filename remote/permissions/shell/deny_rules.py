"""Deny and ask rules for shell commands: find the rule that some part of a command line falls under."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH, EDIT, READ

from ..decision import Behavior
from ..paths import PathPattern, Places
from ..rules.rules import CommandPattern, Rule
from ..rules.ruleset import RuleSet
from .parser import parse
from .read_targets import directories_inside, is_pathless, matches, option_values, shell_directories, without_own_view
from .readonly import is_null, reads_only
from .recursive_reads import rule_on_the_way
from .words import Command, NotUnderstood, Word, canonical
from .wrappers import everything_behind, lines_inside

_MAX_HEADS = 8
_SEPARATORS = re.compile(r"[;&|\n(){}`<>]|\$\(|\b(?:if|then|else|elif|do|while|until|in|time|coproc)\b|(?<!\S)!(?!\S)")


@dataclass(frozen=True)
class _CommandLineRules:
    """The rules of one behavior that can apply to a command line. `no_writes` is the rule that covers every write, if
    any."""

    commands: Sequence[Rule]
    reads: Sequence[Rule]
    writes: Sequence[Rule]
    no_writes: Rule | None

    @staticmethod
    def of(rules: RuleSet, behavior: Behavior) -> _CommandLineRules:
        commands, reads, writes = (rules.contents(behavior, tool.name) for tool in (BASH, READ, EDIT))
        return _CommandLineRules(commands, reads, writes, rules.whole_tool(behavior, EDIT.name))


def forbidding_rule(text: str, rules: RuleSet, behavior: Behavior, places: Places, start: str) -> Rule | None:
    """Return the deny (or ask) rule that some command of the line falls under. The search is wide: it looks through
    wrappers, into `sh -c`, and into the raw text of a line that cannot be parsed."""
    held = _CommandLineRules.of(rules, behavior)
    if not (held.commands or held.reads or held.writes or held.no_writes):
        return None
    try:
        commands = parse(text)
    except NotUnderstood:
        return _rule_about_text(text, held.commands)
    bases = shell_directories(commands, places, start) or [start]
    for command in commands:
        rule = _rule_about_command(command, held) or _rule_about_files(command, held, places, bases)
        if rule:
            return rule
    return None


def _rule_about_own_files(
    command: Command, held: _CommandLineRules, places: Places, bases: Sequence[str]
) -> Rule | None:
    return _rule_about_redirects(command, held, places, bases) or _rule_about_arguments(command, held, places, bases)


def _rule_about_files(command: Command, held: _CommandLineRules, places: Places, bases: Sequence[str]) -> Rule | None:
    """Return the rule about a file that a command opens, or that a line inside it does, as in `sh -c 'cat file'`."""
    rule = _rule_about_own_files(command, held, places, bases)
    if rule or not (held.reads or held.writes or held.no_writes):
        return rule
    for line in lines_inside(command):
        inside = directories_inside(line, places, bases) or bases
        for part in line:
            rule = _rule_about_own_files(part, held, places, inside)
            if rule:
                return rule
    return None


def swept_rule(text: str, rules: Sequence[Rule], places: Places, start: str) -> Rule | None:
    """Return the path rule that a command of the line would circumvent by reading a whole directory above the rule's
    files."""
    try:
        commands = parse(text)
    except NotUnderstood:
        return None
    return rule_on_the_way(commands, shell_directories(commands, places, start) or [start], rules, places)


def _rule_about_command(command: Command, held: _CommandLineRules) -> Rule | None:
    for behind in everything_behind(command):
        for candidate in _wide_texts(behind):
            for rule in held.commands:
                if CommandPattern(rule.content or "").matches(candidate):
                    return rule
    return None


def _rule_about_redirects(
    command: Command, held: _CommandLineRules, places: Places, bases: Sequence[str]
) -> Rule | None:
    for redirect in command.redirects:
        writes = redirect.writes and not is_null(redirect.target)
        if writes and held.no_writes:
            return held.no_writes
        rule = _rule_about_path(redirect.target, held.writes if writes else held.reads, places, bases)
        if rule:
            return rule
    return None


def _rule_about_arguments(
    command: Command, held: _CommandLineRules, places: Places, bases: Sequence[str]
) -> Rule | None:
    if is_pathless(command):
        return None
    concerned = held.reads if reads_only(command) else [*held.reads, *held.writes]
    for word in command.words[1:]:
        rule = _rule_about_path(word, concerned, places, bases)
        if rule:
            return rule
    return None


def _wide_texts(command: Command) -> set[str]:
    plain = " ".join(word.text for word in command.words)
    found = {plain, canonical(command.words), command.raw}
    if "/" in command.name:
        found.add(plain[len(command.name) - len(os.path.basename(command.name)) :])
    return {text for text in found if text}


def _rule_about_text(text: str, rules: Sequence[Rule]) -> Rule | None:
    """Return the first rule that matches a line that cannot be parsed. Try the text itself, the text without quotes,
    and the pieces between separators."""
    joined = re.sub(r"\\\n", "", text)
    for variant in {joined, re.sub(r"['\"\\]", "", joined)}:
        for piece in [variant, *_SEPARATORS.split(variant)]:
            for candidate in filter(None, _candidates(piece)):
                for rule in rules:
                    if CommandPattern(rule.content or "").matches(candidate):
                        return rule
    return None


def _candidates(piece: str) -> list[str]:
    """Return the commands that a piece of a line may run: the piece without its assignments, and what its wrapper
    starts."""
    words = piece.split()
    while words and re.match(r"[A-Za-z_]\w*\+?=", words[0]):
        words.pop(0)
    heads = range(min(len(words), _MAX_HEADS)) if _is_wrapper(words) else range(1)
    return [" ".join(words[start:]) for start in heads]


def _is_wrapper(words: Sequence[str]) -> bool:
    return bool(words) and len(everything_behind(Command(tuple(Word(word, word) for word in words[:2])))) > 1


def _rule_about_path(word: Word, rules: Sequence[Rule], places: Places, bases: Sequence[str]) -> Rule | None:
    texts = {word.text, word.text.partition("=")[2], *re.split("[=:@,]", word.text)}  # HEAD:path, -d@path, host:path
    if word.text.startswith("-"):
        texts.update(option_values(word.text))
    texts.discard("")
    for rule in rules:
        pattern = PathPattern(rule.content or "")
        if any(pattern.forbids(without_own_view(text, base), places, base) for text in texts for base in bases):
            return rule
        found = matches(word, places, bases) if word.is_glob and not word.dynamic else []
        if any(pattern.forbids(path, places) for path in found):
            return rule
    return None
