"""Find the rule that forbids it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH, EDIT, READ

from ..system.host import is_under
from .paths import PathPattern, PathScope
from .read_targets import (
    Unknown,
    directories_inside,
    is_pathless,
    matches,
    operands_read,
    option_values,
    resolve,
    shell_directories,
    without_own_view,
)
from .rules import Behavior, CommandPattern, Rule, RuleSet
from .shell.read_only import is_null, reads_only
from .shell.shell_parser import parse
from .shell.shell_words import Command, NotUnderstood, Word, canonical, names
from .shell.wrappers import effective, everything_behind, lines_inside, started_by

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


def forbidding_rule(text: str, rules: RuleSet, behavior: Behavior, places: PathScope, start: str) -> Rule | None:
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
    command: Command, held: _CommandLineRules, places: PathScope, bases: Sequence[str]
) -> Rule | None:
    return _rule_about_redirects(command, held, places, bases) or _rule_about_arguments(command, held, places, bases)


def _rule_about_files(
    command: Command, held: _CommandLineRules, places: PathScope, bases: Sequence[str]
) -> Rule | None:
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


def swept_rule(text: str, rules: Sequence[Rule], places: PathScope, start: str) -> Rule | None:
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
    command: Command, held: _CommandLineRules, places: PathScope, bases: Sequence[str]
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
    command: Command, held: _CommandLineRules, places: PathScope, bases: Sequence[str]
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


def _rule_about_path(word: Word, rules: Sequence[Rule], places: PathScope, bases: Sequence[str]) -> Rule | None:
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


_ALWAYS = names("diff rg ag ack ugrep tar zip rsync")
_WITH_OPTION = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-[A-Za-z]*[rR]|--(de)?r|--dir|-d")),
    "cp": re.compile(r"-[A-Za-z]*[rRa]|--(rec|arc)"),
}
_SECONDS = 0.1
_MAX_ENTRIES = 20_000


def rule_on_the_way(
    commands: Sequence[Command], bases: Sequence[str], rules: Sequence[Rule], places: PathScope
) -> Rule | None:
    """Return the first path rule that covers a file below a directory that the command reads recursively. `bases` are
    the directories the shell may be in. If the search takes too long, the rule counts as found."""
    if not rules:
        return None
    deadline = time.monotonic() + _SECONDS
    for command in commands:
        for root in _roots(command, places, bases):
            for rule in rules:
                if _holds(root, PathPattern(rule.content or ""), places, deadline):
                    return rule
    return None


def _roots(command: Command, places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the directories that a command reads recursively: all `bases` and those it names if they are unclear, none
    for other commands."""
    inner = effective(command)
    if inner is None or not _reads_through(inner):
        return []
    try:
        found = [path for word in _operands(inner) for path in resolve(word, places, bases)]
    except Unknown:
        return [*bases, *_directories(inner.words[1:], places, bases)]
    directories = [path for path in found if os.path.isdir(path)]
    return directories or ([] if inner.name == "diff" else list(bases))  # diff may compare two files


def _directories(words: Sequence[Word], places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the directories that any of the words may name."""
    found: list[str] = []
    for word in words:
        with contextlib.suppress(Unknown):
            found += [path for path in resolve(word, places, bases) if os.path.isdir(path)]
    return found


def _reads_through(command: Command) -> bool:
    texts = [word.text for word in command.words[1:]]
    if command.name == "find":
        return not all(map(is_pathless, started_by(command) or []))
    if command.name == "git":
        return "grep" in texts
    option = _WITH_OPTION.get(command.name)
    return command.name in _ALWAYS or (option is not None and any(map(option.match, texts)))


def _operands(command: Command) -> list[Word]:
    if command.name == "git":
        return []
    found = operands_read(command)
    return [word for word in found if not word.text.startswith("-")]


def _holds(root: str, pattern: PathPattern, places: PathScope, deadline: float) -> bool:
    below = root.casefold()
    for start, is_whole in pattern.starts(places):
        if is_under(start.casefold(), below):
            if os.path.lexists(start) and (is_whole or _finds(start, pattern, places, deadline)):
                return True
        elif is_under(below, start.casefold()) and not is_whole and _finds(root, pattern, places, deadline):
            return True
    return False


def _finds(top: str, pattern: PathPattern, places: PathScope, deadline: float) -> bool:
    matches = re.compile("|".join(pattern.expressions(places)), re.DOTALL).fullmatch
    left = _MAX_ENTRIES
    for directory, directories, files in os.walk(top):
        left -= len(directories) + len(files)
        if left < 0 or time.monotonic() > deadline:
            return True
        if any(matches(os.path.join(directory, name).casefold()) for name in (*directories, *files)):
            return True
    return False
