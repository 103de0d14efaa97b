"""How permission rules apply to a call: one matcher for each kind of rule that a tool can declare (`RuleKind`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import EDIT, GREP, READ, Effect, PathInput, RuleKind, ToolTraits

from ..sandbox.rules import CageRules
from .decision import Behavior, Decision
from .modes import ACCEPT_EDITS, BYPASS, PLAN
from .paths import PathPattern, Places, protection
from .rules.rules import Rule
from .rules.ruleset import RuleSet
from .sandbox_mode import Sandbox
from .shell import suggest
from .shell.deny_rules import forbidding_rule, swept_rule
from .shell.policy import BashPolicy, DeniedKinds
from .shell.readonly import is_read_only_command

Json = dict[str, Any]

LEAVE_SANDBOX = "dangerouslyDisableSandbox"
"""The input of a command that asks to run without a cage. The name is the one that models know."""


class Askable(Protocol):
    """The part of a tool that the permission engine uses."""

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> ToolTraits: ...

    def is_read_only(self, tool_input: Json) -> bool: ...


@dataclass(frozen=True)
class RuleState:
    """The rules and circumstances of one decision. `start` is the real path of the shell's current directory. `pinned`
    is the real path that the call will use, "" if it resolves its path again."""

    rules: RuleSet
    places: Places
    mode: str
    start: str
    sandbox: Sandbox
    pinned: str = ""

    @property
    def accepts_edits(self) -> bool:
        return self.mode == ACCEPT_EDITS

    def path_rules(self, tool_name: str) -> list[Rule]:
        """Return the deny and ask rules with a pattern for a tool."""
        return [rule for kind in (Behavior.DENY, Behavior.ASK) for rule in self.rules.contents(kind, tool_name)]


class RuleMatcher:
    """Matches rules without a pattern, which cover a whole tool; the base class of matchers for rules with a pattern.
    Every method may raise TypeError for an input that it cannot read; the engine then asks."""

    def matching_rule(self, behavior: Behavior, tool: Askable, tool_input: Json, state: RuleState) -> Rule | None:
        """Return the first deny (or ask) rule with a pattern that covers the call."""
        return None

    def question_in_any_mode(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision | None:
        """Return ASK for a call that would circumvent a rule in a way that even bypassPermissions does not allow, else
        None."""
        return None

    def question_about_deny_rules(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision | None:
        """Return ASK for a call that cannot be checked against the deny rules, else None."""
        return None

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        """Return whether the call only reads, so that plan mode lets it run."""
        effect = tool.traits.effect
        return effect in (Effect.NONE, Effect.READ) or (effect is not Effect.WRITE and tool.is_read_only(tool_input))

    def cage_if_granted(self, tool_input: Json, state: RuleState) -> CageRules | None:
        """Return the cage in which a call runs that the person has granted; None for no cage."""
        return None

    def real_path(self, tool: Askable, tool_input: Json, places: Places) -> str:
        """Return where the path of a call leads now; "" for a call that is not about a path."""
        return ""

    def decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
        """Decide on a call that no deny or ask rule covers, by allow rules, mode and defaults."""
        allowing = state.rules.whole_tool(Behavior.ALLOW, tool.name)
        if allowing:
            return Decision(Behavior.ALLOW, f"The rule {allowing} allows this.", "rule")
        if tool.traits.effect is Effect.NONE:
            return Decision(Behavior.ALLOW, f"{tool.name} changes nothing outside the session.")
        return Decision(Behavior.ASK, f"No rule allows {tool.name}.", "other", "", suggest.add_rules([Rule(tool.name)]))


class CommandMatcher(RuleMatcher):
    """Rules with a command pattern, such as `Bash(git *)`, for a tool whose input is a shell command."""

    def matching_rule(self, behavior: Behavior, tool: Askable, tool_input: Json, state: RuleState) -> Rule | None:
        return forbidding_rule(_command(tool_input), state.rules, behavior, state.places, state.start)

    def question_in_any_mode(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision | None:
        rule = swept_rule(_command(tool_input), state.path_rules(READ.name), state.places, state.start)
        if rule is None:
            return None
        reason = f"It reads through directories with files that the rule {rule} is about; {GREP.name} leaves those out."
        return Decision(Behavior.ASK, reason, "rule")

    def question_about_deny_rules(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision | None:
        about = DeniedKinds(
            *(bool(state.rules.contents(Behavior.DENY, name)) for name in (tool.name, READ.name, EDIT.name))
        )
        if not about:
            return None
        policy = BashPolicy(state.rules, state.places, True, state.start)
        return policy.understand(_command(tool_input), about)

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        return not _leaves_sandbox(tool_input) and is_read_only_command(_command(tool_input))

    def cage_if_granted(self, tool_input: Json, state: RuleState) -> CageRules | None:
        if state.mode == BYPASS or _leaves_sandbox(tool_input):
            return None
        return state.sandbox.workspace_cage(state.places.roots)

    def decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
        cage = None if state.mode == PLAN else self.cage_if_granted(tool_input, state)
        if cage is not None:
            question = self.question_about_deny_rules(tool, tool_input, state)
            return question or Decision(Behavior.ALLOW, "It runs in the workspace cage.", "mode", cage=cage)
        allowing = state.rules.whole_tool(Behavior.ALLOW, tool.name)
        if allowing:
            question = self.question_about_deny_rules(tool, tool_input, state)
            return question or Decision(Behavior.ALLOW, f"The rule {allowing} allows this.", "rule")
        command = _command(tool_input)
        if _leaves_sandbox(tool_input):
            decision = self._decide_outside(command, state)
        else:
            decision = self._decide_caged(command, state) or self._by_rules(command, state)
        if decision.behavior is not Behavior.ALLOW or _policy(state).allows_exactly(command):
            return decision
        return self.question_about_deny_rules(tool, tool_input, state) or decision

    def _decide_caged(self, command: str, state: RuleState) -> Decision | None:
        """Return ALLOW for a line that only reads, or that only changes files whose changes are accepted, if this host
        can make the cage for it; else None."""
        places, sandbox = state.places, state.sandbox
        readable = state.rules.only(Behavior.ALLOW, READ.name)
        if _allows(BashPolicy(readable, places, False, state.start), command):
            cage = sandbox.read_only_cage(places.roots, _opened(readable, places))
            return Decision(Behavior.ALLOW, "It only reads, in the read-only cage.", cage=cage) if cage else None
        editable = state.rules.only(Behavior.ALLOW, READ.name, EDIT.name)
        if state.mode != PLAN and _allows(BashPolicy(editable, places, state.accepts_edits, state.start), command):
            cage = sandbox.edits_cage(places.roots)
            if cage is not None:
                why = "It only makes accepted edits, in the workspace cage."
                return Decision(Behavior.ALLOW, why, "mode", cage=cage)
        return None

    def _by_rules(self, command: str, state: RuleState) -> Decision:
        """Decide on a line that would run without a cage."""
        return _policy(state).decide(command)

    def _decide_outside(self, command: str, state: RuleState) -> Decision:
        """Decide on a line that asks to run without a cage: only rules allow it."""
        decision = self._by_rules(command, state)
        if decision.behavior is not Behavior.ALLOW or not is_read_only_command(command):
            return decision
        return Decision(Behavior.ASK, "It asks to run without the sandbox.", "other")


class PathMatcher(RuleMatcher):
    """Rules with a path pattern, such as `Edit(src/**)`, for a tool that reads or writes files."""

    def matching_rule(self, behavior: Behavior, tool: Askable, tool_input: Json, state: RuleState) -> Rule | None:
        paths = [path for path in (_path(tool.traits, tool_input), state.pinned) if path]
        for rule in state.rules.contents(behavior, tool.name):
            if any(PathPattern(rule.content or "").forbids(path, state.places) for path in paths):
                return rule
        return None

    def real_path(self, tool: Askable, tool_input: Json, places: Places) -> str:
        return places.real(_path(tool.traits, tool_input))

    def decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
        places = state.places
        real = state.pinned or self.real_path(tool, tool_input, places)
        writes = tool.traits.effect is Effect.WRITE
        why = protection(real, places.home) if writes else None
        if why:
            return Decision(Behavior.ASK, f"{real} is protected: {why}.", "other", real)
        if _pattern_climbs(tool.traits, tool_input):
            return Decision(Behavior.ASK, "The pattern leaves the directory it starts from.", "workingDir", real)
        for rule in state.rules.about(Behavior.ALLOW, tool.name):
            if rule.content is None or PathPattern(rule.content).allows(real, places):
                return Decision(Behavior.ALLOW, f"The rule {rule} allows this.", "rule")
        accepts = state.accepts_edits or state.sandbox.opens_workspace
        updates = suggest.for_path(writes, real, places, accepts)
        if not places.holds(real):
            return Decision(Behavior.ASK, f"{real} is outside the working directories.", "workingDir", real, updates)
        if not writes:
            return Decision(Behavior.ALLOW, "It is read in a working directory.", "workingDir")
        if accepts:
            return Decision(Behavior.ALLOW, "Edits in the working directories are accepted.", "mode")
        return Decision(Behavior.ASK, f"{tool.name} changes {real}.", "other", real, updates)


MATCHERS: Mapping[RuleKind, RuleMatcher] = {
    RuleKind.PLAIN: RuleMatcher(),
    RuleKind.COMMAND: CommandMatcher(),
    RuleKind.PATH: PathMatcher(),
}


def _command(tool_input: Json) -> str:
    command = tool_input.get("command")
    if not isinstance(command, str):
        raise TypeError("command is not a text")
    return command


def _policy(state: RuleState) -> BashPolicy:
    """Return the policy for lines that would run without a cage."""
    trust = state.sandbox.trust_without_cage
    return BashPolicy(state.rules, state.places, state.accepts_edits, state.start, trust=trust)


def _allows(policy: BashPolicy, command: str) -> bool:
    return policy.decide(command).behavior is Behavior.ALLOW


def _leaves_sandbox(tool_input: Json) -> bool:
    """Return whether a command asks to run without a cage. Anything but a clear no does."""
    return tool_input.get(LEAVE_SANDBOX, False) is not False


def _opened(rules: RuleSet, places: Places) -> list[str]:
    """Return the directories and files that allow rules for reading open beside the working directories."""
    if rules.whole_tool(Behavior.ALLOW, READ.name):
        return ["/"]
    patterns = [PathPattern(rule.content or "") for rule in rules.contents(Behavior.ALLOW, READ.name)]
    return [opened for pattern in patterns for opened in pattern.opened(places) if opened != "/"]


def _path(traits: ToolTraits, tool_input: Json) -> str:
    """Return the path that a call is about: the literal head of an absolute glob pattern, or else the path in the
    input."""
    where = _path_input(traits)
    pattern = tool_input.get(where.glob_key) if where.glob_key else None
    if isinstance(pattern, str) and pattern.startswith(("/", "~")):
        parts = pattern.split("/")
        wild = next((at for at, part in enumerate(parts) if any(char in part for char in "*?[{")), len(parts))
        return "/".join(parts[:wild]) or "/"
    value = tool_input.get(where.key)
    if value is None and where.default:
        return where.default
    if not isinstance(value, str) or not value:
        raise TypeError("the path is not a text")
    return value


def _path_input(traits: ToolTraits) -> PathInput:
    if traits.path is None:
        raise TypeError(f"{traits.name} does not declare which input is its path")
    return traits.path


def _pattern_climbs(traits: ToolTraits, tool_input: Json) -> bool:
    """Return whether the glob pattern of a call contains `..`."""
    glob_key = _path_input(traits).glob_key
    return bool(glob_key) and ".." in str(tool_input.get(glob_key, "")).split("/")
