"""How permission rules apply to a command line. Most of this room is about reading command lines, therefore the engine
imports this module with the first command only."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.wire.tool_traits import EDIT, GREP, READ

from ..sandbox.cage_rules import CageRules
from . import rule_suggestions
from .matchers import LEAVE_SANDBOX, Askable, RuleMatcher, RuleState
from .modes import BYPASS, PLAN
from .paths import PathPattern, PathScope, may_name_one, sensitive_patterns
from .rules import Behavior, Decision, Rule, RuleSet
from .shell.read_only import is_read_only_command
from .shell_deny_rules import forbidding_rule, swept_rule
from .shell_policy import BashPolicy, DeniedKinds

Json = dict[str, Any]


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

    def question_about_deny_rules(
        self, tool: Askable, tool_input: Json, state: RuleState, *, by_rules: bool = False
    ) -> Decision | None:
        about = DeniedKinds(
            *(bool(state.rules.contents(Behavior.DENY, name)) for name in (tool.name, READ.name, EDIT.name))
        )
        if not about:
            return None
        policy = BashPolicy(state.rules, state.places, True, state.start)
        return policy.understand(_command(tool_input), about, by_rules=by_rules)

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        return not _leaves_sandbox(tool_input) and is_read_only_command(_command(tool_input))

    def cage_if_granted(self, tool_input: Json, state: RuleState) -> CageRules | None:
        if state.mode == BYPASS or _leaves_sandbox(tool_input):
            return None
        return state.sandbox.workspace_cage(state.places.roots)

    def decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
        decision = self._decide(tool, tool_input, state)
        if decision.behavior is not Behavior.ALLOW or state.rules.whole_tool(Behavior.ALLOW, tool.name):
            return decision
        command = _command(tool_input)
        if not may_name_one(command) or _policy(state).allows_exactly(command):
            return decision
        pattern = _sensitive_target(command, state)
        if not pattern:
            return decision
        exact = rule_suggestions.exact_rule(command)
        reason = f"It names a file that usually holds secrets ({pattern})."
        return Decision(Behavior.ASK, reason, suggestions=rule_suggestions.add_rules([exact] if exact else []))

    def _decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
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
            decision = self._decide_caged(command, state) or _policy(state).decide(command)
        if decision.behavior is not Behavior.ALLOW or _policy(state).allows_exactly(command):
            return decision
        return self.question_about_deny_rules(tool, tool_input, state, by_rules=True) or decision

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

    def _decide_outside(self, command: str, state: RuleState) -> Decision:
        """Decide on a line that asks to run without a cage: only rules allow it."""
        decision = _policy(state).decide(command)
        if decision.behavior is not Behavior.ALLOW or not is_read_only_command(command):
            return decision
        return Decision(Behavior.ASK, "It asks to run without the sandbox.", "other")


def _command(tool_input: Json) -> str:
    command = tool_input.get("command")
    if not isinstance(command, str):
        raise TypeError("command is not a text")
    return command


def _policy(state: RuleState) -> BashPolicy:
    """Return the policy for lines that would run without a cage."""
    trust = state.sandbox.trust_without_cage
    return BashPolicy(state.rules, state.places, state.accepts_edits, state.start, trust=trust)


def _sensitive_target(command: str, state: RuleState) -> str:
    """Return the pattern of a sensitive file that a command line names, "" if it names none."""
    rules = RuleSet()
    for tool in (READ, EDIT):
        rules.add("", Behavior.ASK, [Rule(tool.name, pattern) for pattern in sensitive_patterns()])
    found = forbidding_rule(command, rules, Behavior.ASK, state.places, state.start)
    return found.content or "" if found is not None else ""


def _allows(policy: BashPolicy, command: str) -> bool:
    return policy.decide(command).behavior is Behavior.ALLOW


def _leaves_sandbox(tool_input: Json) -> bool:
    """Return whether a command asks to run without a cage. Anything but a clear no does."""
    return tool_input.get(LEAVE_SANDBOX, False) is not False


def _opened(rules: RuleSet, places: PathScope) -> list[str]:
    """Return the directories and files that allow rules for reading open beside the working directories."""
    if rules.whole_tool(Behavior.ALLOW, READ.name):
        return ["/"]
    patterns = [PathPattern(rule.content or "") for rule in rules.contents(Behavior.ALLOW, READ.name)]
    return [opened for pattern in patterns for opened in pattern.opened(places) if opened != "/"]
