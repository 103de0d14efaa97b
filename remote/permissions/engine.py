"""The decision on a call: deny and ask rules, plan mode, bypass, protected files, allow rules, modes, defaults."""

from __future__ import annotations

import copy
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from ccb.tunnel.wire.control_protocol import SET_SANDBOX
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.policy_patterns import Patterns, holds_directory
from ccb.tunnel.wire.tool_traits import Effect, RuleKind, View, traits_of

from ..settings.worker_settings import MANAGED, OF_PROJECT, SOURCES, Sourced, WorkerSettings
from . import rules as permission_rules
from .matchers import AgentMatcher, Askable, DomainMatcher, PathMatcher, RuleMatcher, RuleState
from .modes import (
    ACCEPT_EDITS,
    BYPASS,
    DEFAULT,
    DONT_ASK,
    NO_CAGE,
    OFF,
    PLAN,
    READ_ONLY,
    WORKSPACE,
    Cages,
    Sandbox,
    SandboxError,
    check_mode,
    stricter,
)
from .paths import ROOT_MARK, PathPattern, PathScope, sensitive_patterns
from .rule_suggestions import add_rules, exact_rule
from .rules import Behavior, Decision, Rule, RuleSet, parse_rule, parse_rules

if TYPE_CHECKING:
    from ccb.tunnel.wire.session_options import SessionOptions

log = logging.getLogger(__name__)
_MAX_SHOWN = 200  # characters of what is no rule
_PLAN_DENIAL = (
    "Plan mode is on: only calls that read are allowed. Do not try another way to change anything; finish the plan and"
    " present it to the user."
)


@dataclass(frozen=True)
class LaunchRules:
    """What a command line says of permissions. `allow_bypass`: the person may switch to bypassPermissions."""

    sandbox: Sandbox
    mode: str = DEFAULT
    allowed: Sequence[str] = ()
    disallowed: Sequence[str] = ()
    add_dirs: Sequence[str] = ()
    allow_bypass: bool = False

    @staticmethod
    def of(options: SessionOptions, cages: Cages, add_dirs: Sequence[str]) -> LaunchRules:
        sandbox = Sandbox(cages, options.sandbox, options.allow_net, options.agent_name)
        rules = options.allowed_tools, options.disallowed_tools
        return LaunchRules(sandbox, options.permission_mode, *rules, list(add_dirs), options.allow_bypass)


