"""Finds the deny or ask rule that a command line falls under, and says what of a line these rules cannot see."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterable, Sequence, Set

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH, EDIT, READ

from ..system.host import is_under
from . import read_targets
from .paths import PathPattern, PathScope
from .read_targets import is_pathless, operands_read, resolve, shell_directories, without_own_view
from .rules import Behavior, CommandPattern, Rule, RuleSet
from .shell.read_only import is_null, reads_only
from .shell.risky_options import risk
from .shell.shell_parser import parse
from .shell.shell_words import Command, NotUnderstood, Word, canonical, decides_what_runs, names, splits_into_files
from .shell.wrappers import effective, everything_behind, hides_lines, lines_inside, started_by

_MAX_HEADS = 8
_SEPARATORS = re.compile(r"[;&|\n(){}`<>]|\$\(|\b(?:if|then|else|elif|do|while|until|in|time|coproc)\b|(?<!\S)!(?!\S)")


@dataclass(frozen=True)
class _Search:
    """The rules of one behavior that can apply to a command line. `no_writes` covers every write."""

    commands: Sequence[Rule]
    reads: Sequence[Rule]
    writes: Sequence[Rule]
    no_writes: Rule | None
    places: PathScope

    def about_line(self, commands: Sequence[Command], bases: Sequence[str]) -> Rule | None:
        for command in commands:
            rule = self._about_command(command) or self._about_files(command, bases)
            if rule:
                return rule
            is_about_files = self.reads or self.writes or self.no_writes
            for line in lines_inside(command) if is_about_files else ():  # as in `sh -c 'cat file'`
                inside = shell_directories(line, self.places, bases) or bases
                rule = next(filter(None, (self._about_files(part, inside) for part in line)), None)
                if rule:
                    return rule
        return None

    def about_text(self, text: str) -> Rule | None:
        """Return the rule that matches a line that cannot be parsed, also without quotes, or a piece of it."""
        joined = re.sub(r"\\\n", "", text)
        for variant in {joined, re.sub(r"['\"\\]", "", joined)}:
            for piece in [variant, *_SEPARATORS.split(variant)]:
                rule = self._matching(_candidates(piece))
                if rule:
                    return rule
        return None

    def _matching(self, texts: Iterable[str]) -> Rule | None:
        named = filter(None, texts)
        found = (rule for text in named for rule in self.commands if CommandPattern(rule.content or "").matches(text))
        return next(found, None)

    def _about_command(self, command: Command) -> Rule | None:
        for behind in everything_behind(command) if self.commands else ():
            plain = " ".join(word.text for word in behind.words)
            named = plain[len(behind.name) - len(os.path.basename(behind.name)) :]  # without its directory
            rule = self._matching({plain, canonical(behind.words), behind.raw, named})
            if rule:
                return rule
        return None

    def _about_files(self, command: Command, bases: Sequence[str]) -> Rule | None:
        for redirect in command.redirects:
            writes = redirect.writes and not is_null(redirect.target)
            if writes and self.no_writes:
                return self.no_writes
            rule = self._about_words([redirect.target], self.writes if writes else self.reads, bases)
            if rule:
                return rule
        if is_pathless(command):
            return None
        concerned = self.reads if reads_only(command) else [*self.reads, *self.writes]
        return self._about_words(command.words[1:], concerned, bases)

    def _about_words(self, words: Sequence[Word], rules: Sequence[Rule], bases: Sequence[str]) -> Rule | None:
        words = list(dict.fromkeys(words)) if rules else []
        rule = next(filter(None, (self._about_path(word, rules, bases) for word in words)), None)
        wild = [word for word in words if word.is_glob and not word.dynamic]
        found = {path.casefold() for word in wild for path in read_targets.matches(word, self.places, bases)}
        for each in rules if found and not rule else ():
            expressions = PathPattern(each.content or "").expressions(self.places)
            if any(map(re.compile("|".join(expressions), re.DOTALL).fullmatch, found)):
                return each
        return rule

    def _about_path(self, word: Word, rules: Sequence[Rule], bases: Sequence[str]) -> Rule | None:
        texts = {word.text, word.text.partition("=")[2], *re.split("[=:@,]", word.text)}  # HEAD:path, -d@path
        if word.text.startswith("-"):
            texts.update(read_targets.option_values(word.text))
        texts.discard("")
        for rule in rules:
            pattern = PathPattern(rule.content or "")
            if any(pattern.forbids(without_own_view(text, at), self.places, at) for text in texts for at in bases):
                return rule
        return None


def forbidding_rule(text: str, rules: RuleSet, behavior: Behavior, places: PathScope, start: str) -> Rule | None:
    """Return the deny (or ask) rule that some command of the line falls under: also behind wrappers, in `sh -c`, and in
    the raw text of a line that cannot be parsed."""
    about_commands, reads, writes = (rules.contents(behavior, tool.name) for tool in (BASH, READ, EDIT))
    search = _Search(about_commands, reads, writes, rules.whole_tool(behavior, EDIT.name), places)
    if not (about_commands or reads or writes or search.no_writes):
        return None
    try:
        commands = parse(text)
    except NotUnderstood:
        return search.about_text(text)
    return search.about_line(commands, shell_directories(commands, places, [start]) or [start])


def _candidates(piece: str) -> list[str]:
    """Return the commands that a piece of a line may run: without its assignments, and what its wrapper starts."""
    words = piece.split()
    while words and re.match(r"[A-Za-z_]\w*\+?=", words[0]):
        words.pop(0)
    is_wrapper = words and len(everything_behind(Command(tuple(Word(word, word) for word in words[:2])))) > 1
    return [" ".join(words[start:]) for start in (range(min(len(words), _MAX_HEADS)) if is_wrapper else range(1))]


def why_unseen(text: str, about: Set[str], places: PathScope, start: str, *, by_rules: bool = False) -> str:
    """Return why the deny rules have not seen all of a line, "" if they have. `about` says which kinds of them there
    are: about "commands", or about files that are read ("reads") or written ("writes"). `by_rules`: a rule or a check
    of its own covers each command with its arguments."""
    try:
        commands = parse(text)
        bases = shell_directories(commands, places, [start])
        if bases is None or not all(map(_shows_what_it_starts, commands)):
            return "it is not clear what it runs, or where"
        if "commands" in about and any(decides_what_runs(each) or hides_lines(each) for each in commands):
            return "the text does not show what it runs"
        for command in commands if "commands" in about and not by_rules else ():
            argument = risk(command.words) if command.words else None
            if argument:
                return f"{shortened(argument)} may run another program"
        for command in commands:
            _check_files(command, commands, places, bases, about)
            if about != {"commands"}:
                _check_lines_inside(command, places, bases, about)
    except NotUnderstood as reason:
        return str(reason)
    return ""


def _shows_what_it_starts(command: Command) -> bool:
    inner = effective(command)
    started = None if inner is None else started_by(inner)
    return started is not None and None not in map(effective, started)


def _check_lines_inside(command: Command, places: PathScope, bases: Sequence[str], about: Set[str]) -> None:
    if hides_lines(command):
        raise NotUnderstood("the text does not show what it runs")
    for line in lines_inside(command):
        inside = shell_directories(line, places, bases)
        if inside is None:
            raise NotUnderstood("it is not clear where it runs")
        for part in line:
            _check_files(part, line, places, inside, about)


def _check_files(
    command: Command, line: Sequence[Command], places: PathScope, bases: Sequence[str], about: Set[str]
) -> None:
    """Raise NotUnderstood if the text does not show which files that deny rules may be about the command opens."""
    for redirect in command.redirects:
        if redirect.target.dynamic and ("writes" if redirect.writes else "reads") in about:
            raise NotUnderstood("a path is known only when it runs")
    reads_files = not is_pathless(command)
    if not reads_only(command):
        if about != {"commands"} and reads_files and any(map(_is_unclear, command.words)):
            raise NotUnderstood("an argument is known only when it runs")
    elif "reads" in about:
        if splits_into_files(command, line):
            raise NotUnderstood("the shell may take the value of an expansion for wildcards")
        words = operands_read(command) if reads_files else []
        for word in words:
            resolve(word, places, bases)
        if reads_files:
            read_targets.check_directories(command, words, places, bases)


def _is_unclear(word: Word) -> bool:
    """Return whether the text does not show what the program gets; the locale explains brackets in wildcards."""
    return word.dynamic or (word.is_glob and (read_targets.has_deep_wildcards(word) or "[" in word.skeleton))


def shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"


_ALWAYS = names("diff rg ag ack ugrep tar zip rsync")
_WITH_OPTION = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), re.compile(r"-[A-Za-z]*[rR]|--(de)?r|--dir|-d")),
    "cp": re.compile(r"-[A-Za-z]*[rRa]|--(rec|arc)"),
}
_SECONDS = 0.1
_MAX_ENTRIES = 20_000


_SYSTEM_LOGS = {"journalctl": ("/var/log/journal", "/run/log/journal"), "last": ("/var/log/wtmp",)}


def swept_rule(text: str, rules: Sequence[Rule], places: PathScope, start: str) -> Rule | None:
    """Return the path rule that a command would circumvent by reading a whole directory above the rule's files. If the
    search takes too long, the rule counts as found."""
    try:
        commands = parse(text) if rules else []
    except NotUnderstood:
        return None
    bases = shell_directories(commands, places, [start]) or [start]
    deadline = time.monotonic() + _SECONDS
    for command in commands:
        inner = effective(command)
        for path, rule in itertools.product(_SYSTEM_LOGS.get(inner.name if inner else "", ()), rules):
            if PathPattern(rule.content or "").forbids(path, places):
                return rule
        for root in _roots(command, places, bases):
            for rule in rules:
                if _holds(root, PathPattern(rule.content or ""), places, deadline):
                    return rule
    return None


def _roots(command: Command, places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the directories that a command reads recursively: all `bases` and those it names if that is unclear."""
    inner = effective(command)
    if inner is None or not _reads_through(inner):
        return []
    try:
        operands = [] if inner.name == "git" else operands_read(inner)
        found = [path for word in operands if not word.text.startswith("-") for path in resolve(word, places, bases)]
    except NotUnderstood:
        named = list(bases)
        for word in inner.words[1:]:
            with contextlib.suppress(NotUnderstood):
                named += filter(os.path.isdir, resolve(word, places, bases))
        return named
    directories = list(filter(os.path.isdir, found))
    return directories or ([] if inner.name == "diff" else list(bases))  # diff may compare two files


def _reads_through(command: Command) -> bool:
    texts = [word.text for word in command.words[1:]]
    if command.name == "find":
        return not all(map(is_pathless, started_by(command) or []))
    if command.name == "git":
        return "grep" in texts
    option = _WITH_OPTION.get(command.name)
    return command.name in _ALWAYS or (option is not None and any(map(option.match, texts)))


def _holds(root: str, pattern: PathPattern, places: PathScope, deadline: float) -> bool:
    below = root.casefold()
    for start, glob in pattern.anchored(places, wide=True):
        if is_under(start.casefold(), below):
            if os.path.lexists(start) and (not glob or _finds(start, pattern, places, deadline)):
                return True
        elif is_under(below, start.casefold()) and glob and _finds(root, pattern, places, deadline):
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
