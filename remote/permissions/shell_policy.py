"""The decision on a shell command line by allow rules and mode: a line is allowed if every command in it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH, EDIT, READ

from . import rule_suggestions
from .git_repositories import why_unsafe
from .modes import Trust
from .paths import PathPattern, PathScope, protection
from .read_targets import (
    Unknown,
    check_directories,
    directories_inside,
    has_deep_wildcards,
    is_pathless,
    operands_read,
    resolve,
    shell_directories,
)
from .rules import Behavior, CommandPattern, Decision, Rule, RuleSet
from .shell import risky_options
from .shell.read_only import is_null, reads_only, reads_only_together, runs_git
from .shell.shell_parser import parse
from .shell.shell_words import Command, NotUnderstood, Word, canonical, is_harmless_assignment, splits_into_files
from .shell.wrappers import effective, hides_commands, hides_lines, lines_inside, runs_its_input, started_by

Json = dict[str, Any]

_MAX_PLACES = 200  # paths of a line that are looked up, each some milliseconds


@dataclass(frozen=True)
class _Problem:
    """Why one command is not allowed, and the rule that would allow it."""

    reason: str
    rule: Rule | None = None
    path: str = ""
    is_write_inside: bool = False


@dataclass(frozen=True)
class DeniedKinds:
    """Which kinds of deny rules there are: about commands, about files that are read, about files that are written."""

    commands: bool
    reads: bool
    writes: bool

    def __bool__(self) -> bool:
        return self.commands or self.reads or self.writes


class BashPolicy:
    """Decides on one command line by the present rules and mode. `start` is the real path of the shell's current
    directory."""

    def __init__(
        self, rules: RuleSet, places: PathScope, accepts_edits: bool, start: str, *, trust: Trust = Trust.ANY
    ) -> None:
        self._start = start
        self._trust = trust
        self._is_trusted = True
        self._places = places
        self._accepts_edits = accepts_edits
        self._allow = [CommandPattern(rule.content or "") for rule in rules.contents(Behavior.ALLOW, BASH.name)]
        self._edit = [PathPattern(rule.content or "") for rule in rules.contents(Behavior.ALLOW, EDIT.name)]
        self._read = [PathPattern(rule.content or "") for rule in rules.contents(Behavior.ALLOW, READ.name)]
        self._edits_all = rules.whole_tool(Behavior.ALLOW, EDIT.name) is not None
        self._reads_all = rules.whole_tool(Behavior.ALLOW, READ.name) is not None
        self._bases: list[str] | None = None
        self._commands: Sequence[Command] = ()
        self._together = True
        self._inside: dict[str, bool] = {}  # which paths of the line lead to files of the working directories

    def decide(self, text: str) -> Decision:
        """Return ALLOW if every command of the line is allowed, else ASK."""
        if self.allows_exactly(text):
            return Decision(Behavior.ALLOW, "A rule allows this very command.", "rule")
        whole = rule_suggestions.exact_rule(text)
        try:
            commands = parse(text)
        except NotUnderstood as reason:
            return _ask(f"The command could not be checked: {reason}.", [whole])
        if not commands:
            return _ask("The command is empty.", [])
        self._commands = commands
        self._bases = shell_directories(commands, self._places, self._start)
        self._together, self._inside = reads_only_together(commands), {}
        self._is_trusted = self._trust is not Trust.LITERAL_LINES or _is_plain(text)
        problems = [problem for command in commands for problem in self._problems(command)]
        if not problems:
            return Decision(Behavior.ALLOW, "Every command in it is allowed.", "rule")
        path = next((problem.path for problem in problems if problem.path), "")
        kind = "subcommandResults" if len(commands) > 1 else "workingDir" if path else "other"
        updates = _suggestions(problems, whole if len(commands) == 1 else None)
        return Decision(Behavior.ASK, problems[0].reason, kind, path, updates)

    def allows_exactly(self, text: str) -> bool:
        """Return whether a rule allows exactly this text, as a person has seen it."""
        return any(pattern.is_exact and pattern.text == text.strip() for pattern in self._allow)

    def understand(self, text: str, about: DeniedKinds, *, by_rules: bool = False) -> Decision | None:
        """Return None if the deny rules that there are (`about`) have seen all of the line. Otherwise return the
        question. `by_rules`: a rule or a check of its own covers each command with its arguments."""
        try:
            commands = parse(text)
            bases = self._bases_shown(commands)
            if about.commands:
                _check_commands_shown(commands, by_rules)
            for command in commands:
                self._check_files_shown(command, commands, bases, about)
                if about.reads or about.writes:
                    self._check_lines_inside(command, bases, about)
        except (NotUnderstood, Unknown) as reason:
            whole = rule_suggestions.exact_rule(text)
            return _ask(f"Deny rules could not be checked against the command: {reason}.", [whole])
        return None

    def _bases_shown(self, commands: Sequence[Command]) -> list[str]:
        """Return where a line runs. Raise NotUnderstood if that, or what it runs, is not clear."""
        bases = shell_directories(commands, self._places, self._start)
        inner = [effective(command) for command in commands]
        started = [None if each is None else started_by(each) for each in inner]
        found = [effective(each) for part in started for each in part or ()]
        if bases is None or None in started or None in found:
            raise NotUnderstood("it is not clear what it runs, or where")
        return bases

    def _check_lines_inside(self, command: Command, bases: Sequence[str], about: DeniedKinds) -> None:
        """Raise Unknown if a line that the command runs, as `sh -c` does, does not show which files it opens."""
        if hides_lines(command):
            raise Unknown("the text does not show what it runs")
        for line in lines_inside(command):
            inside = directories_inside(line, self._places, bases)
            if inside is None:
                raise Unknown("it is not clear where it runs")
            for part in line:
                self._check_files_shown(part, line, inside, about)

    def _check_files_shown(
        self, command: Command, commands: Sequence[Command], bases: Sequence[str], about: DeniedKinds
    ) -> None:
        """Raise Unknown if the text does not show which files the command opens, as far as deny rules are about it."""
        for redirect in command.redirects:
            if redirect.target.dynamic and (about.writes if redirect.writes else about.reads):
                raise Unknown("a path is known only when it runs")
        reads_files = not is_pathless(command)
        if not reads_only(command):
            if (about.reads or about.writes) and reads_files and any(map(_is_unclear, command.words)):
                raise Unknown("an argument is known only when it runs")
        elif about.reads:
            if splits_into_files(command, commands):
                raise Unknown("the shell may take the value of an expansion for wildcards")
            words = operands_read(command) if reads_files else []
            for word in words:
                resolve(word, self._places, bases)
            if reads_files:
                check_directories(command, words, self._places, bases)

    def _problems(self, command: Command) -> list[_Problem]:
        opened = [
            self._write_problem(redirect.target) if redirect.writes else self._input_problem(redirect.target)
            for redirect in command.redirects
        ]
        run = self._run_problem(command) if command.words or command.assignments else None
        return [problem for problem in (run, *opened) if problem]

    def _run_problem(self, command: Command) -> _Problem | None:
        inner = effective(command)
        uncovered = self._uncovered_by_rules(command, inner)
        if uncovered is None:
            started = (started_by(inner) if inner else None) or []
            return next(filter(None, map(self._run_problem, started)), None)
        if self._may_read(command) and reads_only(command) and (self._together or not runs_git(command)):
            return self._git_problem(command) or self._read_problem(command, inner)
        if inner and self._accepts_edits and inner.name in ("mkdir", "touch") and not inner.assignments:
            return self._creation_problem(inner)
        return self._uncovered_problem(command, inner, uncovered)

    def _uncovered_problem(self, command: Command, inner: Command | None, uncovered: str) -> _Problem:
        """Return the problem of a command that no rule allows, with the rule that would."""
        reason = f"No rule allows `{_shortened(command.raw or canonical(command.words))}`."
        if inner is None:
            return _Problem(reason)
        rule = rule_suggestions.command_rule(inner)
        pattern = CommandPattern(rule.content or "") if rule else None
        if pattern and not pattern.is_exact:
            uncovered = self._uncovered(inner.words, pattern.words) or uncovered
        if not uncovered:
            return _Problem(reason, rule)
        reason = f"{reason} A rule with a wildcard does not cover {_shortened(uncovered)}."
        return _Problem(reason, rule_suggestions.exact_command_rule(inner))

    def _may_read(self, command: Command) -> bool:
        """Return whether the command can be let through because it only reads."""
        if self._trust is not Trust.LITERAL_COMMANDS:
            return self._is_trusted
        literal = not command.assignments and all(word.is_literal for word in command.words)
        return literal and all(is_null(redirect.target) for redirect in command.redirects)

    def _uncovered_by_rules(self, command: Command, inner: Command | None) -> str | None:
        """Return None if a rule allows the command. Return the argument that rules with a wildcard do not cover, or ""
        if no rule is about the command."""
        own = (*command.assignments, *command.words)
        texts = _texts_for_rules(command, inner)
        hidden = len(own) - len(inner.words) if inner else len(own)  # words before the program that finally runs
        uncovered = ""
        for pattern in self._allow:
            for words in [words for text, words in texts.items() if text and pattern.matches(text)]:
                if pattern.is_exact and _may_be_fed_code(command):
                    continue
                if not pattern.is_exact and words == own and 0 < hidden >= pattern.words:
                    continue  # the wildcard stands for the program
                skipped = len(command.assignments) if words == own else 0
                found = None if pattern.is_exact else self._uncovered(words[skipped:], pattern.words - skipped)
                if found is None:
                    return None
                uncovered = found
        return uncovered

    def _uncovered(self, words: Sequence[Word], head: int) -> str | None:
        """Return the first argument that a rule does not cover which spells out the first `head` words, or None."""
        return risky_options.uncovered(words, head, self._is_inside, self._bases) if words else None

    def _is_inside(self, path: str) -> bool:
        """Return whether a path leads to a file of the working directories that is not protected."""
        if path in self._inside:
            return self._inside[path]
        if path.startswith("~") or self._bases is None or len(self._inside) >= _MAX_PLACES:
            return False
        found = [self._places.real(path, base) for base in self._bases]
        self._inside[path] = all(self._places.holds(real) and not protection(real, self._places.home) for real in found)
        return self._inside[path]

    def _git_problem(self, command: Command) -> _Problem | None:
        """Return the problem of a repository whose files make git do more than read. Only this text can be allowed."""
        for base in self._bases or [self._start] if runs_git(command) else ():
            strict = self._trust is Trust.LITERAL_LINES
            why = why_unsafe(self._places.real(base), self._places.roots, self._places.home, strict)
            if why:
                return _Problem(f"git may run programs here: {why}.", rule_suggestions.exact_rule(command.raw))
        return None

    def _read_problem(self, command: Command, inner: Command | None) -> _Problem | None:
        try:
            words = operands_read(command)
            if splits_into_files(command, self._commands):
                raise Unknown("the shell may take the value of an expansion for wildcards")
            if self._bases is None and not is_pathless(command):
                raise Unknown("it is not clear in which directory it runs")
            for base in [] if is_pathless(command) else self._bases or []:
                problem = self._place_problem(self._places.real(base))
                if problem:
                    return problem
            for word in words:
                problem = self._input_problem(word)
                if problem:
                    return problem
            check_directories(command, words, self._places, self._bases or [])
        except Unknown as reason:
            rule = rule_suggestions.command_rule(inner) if inner else None
            return _Problem(f"`{_shortened(command.raw)}` may read outside the working directories: {reason}.", rule)
        return None

    def _input_problem(self, word: Word) -> _Problem | None:
        return self._first_problem(word, self._place_problem, "read")

    def _first_problem(
        self, word: Word, problem_of: Callable[[str], _Problem | None], what_happens: str
    ) -> _Problem | None:
        """Return the first problem of the files that a word may stand for."""
        try:
            for real in self._resolved(word):
                problem = problem_of(real)
                if problem:
                    return problem
        except Unknown as reason:
            return _Problem(f"It is not clear which file is {what_happens}: {reason}.")
        return None

    def _place_problem(self, real: str) -> _Problem | None:
        if self._places.holds(real) or self._reads_all or self._covers(self._read, real):
            return None
        return _Problem(
            f"{real} is outside the working directories.",
            rule_suggestions.directory_rule(READ.name, real, self._places.home),
            real,
        )

    def _write_problem(self, word: Word) -> _Problem | None:
        if is_null(word):
            return None
        if word.is_glob:
            return _Problem("It is not clear which file is written: it is written with wildcards.")
        return self._first_problem(word, self._edit_problem, "written")

    def _edit_problem(self, real: str) -> _Problem | None:
        why = protection(real, self._places.home)
        if why:
            return _Problem(f"{real} is protected: {why}.", None, real)
        if self._edits_all or self._covers(self._edit, real):
            return None
        if not self._places.holds(real):
            return _Problem(
                f"{real} is outside the working directories.",
                rule_suggestions.directory_rule(EDIT.name, real, self._places.home),
                real,
            )
        if self._accepts_edits:
            return None
        return _Problem(
            f"The command writes {real}.", rule_suggestions.file_rule(EDIT.name, real), real, is_write_inside=True
        )

    def _creation_problem(self, command: Command) -> _Problem | None:
        """Judge mkdir and touch. They are allowed with no option that takes a value."""
        for word in command.words[1:]:
            if word.text.startswith("-"):
                if not word.is_literal or word.text not in ("-p", "--parents", "-v", "-c", "-a", "--"):
                    return _Problem(
                        f"No rule allows `{_shortened(command.raw)}`.", rule_suggestions.command_rule(command)
                    )
                continue
            problem = self._write_problem(word)
            if problem:
                return problem
        return None

    def _resolved(self, word: Word) -> list[str]:
        if self._bases is None:
            raise Unknown("it is not clear in which directory it runs")
        return resolve(word, self._places, self._bases)

    def _covers(self, patterns: Sequence[PathPattern], real: str) -> bool:
        return any(pattern.allows(real, self._places) for pattern in patterns)


def _check_commands_shown(commands: Sequence[Command], by_rules: bool) -> None:
    """Raise NotUnderstood if the text does not show which commands finally run. `by_rules`: a rule or a check covers
    each command with its arguments."""
    if any(map(hides_commands, commands)):
        raise NotUnderstood("the text does not show what it runs")
    for each in () if by_rules else commands:
        risk = risky_options.risk(each.words) if each.words else None
        if risk:
            raise NotUnderstood(f"{_shortened(risk)} may run another program")


def _texts_for_rules(command: Command, inner: Command | None) -> dict[str, Sequence[Word]]:
    """Return the texts that a rule may match, each with its words; none if it is not clear what the command starts."""
    own = (*command.assignments, *command.words)
    texts: dict[str, Sequence[Word]] = {canonical(own): own}
    if not command.redirects:
        texts[command.raw] = own
    if inner and inner.words and all(is_harmless_assignment(word, True) for word in inner.assignments):
        if started_by(inner) is None:
            return {}
        texts[canonical(inner.words)] = inner.words
    return texts


def _may_be_fed_code(command: Command) -> bool:
    """Return whether a command may run what it reads, which no rule about its words has seen."""
    return command.fed or (command.gets is not None and runs_its_input(command.words))


def _suggestions(problems: Sequence[_Problem], whole: Rule | None) -> list[Json]:
    """Return the permission updates that would allow a line. `whole` is the rule for exactly this text, None when such
    a rule would not help."""
    rules = [problem.rule for problem in problems if problem.rule]
    if len(rules) < len(problems):
        return rule_suggestions.add_rules([whole]) if whole and not any(problem.path for problem in problems) else []
    inside = [problem for problem in problems if problem.is_write_inside]
    updates = [] if len(inside) == len(problems) else rule_suggestions.add_rules(rules)
    return [*updates, rule_suggestions.accept_edits()] if inside else updates


def _is_unclear(word: Word) -> bool:
    """Return whether the text does not show what the program gets, as wildcards with brackets, which the locale
    explains."""
    return word.dynamic or (word.is_glob and (has_deep_wildcards(word) or "[" in word.skeleton))


def _is_plain(text: str) -> bool:
    try:
        parse(text, strict=True)
    except NotUnderstood:
        return False
    return True


def _ask(reason: str, rules: Sequence[Rule | None]) -> Decision:
    return Decision(Behavior.ASK, reason, "other", "", rule_suggestions.add_rules([rule for rule in rules if rule]))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"
