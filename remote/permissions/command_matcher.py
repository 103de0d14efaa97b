"""How permission rules and the mode apply to a command line. The engine imports this with the first command only."""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field, replace

from ccb.tunnel.wire.control_protocol import READS_SERVICES
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.tool_traits import BASH, EDIT, GREP, READ, ToolTraits

from ..sandbox.cage_rules import CageRules
from ..system.host import is_under
from . import file_commands, read_targets, rule_suggestions
from .git_repositories import why_unsafe
from .matchers import LEAVE_SANDBOX, Askable, RuleMatcher, RuleState
from .modes import BYPASS, OFF, PLAN, Trust
from .paths import EVERYWHERE, PathPattern, PathScope, is_sensitive, may_name_one, protection, sensitive_patterns
from .read_targets import is_pathless, operands_read, resolve, shell_directories
from .rules import Behavior, CommandPattern, Decision, Rule, RuleSet
from .shell import risky_options
from .shell.harmless_options import HARMLESS
from .shell.read_only import is_null, is_read_only_command, reads_only, reads_only_together, runs_git
from .shell.service_reads import names_secrets, reads_service
from .shell.shell_parser import is_plain, parse
from .shell.shell_words import Command, NotUnderstood, Word, canonical, is_harmless_assignment, splits_into_files
from .shell.wrappers import effective, runs_its_input, started_by
from .shell_deny_rules import forbidding_rule, shortened, swept_rule, why_unseen

_LOGS = ("/var/log", "/run/log")  # the read-only cage opens them
_MAX_KEPT = 30 << 20  # bytes of the files that one line may change in a cage
_WAITING = ("sleep", "tail", "wait")
_MAX_PLACES = 200  # paths of a line that are looked up, each some milliseconds