class PermissionEngine:
    """Owns the rules, the mode and the directories of a session. Only `plan_file` may be written in plan mode."""

    def __init__(
        self, launch: LaunchRules, *, cwd: str, home: str = "", is_root: bool | None = None, plan_file: str = ""
    ) -> None:
        is_root_here = os.geteuid() == 0 and os.environ.get("IS_SANDBOX") != "1"  # on a machine that is no sandbox
        self._is_root = is_root_here if is_root is None else is_root
        self._allow_bypass = launch.mode == BYPASS  # a session that starts in this mode may return to it
        self._mode = DEFAULT
        self.mode_before_plan = DEFAULT
        self._plan_file = plan_file
        self._memory = ""
        self._home = home or os.path.expanduser("~")
        self._cwd = cwd
        self._add_dirs: list[str] = []
        self._set_dirs: list[str] = []  # of the settings
        self._allowed_dirs: Patterns = None  # of the policy
        self._sandbox = launch.sandbox
        self._rules = RuleSet()
        self.relaunch(launch)

    def _now(self) -> PermissionEngine:
        """Return what decides at present: this, or for a sub-agent its limits of today."""
        return self

    @property
    def mode(self) -> str:
        return self._now()._mode

    @property
    def cage_in_force(self) -> str:
        """The cage, in words, that holds the commands that run without a question."""
        if self.mode == BYPASS:
            return f"{NO_CAGE}: permissions are bypassed"
        return self._now()._sandbox.in_force(self.directories)

    @property
    def directories(self) -> tuple[str, ...]:
        return self._now()._places.roots

    def set_mode(self, mode: str) -> None:
        """Raise ModeError if the mode cannot be chosen."""
        check_mode(mode, self._allow_bypass, self._is_root)
        self._switch(mode)

    def set_sandbox(self, mode: str) -> None:
        """Raise SandboxError if the mode does not exist, or the host cannot make its cage for these directories."""
        sandbox = replace(self._sandbox, asked=mode)
        sandbox.check(self.directories)
        if sandbox.mode != mode:
            raise SandboxError(f"the policy of the laptop wants the cage {sandbox.least} at least")
        self._sandbox = sandbox

    def _work_in(self, add_dirs: Sequence[str]) -> None:
        self._add_dirs = list(add_dirs)
        allowed = filter(self.may_add, [*add_dirs, *self._set_dirs])
        self._places = PathScope.of(self._cwd, self._home, list(allowed))

    def may_add(self, directory: str) -> bool:
        """Return whether the policy of the laptop allows a directory besides that of the session."""
        real = os.path.realpath(os.path.join(self._cwd, os.path.expanduser(directory)))
        return holds_directory(real, self._allowed_dirs)

    def _switch(self, mode: str) -> None:
        if mode == PLAN and self._mode != PLAN:
            self.mode_before_plan = self._mode
        self._mode = mode

    def relaunch(self, launch: LaunchRules) -> None:
        """Replace what came from the former command line, and add the directories. Raise ValueError, as ModeError."""
        may_bypass = self._allow_bypass or launch.allow_bypass
        check_mode(launch.mode, may_bypass, self._is_root)
        allow, deny = parse_rules(launch.allowed), parse_rules(launch.disallowed)
        self._allow_bypass, self._sandbox = may_bypass, replace(launch.sandbox, least=self._sandbox.least)
        self._switch(launch.mode)
        self._work_in(list(dict.fromkeys([*self._add_dirs, *launch.add_dirs])))
        self._rules.replace(permission_rules.COMMAND_LINE, Behavior.ALLOW, allow)
        self._rules.replace(permission_rules.COMMAND_LINE, Behavior.DENY, deny)

    def use_settings(self, settings: WorkerSettings) -> None:
        """Replace the rules from settings. Raise ValueError for one that allows and cannot be read; then nothing has
        changed. One that denies or asks covers all that it may have been about."""
        if settings.bound("sandbox") and not self._sandbox.cages.probe().mechanism:
            why = self._sandbox.cages.probe().why
            raise SandboxError(f"the policy of the laptop wants a sandbox, and this host cannot make one: {why}")
        found: dict[tuple[str, Behavior], list[Rule]] = {key: [] for key in itertools.product(SOURCES, Behavior)}
        for behavior in Behavior:
            for each in settings.rules(behavior.value):
                try:
                    rules = [read_rule(each)]
                except ValueError as error:
                    if behavior is Behavior.ALLOW:
                        raise
                    rules = permission_rules.broken_rules(each.value, str(error)) if each.value else []
                found[each.layer.source, behavior] += rules
        for layer in settings.layers:
            if layer.broken:
                found[layer.source, Behavior.DENY].append(Rule(permission_rules.ANY_TOOL, broken=layer.broken))
        for (source, behavior), rules in found.items():
            self._rules.replace(source, behavior, rules)
        self._set_dirs = settings.directories
        self._hold_policy(settings)
        self._work_in(self._add_dirs)

    def _hold_policy(self, settings: WorkerSettings) -> None:
        self._sandbox = replace(self._sandbox, least=settings.bound("sandbox") or OFF)
        self._allowed_dirs = settings.bound("directories")
        managed = [each.value for each in settings.of("permissions", MANAGED)]
        switches = [each.get("disableBypassPermissionsMode") for each in managed if isinstance(each, dict)]
        if self._sandbox.least != OFF or "disable" in switches:
            self._allow_bypass = False
            self._mode = DEFAULT if self._mode == BYPASS else self._mode

    def grant_for_turn(self, rules: Sequence[str]) -> None:
        """Let these allow rules of a slash command hold until this is called again. Raise ValueError."""
        self._rules.replace(permission_rules.COMMAND, Behavior.ALLOW, parse_rules(rules))

    def use_client(self, ask: Sequence[str], deny: Sequence[str]) -> None:
        """Replace the rules that a client has for the tools of its own MCP servers, each a name."""
        for behavior, names in ((Behavior.ASK, ask), (Behavior.DENY, deny)):
            self._rules.replace(permission_rules.CLIENT, behavior, [Rule(name) for name in names])

    def remember_in(self, directory: str) -> None:
        """Let files in this directory be used for notes of the agent. Only real paths count: a link opens nothing."""
        self._memory = directory

    def listed(self) -> list[dict[str, str]]:
        return self._rules.listed()

    def covers(self, rule: str, tool_name: str, tool_input: Json) -> bool:
        """Return whether a rule is about a call, in doubt True."""
        traits, rules = traits_of(tool_name), RuleSet()
        try:
            rules.add("", Behavior.DENY, [parse_rule(rule)])
            matcher, state = _matcher(traits.rules), replace(self._state(self._places.cwd), rules=rules)
            if rules.whole_tool(Behavior.DENY, tool_name) or not rules.about(Behavior.DENY, tool_name):
                return bool(rules.about(Behavior.DENY, tool_name))
            found = matcher.matching_rule(Behavior.DENY, traits, tool_input, state)
            return bool(found or matcher.question_about_deny_rules(traits, tool_input, state))
        except (ValueError, TypeError):  # an input that the matcher cannot read
            return True

    def lend(self, rules: Sequence[str], *, for_turn: bool = False) -> None:
        """Let these allow rules of skills hold until the next call, or `for_turn`. Leave broken ones out."""
        found = []
        for rule in rules:
            try:
                found.append(parse_rule(rule))
            except ValueError as error:
                log.warning("a rule of a skill does not count: %s", error)
        if for_turn:
            self._rules.add(permission_rules.COMMAND, Behavior.ALLOW, found)
        else:
            self._rules.replace(permission_rules.SKILLS, Behavior.ALLOW, found)

    def visible(self, tool_name: str) -> bool:
        rules = self._rules.about(Behavior.DENY, tool_name)
        return all(rule.content is not None or rule.broken for rule in rules)

    def left_out(self, tool_name: str) -> list[str]:
        """Return which files a search must leave out, as `PathPattern.expressions` does."""
        state = self._now()._state("")
        patterns = [PathPattern(rule.content or "") for rule in state.path_rules(tool_name)]
        if traits_of(tool_name).searches_content and not state.rules.whole_tool(Behavior.ALLOW, tool_name):
            patterns += map(PathPattern, sensitive_patterns())
        return [expression for pattern in patterns for expression in pattern.expressions(state.places)]

    def apply(self, updates: Sequence[Mapping[str, Any]]) -> list[str]:
        """Apply permission updates in the public shape. Skip invalid ones, and return a text about each of these."""
        problems: list[str] = []
        for update in updates:
            try:
                self._apply(update)
            except ValueError as error:
                log.warning("permission update ignored: %s", error)
                problems.append(str(error))
        return problems

    def _apply(self, update: Mapping[str, Any]) -> None:
        if not isinstance(update, Mapping):
            raise ValueError("a permission update is not an object")
        kind, destination = update.get("type"), update.get("destination", "session")
        changes = {"addRules": self._rules.add, "replaceRules": self._rules.replace, "removeRules": self._rules.remove}
        if not isinstance(kind, str) or not isinstance(destination, str):
            raise ValueError("a permission update has no type")
        if kind == "setMode":
            self.set_mode(str(update.get("mode", "")))
        elif kind == SET_SANDBOX and update.get("sandbox") == WORKSPACE:  # no update opens a cage
            self.set_sandbox(WORKSPACE)
        elif kind in changes:
            behavior, rules = permission_rules.updated_rules(update)
            changes[kind](destination, behavior, rules)
            if kind == "removeRules" and destination == "localSettings":
                self._rules.remove("kept", behavior, rules)  # those that the laptop has kept came with its settings
        elif kind in ("addDirectories", "removeDirectories"):
            self._change_directories(kind, permission_rules.listed_in(update, "directories"))
        else:
            raise ValueError(f"unknown permission update {kind!r}")

    def _change_directories(self, kind: str, given: list[Any]) -> None:
        if not all(isinstance(each, str) and each for each in given):
            raise ValueError(f"{kind}: directories must be a list of paths")
        if kind == "addDirectories" and not all(map(self.may_add, given)):
            raise ValueError("the policy of the laptop does not allow one of these directories")
        added, named = self._places.roots[1:], PathScope.of(self._cwd, self._home, given).roots[1:]
        if kind == "addDirectories":
            self._work_in(list(dict.fromkeys([*added, *named])))
        else:
            self._set_dirs = [each for each in self._set_dirs if each not in named]
            self._work_in([each for each in added if each not in named])

    def decide(
        self, tool: Askable, tool_input: Json, *, can_ask: bool = False, shell_cwd: str = "", granted: bool = False
    ) -> Decision:
        """Return the decision on one call. `can_ask`: a person can be asked, so plan mode asks instead of denying.
        `shell_cwd` is where Bash would run now, if an earlier `cd` left the session's directory. `granted`: a hook of
        the person allows the call, which holds where bypassPermissions would, but not in plan mode. Never raises."""
        try:
            matcher = _matcher(tool.traits.rules)
            state = self._state(os.path.realpath(shell_cwd) if shell_cwd else self._places.cwd)
            if state.sandbox.opens_workspace(self.directories):
                # commands that run beside the call may change where its path leads
                state = replace(state, pinned=matcher.real_path(tool.traits, tool_input, self._places))
            judged = replace(state, mode=BYPASS) if granted else state
            decision = replace(self._decide(matcher, tool, tool_input, can_ask, judged), pinned=state.pinned)
            if granted and decision.behavior is Behavior.ALLOW and self._mode != BYPASS:
                decision = replace(decision, reason="A hook allows this.", reason_type="hook")
            elif decision.behavior is not Behavior.ASK:
                return decision
            if self._mode == DONT_ASK:
                return _denied_without_question(decision)
            # no cage holds what operators read
            can_be_caged = not decision.reads_services and self._can_be_caged(matcher, tool, tool_input, state)
            return replace(decision, cage=matcher.cage_if_granted(tool_input, state), can_be_caged=can_be_caged)
        except Exception as error:  # any failure of a check leads to a question
            log.exception("permission check of %s failed", tool.traits.name)
            failed = Decision(Behavior.ASK, f"The permission check failed ({type(error).__name__}: {error}).")
            return _denied_without_question(failed) if self._mode == DONT_ASK else failed

    def _can_be_caged(self, matcher: RuleMatcher, tool: Askable, tool_input: Json, state: RuleState) -> bool:
        sandbox = replace(state.sandbox, asked=WORKSPACE)
        if tool.traits.rules is not RuleKind.COMMAND or self._mode in (PLAN, BYPASS) or state.sandbox.mode != READ_ONLY:
            return False
        if not sandbox.opens_workspace(self.directories):
            return False
        return self._decide(matcher, tool, tool_input, True, replace(state, sandbox=sandbox)).behavior is Behavior.ALLOW

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        try:
            return _matcher(tool.traits.rules).only_reads(tool, tool_input)
        except TypeError:  # an input that the matcher cannot read
            return False

    def _decide(self, matcher: RuleMatcher, tool: Askable, given: Json, can_ask: bool, state: RuleState) -> Decision:
        traits = tool.traits
        for behavior, verb, end in (
            (Behavior.DENY, "denies", "is denied"),
            (Behavior.ASK, "wants a question before", "asks"),
        ):
            rule = self._rules.whole_tool(behavior, traits.name)
            rule = rule or matcher.matching_rule(behavior, traits, given, state)
            if rule:
                broken = f"{rule.broken}. Until that is corrected, every use of {traits.name} {end}."
                return Decision(behavior, broken if rule.broken else f"The rule {rule} {verb} this.", "rule")
        if traits.asks:
            ways = self._ways_out_of_plan(given) if traits.view is View.PLAN else []
            return Decision(Behavior.ASK, "", suggestions=ways)
        above, name = os.path.split(self._plan_file)
        plan = os.path.join(os.path.realpath(above), name)  # a link in its place is not the plan
        if name and matcher.real_path(traits, given, self._places) == plan:
            return Decision(Behavior.ALLOW, "It is the plan of this session.")
        question = matcher.question_in_any_mode(traits, given, state)
        if question:
            return question
        if self._mode == PLAN and not matcher.only_reads(tool, given):
            if can_ask:
                return Decision(Behavior.ASK, "Plan mode: this call would change something.", "mode")
            return Decision(Behavior.DENY, _PLAN_DENIAL, "mode")
        if state.mode == BYPASS:
            question = matcher.question_about_deny_rules(traits, given, state)
            return question or Decision(Behavior.ALLOW, "Permissions are bypassed.", "mode")
        return matcher.decide(traits, given, state)

    def _ways_out_of_plan(self, tool_input: Json) -> list[Json]:
        """Return the modes that the person may choose with a plan, and the rule for the commands that it asks for."""
        modes = dict.fromkeys((ACCEPT_EDITS, DEFAULT, self.mode_before_plan))
        ways: list[Json] = [{"type": "setMode", "mode": mode, "destination": "session"} for mode in modes]
        wanted = tool_input.get("allowedPrompts")
        if wanted:
            ways += add_rules(list(filter(None, (exact_rule(str(each.get("prompt"))) for each in wanted))))
        return ways

    def _state(self, start: str) -> RuleState:
        return RuleState(self._rules, self._places, self._mode, start, self._sandbox, memory=self._memory)