class CommandMatcher(RuleMatcher):
    """Rules with a command pattern, such as `Bash(git *)`, for a tool whose input is a shell command."""

    def matching_rule(self, behavior: Behavior, traits: ToolTraits, tool_input: Json, state: RuleState) -> Rule | None:
        return forbidding_rule(_command(tool_input), state.rules, behavior, state.places, state.start)

    def question_in_any_mode(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision | None:
        rule = swept_rule(_command(tool_input), state.path_rules(READ.name), state.places, state.start)
        if rule is None:
            return None
        reason = f"It reads through directories with files that the rule {rule} is about; {GREP.name} leaves those out."
        return Decision(Behavior.ASK, reason, "rule")

    def question_about_deny_rules(
        self, traits: ToolTraits, tool_input: Json, state: RuleState, *, by_rules: bool = False
    ) -> Decision | None:
        kinds, command = {"commands": traits.name, "reads": READ.name, "writes": EDIT.name}, _command(tool_input)
        about = {kind for kind, name in kinds.items() if state.rules.contents(Behavior.DENY, name)}
        why = why_unseen(command, about, state.places, state.start, by_rules=by_rules) if about else ""
        reason = f"Deny rules could not be checked against the command: {why}."
        return _ask(reason, rule_suggestions.exact_rule(command)) if why else None

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        return not _leaves_sandbox(tool_input) and is_read_only_command(_command(tool_input))

    def cage_if_granted(self, tool_input: Json, state: RuleState) -> CageRules | None:
        if state.mode == BYPASS or _leaves_sandbox(tool_input):
            return None
        return state.sandbox.workspace_cage(state.places.roots)

    def decide(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision:
        command = _command(tool_input)
        whole = state.rules.whole_tool(Behavior.ALLOW, traits.name)
        cage = None if state.mode == PLAN else self.cage_if_granted(tool_input, state)
        if cage is not None:
            decision = Decision(Behavior.ALLOW, "It runs in the workspace cage.", "mode", cage=cage)
        elif whole:
            decision = Decision(Behavior.ALLOW, f"The rule {whole} allows this.", "rule")
        else:
            in_background = tool_input.get("run_in_background", False) is not False
            decision = _decide_by_rules(command, state, _leaves_sandbox(tool_input), in_background)
        by_rules, exactly = cage is None and whole is None, _allows_exactly(state.rules, command)
        if decision.behavior is Behavior.ALLOW and not (by_rules and exactly):
            decision = self.question_about_deny_rules(traits, tool_input, state, by_rules=by_rules) or decision
        if decision.behavior is not Behavior.ALLOW or whole or exactly or not may_name_one(command):
            return decision
        pattern = _sensitive_target(command, state)
        reason = f"It names a file that usually holds secrets ({pattern})."
        return _ask(reason, rule_suggestions.exact_rule(command)) if pattern else decision


def _decide_by_rules(command: str, state: RuleState, leaves: bool, in_background: bool) -> Decision:
    decision = None if leaves else _decide_caged(command, state, in_background)
    if decision is None:
        decision = decide_line(command, state, state.accepts_edits, state.sandbox.trust_without_cage)
    if leaves and decision.behavior is Behavior.ALLOW and is_read_only_command(command):  # only rules let it out
        return Decision(Behavior.ASK, "It asks to run without the sandbox.", "other")
    return decision


def _decide_caged(command: str, state: RuleState, in_background: bool) -> Decision | None:
    """Return ALLOW for a line that only reads or makes accepted edits, if this host has the cage for it; else None."""
    places, sandbox = state.places, state.sandbox
    if sandbox.mode == OFF:
        return None
    readable = state.rules.only(Behavior.ALLOW, READ.name)
    readable.add("", Behavior.ALLOW, [Rule(READ.name, f"/{place}/**") for place in _LOGS])
    if decide_line(command, replace(state, rules=readable), edits=False).behavior is Behavior.ALLOW:
        patterns = [PathPattern(rule.content or "") for rule in readable.contents(Behavior.ALLOW, READ.name)]
        opened = [path for pattern in patterns for path, _ in pattern.anchored(places) if path != "/"]
        opened = ["/"] if readable.whole_tool(Behavior.ALLOW, READ.name) else opened
        cage = sandbox.cages.read_only(places.roots, opened)
        return Decision(Behavior.ALLOW, "It only reads, in the read-only cage.", cage=cage) if cage else None
    editable = replace(state, rules=state.rules.only(Behavior.ALLOW, READ.name, EDIT.name))
    changes = AcceptedChanges.of(state, in_background)
    accepted = decide_line(command, editable, state.accepts_edits, changes=changes) if state.mode != PLAN else None
    if accepted is not None and accepted.behavior is Behavior.ALLOW:
        cage = sandbox.cages.workspace(places.roots, network=False)
        if cage is not None:
            reason, changed = "It only makes accepted edits, in the workspace cage.", tuple(changes.paths)
            return Decision(Behavior.ALLOW, reason, "mode", cage=cage, changes=changed)
    return None


def _command(tool_input: Json) -> str:
    command = tool_input.get("command")
    if not isinstance(command, str):
        raise TypeError("command is not a text")
    return command


def _allows_exactly(rules: RuleSet, command: str) -> bool:
    return any(each.is_exact and each.text == command.strip() for each in _allowed_patterns(rules))


def _allowed_patterns(rules: RuleSet) -> list[CommandPattern]:
    contents = (rule.content or "" for rule in rules.contents(Behavior.ALLOW, BASH.name))
    return [CommandPattern(content) for content in contents if content != READS_SERVICES]


def _sensitive_target(command: str, state: RuleState) -> str:
    rules = RuleSet()
    rules.add("", Behavior.ASK, [Rule(tool.name, each) for tool in (READ, EDIT) for each in sensitive_patterns()])
    found = forbidding_rule(command, rules, Behavior.ASK, state.places, state.start)
    return (found and found.content) or ""


def _leaves_sandbox(tool_input: Json) -> bool:
    return tool_input.get(LEAVE_SANDBOX, False) is not False


@dataclass(frozen=True)
class _Problem:
    """Why one command is not allowed, and the rule that would allow it."""

    reason: str
    rule: Rule | None = None
    path: str = ""
    is_write_inside: bool = False
    reads_services: bool = False


@dataclass(eq=False)
class AcceptedChanges:
    """The `paths` that the commands of a line may change in a cage: none that a pattern in `forbidden` is about, and
    nothing that the file history cannot bring back. `later`: other calls may change what the paths are before."""

    forbidden: list[PathPattern]
    home: str
    later: bool = False
    paths: dict[str, int] = field(default_factory=dict)  # with their sizes
    moved: dict[str, set[str]] = field(default_factory=dict)  # what is moved or copied, with its paths
    makes_directories: bool = False

    @staticmethod
    def of(state: RuleState, later: bool) -> AcceptedChanges:
        about = itertools.product((Behavior.DENY, Behavior.ASK), (READ.name, EDIT.name))
        rules = [rule for behavior, name in about for rule in state.rules.about(behavior, name)]
        return AcceptedChanges([PathPattern(rule.content or EVERYWHERE) for rule in rules], state.places.home, later)

    def problem(self, real: str, places: PathScope) -> str:
        with suppress(OSError):
            info = os.lstat(real)
            if not stat.S_ISDIR(info.st_mode):
                self.paths[real] = info.st_size
                is_kept = stat.S_ISREG(info.st_mode) and os.access(real, os.R_OK)
                if not is_kept or sum(self.paths.values()) > _MAX_KEPT:
                    return f"{real} could not be brought back: it is no readable file, or too much is changed."
        self.paths.setdefault(real, 0)
        if is_sensitive(real, self.home):
            return f"{real} usually holds secrets."
        is_forbidden = any(pattern.forbids(real, places) for pattern in self.forbidden)
        return f"A rule is about {real}." if is_forbidden else ""

    def unforeseen(self) -> str:
        """Return a path that one command makes inside a directory that another one moves or copies, or ""."""
        if not (self.makes_directories or any(map(os.path.isdir, self.moved))):
            return ""  # what is moved or copied are files
        made = [path for path in self.paths if not os.path.lexists(path)]
        pairs = itertools.product(self.moved.items(), made)
        return next((each for (top, known), each in pairs if each not in known and is_under(each, top)), "")


def decide_line(
    text: str, state: RuleState, edits: bool, trust: Trust = Trust.ANY, changes: AcceptedChanges | None = None
) -> Decision:
    """Return ALLOW if every command of the line is allowed by the rules, or writes where `edits` says so, else ASK.
    With `changes`, which notes them, a cage will hold the line, and its edits may remove and overwrite files."""
    if _allows_exactly(state.rules, text):
        return Decision(Behavior.ALLOW, "A rule allows this very command.", "rule")
    whole = rule_suggestions.exact_rule(text)
    try:
        commands = parse(text)
    except NotUnderstood as reason:
        return _ask(f"The command could not be checked: {reason}.", whole)
    if not commands:
        return _ask("The command is empty.")
    policy = _LinePolicy(text, commands, state, edits, trust, changes)
    problems = [problem for command in commands for problem in policy.problems(command)]
    if problems:
        return _question(problems, commands, whole, state.places)
    if changes and (unforeseen := changes.unforeseen()):
        return _ask(f"A command moves or copies {unforeseen}, which another one makes.", whole)
    return Decision(Behavior.ALLOW, "Every command in it is allowed.", "rule")


def _question(
    problems: Sequence[_Problem], commands: Sequence[Command], whole: Rule | None, places: PathScope
) -> Decision:
    path = next((problem.path for problem in problems if problem.path), "")
    kind = "subcommandResults" if len(commands) > 1 else "other"
    if kind == "other" and path and not places.holds(path):
        kind = "workingDir"
    updates = _suggestions(problems, whole if len(commands) == 1 else None)
    reads = all(problem.reads_services for problem in problems)
    return Decision(Behavior.ASK, problems[0].reason, kind, path, updates, reads_services=reads)


class _LinePolicy:
    """Says why the commands of one line are not allowed."""

    def __init__(
        self,
        text: str,
        commands: Sequence[Command],
        state: RuleState,
        edits: bool,
        trust: Trust,
        changes: AcceptedChanges | None,
    ) -> None:
        rules, self._places, self._start = state.rules, state.places, state.start
        self._commands = commands
        self._accepts_edits = edits
        self._trust = trust
        self._is_trusted = trust is not Trust.LITERAL_LINES or is_plain(text)
        self._changes = changes
        self._allow = _allowed_patterns(rules)
        self._reads_services = Rule(BASH.name, READS_SERVICES) in rules.contents(Behavior.ALLOW, BASH.name)
        self._edit = [PathPattern(rule.content or EVERYWHERE) for rule in rules.about(Behavior.ALLOW, EDIT.name)]
        self._read = [PathPattern(rule.content or EVERYWHERE) for rule in rules.about(Behavior.ALLOW, READ.name)]
        self._bases = shell_directories(commands, self._places, [self._start])
        self._together = reads_only_together(commands)
        self._waits = any(inner.name in _WAITING for inner in filter(None, map(effective, commands)))
        self._inside: dict[str, bool] = {}  # which paths of the line lead to files of the working directories

    def problems(self, command: Command) -> list[_Problem]:
        run = self._run_problem(command) if command.words or command.assignments else None
        opened = [self._file_problem(redirect.target, redirect.writes) for redirect in command.redirects]
        return [problem for problem in (run, *opened) if problem]

    def _run_problem(self, command: Command) -> _Problem | None:
        inner = effective(command)
        uncovered = self._uncovered_by_rules(command, inner)
        if uncovered is None:
            started = (started_by(inner) if inner else None) or []
            return next(filter(None, map(self._run_problem, started)), None)
        if self._may_read(command) and reads_only(command) and (self._together or not runs_git(command)):
            return self._git_problem(command) or self._read_problem(command, inner)
        if inner and self._may_change_files(inner):
            return self._change_problem(inner)
        problem = self._uncovered_problem(command, inner, uncovered)
        if inner is None or not reads_service(inner):
            return problem
        return None if self._reads_services else replace(problem, reads_services=True)

    def _uncovered_problem(self, command: Command, inner: Command | None, uncovered: str) -> _Problem:
        reason = _no_rule(command)
        if inner is None:
            return _Problem(reason)
        rule = _command_rule(inner)
        pattern = CommandPattern(rule.content or "") if rule else None
        if pattern and not pattern.is_exact:
            uncovered = self._uncovered(inner.words, pattern.words) or uncovered
        if not uncovered:
            return _Problem(reason, rule)
        reason = f"{reason} A rule with a wildcard does not cover {shortened(uncovered)}."
        return _Problem(reason, _exact_command_rule(inner))

    def _may_read(self, command: Command) -> bool:
        if self._trust is not Trust.LITERAL_COMMANDS:
            return self._is_trusted
        literal = not command.assignments and all(word.is_literal for word in command.words)
        return literal and all(is_null(redirect.target) for redirect in command.redirects)

    def _uncovered_by_rules(self, command: Command, inner: Command | None) -> str | None:
        """Return None if a rule allows the command, else what a wildcard does not cover, "" without a rule."""
        own = (*command.assignments, *command.words)
        texts = _texts_for_rules(command, inner)
        hidden = len(own) - len(inner.words) if inner else len(own)  # words before the program that finally runs
        reads_code = command.fed or (command.gets is not None and runs_its_input(command.words))
        uncovered = ""
        for pattern in self._allow:
            for words in [words for text, words in texts.items() if pattern.matches(text)]:
                if pattern.is_exact:
                    if reads_code:  # no rule about its words has seen what it runs
                        continue
                    return None
                if words == own and 0 < hidden >= pattern.words:
                    continue  # the wildcard stands for the program
                skipped = len(command.assignments) if words == own else 0
                found = self._uncovered(words[skipped:], pattern.words - skipped)
                if found is None:
                    return None
                uncovered = found
        return uncovered

    def _uncovered(self, words: Sequence[Word], head: int) -> str | None:
        return risky_options.uncovered(words, head, self._is_inside, self._bases) if words else None

    def _is_inside(self, path: str) -> bool:
        if path in self._inside:
            return self._inside[path]
        if path.startswith("~") or self._bases is None or len(self._inside) >= _MAX_PLACES:
            return False
        found = [self._places.real(path, base) for base in self._bases]
        self._inside[path] = all(self._places.holds(real) and not protection(real, self._places.home) for real in found)
        return self._inside[path]

    def _git_problem(self, command: Command) -> _Problem | None:
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
                raise NotUnderstood("the shell may take the value of an expansion for wildcards")
            if self._bases is None and not is_pathless(command):
                raise NotUnderstood("it is not clear in which directory it runs")
            bases = [] if is_pathless(command) else self._bases or []
            places = (self._place_problem(self._places.real(base)) for base in bases)
            files = (self._file_problem(word, writes=False) for word in words)
            problem = next(filter(None, places), None) or next(filter(None, files), None)
            if problem is None:
                read_targets.check_directories(command, words, self._places, self._bases or [])
            return problem
        except NotUnderstood as reason:
            rule = _command_rule(inner) if inner else None
            return _Problem(f"`{shortened(command.raw)}` may read outside the working directories: {reason}.", rule)

    def _file_problem(self, word: Word, writes: bool) -> _Problem | None:
        if writes and is_null(word):
            return None
        try:
            if writes and word.is_glob:
                raise NotUnderstood("it is written with wildcards")
            if self._bases is None:
                raise NotUnderstood("it is not clear in which directory it runs")
            found = resolve(word, self._places, self._bases)
        except NotUnderstood as reason:
            return _Problem(f"It is not clear which file is {'written' if writes else 'read'}: {reason}.")
        return next(filter(None, map(self._edit_problem if writes else self._place_problem, found)), None)

    def _place_problem(self, real: str) -> _Problem | None:
        allowed = any(pattern.allows(real, self._places) for pattern in self._read)
        return None if allowed else self._outside_problem(READ.name, real)

    def _outside_problem(self, tool: str, real: str) -> _Problem | None:
        if self._places.holds(real):
            return None
        rule = rule_suggestions.directory_rule(tool, real, self._places.home)
        return _Problem(f"{real} is outside the working directories.", rule, real)

    def _edit_problem(self, real: str) -> _Problem | None:
        why = protection(real, self._places.home)
        if why:
            return _Problem(f"{real} is protected: {why}.", None, real)
        ruled = self._changes.problem(real, self._places) if self._changes else ""
        if ruled:
            return _Problem(ruled, None, real)
        if any(pattern.allows(real, self._places) for pattern in self._edit):
            return None
        outside = self._outside_problem(EDIT.name, real)
        if outside or self._accepts_edits:
            return outside
        rule = rule_suggestions.file_rule(EDIT.name, real)
        return _Problem(f"The command writes {real}.", rule, real, is_write_inside=True)

    def _may_change_files(self, command: Command) -> bool:
        """Return whether accepted edits let this program through; what removes and overwrites, only in a cage."""
        if not self._accepts_edits or command.assignments:
            return False
        at_once = self._changes is not None and not self._changes.later and not self._waits
        return command.name in file_commands.CREATING or (at_once and file_commands.changes_files(command))

    def _change_problem(self, command: Command) -> _Problem | None:
        try:
            words = file_commands.operands(command)
            if self._bases is None:
                raise NotUnderstood("it is not clear in which directory it runs")
            alone = len(self._commands) == 1
            changed = file_commands.changed_by(command, words, self._places, self._bases, alone)
        except NotUnderstood as reason:
            return _Problem(f"{_no_rule(command)} It is not clear what it changes: {reason}.", _command_rule(command))
        if self._changes:
            self._changes.makes_directories |= command.name == "mkdir"
            for top in changed.tops:
                self._changes.moved.setdefault(top, {top}).update(changed.paths)
        read = words[:-1] if command.name == "cp" else []
        read_problem = next(filter(None, (self._file_problem(word, writes=False) for word in read)), None)
        return read_problem or next(filter(None, map(self._edit_problem, dict.fromkeys(changed.paths))), None)


def _texts_for_rules(command: Command, inner: Command | None) -> dict[str, tuple[Word, ...]]:
    """Return the texts that a rule may match, each with its words; none if it is not clear what the command starts."""
    own = (*command.assignments, *command.words)
    texts = {canonical(own): own, **({command.raw: own} if command.raw and not command.redirects else {})}
    if inner and inner.words and all(is_harmless_assignment(word, True) for word in inner.assignments):
        if started_by(inner) is None:
            return {}
        texts[canonical(inner.words)] = inner.words
    return texts


def _no_rule(command: Command) -> str:
    return f"No rule allows `{shortened(command.raw or canonical(command.words))}`."


_TARGETS = {
    "make": "test check lint build all format types unit",
    "mvn": "test compile verify package",
    "gradle": "test build check",
}
"""What can be allowed of programs that have a list of harmless options, and also run all that a project defines."""
_WITH_NEXT_WORD = frozenset(
    (("npm", "run"), ("yarn", "run"), ("pnpm", "run"), ("kubectl", "get"), ("kubectl", "describe"))
)
"""What is allowed only with the script or the kind of thing behind it."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.-]*")


def _command_rule(command: Command) -> Rule | None:
    """Return the rule for one simple command. It never allows all uses of an interpreter, a shell, sudo or rm."""
    name = command.name
    if not command.assignments and name in HARMLESS and name not in _TARGETS:
        return Rule(BASH.name, f"{name} *")
    if not command.assignments and len(command.words) > 1 and command.words[1].is_literal:
        second = command.words[1].text
        if f"{name} {second}" in HARMLESS or second in _TARGETS.get(name, "").split():
            if (name, second) not in _WITH_NEXT_WORD:
                return Rule(BASH.name, f"{name} {second} *")
            third = command.words[2].text if len(command.words) > 2 and command.words[2].is_literal else ""
            if _PLAIN.fullmatch(third) and not names_secrets(third):
                return Rule(BASH.name, f"{name} {second} {third} *")
    return _exact_command_rule(command)


def _exact_command_rule(command: Command) -> Rule | None:
    """Return the rule for exactly this simple command, if a rule can express that."""
    if command.fed or not all(word.is_literal for word in command.words):
        return None
    return rule_suggestions.exact_rule(canonical(command.words) if command.redirects else command.raw)


def _suggestions(problems: Sequence[_Problem], whole: Rule | None) -> list[Json]:
    """Return the updates that would allow a line; `whole` is the rule for this very text, if it would help."""
    rules = [problem.rule for problem in problems if problem.rule]
    if len(rules) < len(problems):
        return rule_suggestions.add_rules([whole]) if whole and not any(problem.path for problem in problems) else []
    inside = [problem for problem in problems if problem.is_write_inside]
    updates = [] if len(inside) == len(problems) else rule_suggestions.add_rules(rules)
    return [*updates, rule_suggestions.accept_edits()] if inside else updates


def _ask(reason: str, rule: Rule | None = None) -> Decision:
    return Decision(Behavior.ASK, reason, suggestions=rule_suggestions.add_rules([rule] if rule else []))