def read_rule(given: Sourced) -> Rule:
    """Return a rule of settings. Raise ValueError, which names the file. One slash starts at the project."""
    try:
        if not isinstance(given.value, str):
            raise ValueError(f"{str(given.value)[:_MAX_SHOWN]!r} is no permission rule")
        rule = parse_rule(given.value)
    except ValueError as error:
        raise ValueError(f"{given.place}: {error}") from None
    content, layer = rule.content or "", given.layer
    is_of_project = layer.source in OF_PROJECT and traits_of(rule.tool).rules is RuleKind.PATH
    if not is_of_project or not content.startswith("/") or content.startswith("//"):
        return rule
    return replace(rule, content=f"/{os.path.dirname(os.path.dirname(layer.path))}{ROOT_MARK}{content[1:]}")


def _denied_without_question(decision: Decision) -> Decision:
    text = f"{decision.reason} The permission mode is dontAsk: what needs a question is denied."
    return replace(decision, behavior=Behavior.DENY, reason=text, reason_type="mode", suggestions=[])


def _matcher(kind: RuleKind) -> RuleMatcher:
    if kind is RuleKind.COMMAND:
        from .command_matcher import CommandMatcher  # imports much

        return CommandMatcher()
    kinds = {RuleKind.AGENT: AgentMatcher, RuleKind.DOMAIN: DomainMatcher, RuleKind.PATH: PathMatcher}
    return kinds.get(kind, RuleMatcher)()


class ChildPermissions(PermissionEngine):
    """Decides by the present rules, directories and cages of `parent`, in the stricter of its mode and `mode`. What the
    person grants a sub-agent holds for the session. `cwd`: its only directory besides the added ones. `read_only`:
    tools that write are not offered, and calls that change anything are denied. `mode_changed` is called when an answer
    to the sub-agent has changed the session's mode."""

    def __init__(
        self,
        parent: PermissionEngine,
        mode: str = "",
        *,
        cwd: str = "",
        read_only: bool = False,
        mode_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._parent = parent
        self._mode_changed = mode_changed
        self._own_mode = mode
        self._read_only = read_only
        self._own_cwd = cwd
        self._memory = ""

    def _now(self) -> PermissionEngine:
        engine = copy.copy(self._parent)
        engine._mode = stricter(self._own_mode or engine._mode, engine._mode)
        engine._memory = self._memory
        if self._own_cwd:
            engine._cwd = self._own_cwd
            engine._places = PathScope.of(engine._cwd, engine._home, engine._places.roots[1:])
        return engine

    def visible(self, tool_name: str) -> bool:
        writes = traits_of(tool_name).effect is Effect.WRITE
        return self._parent.visible(tool_name) and not (writes and self._read_only)

    def grant_for_turn(self, rules: Sequence[str]) -> None:
        """Change nothing: the rules of the turn are the main agent's."""

    def apply(self, updates: Sequence[Mapping[str, Any]]) -> list[str]:
        mode = self._parent.mode
        problems = self._parent.apply(updates)
        if self._parent.mode != mode:
            self._mode_changed()
        return problems

    def decide(
        self, tool: Askable, tool_input: Json, *, can_ask: bool = False, shell_cwd: str = "", granted: bool = False
    ) -> Decision:
        if self._read_only and not self.only_reads(tool, tool_input):
            return Decision(Behavior.DENY, "This agent only reads, and the call may change something.", "mode")
        return self._now().decide(tool, tool_input, can_ask=can_ask, shell_cwd=shell_cwd, granted=granted)
