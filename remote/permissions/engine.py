"""The permission engine: one decision for each tool call, and the rules, mode and directories it stands on.

Order: deny rules, ask rules, plan mode, bypass, protected files, allow rules, acceptEdits, the defaults. Whatever goes
wrong on the way asks."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .decision import Behavior, Decision
from .modes import ACCEPT_EDITS, BYPASS, DEFAULT, PLAN, check_mode, is_root_without_sandbox
from .paths import PathPattern, Places, protection
from .rules.rules import EDIT_TOOLS, READ_TOOLS, Rule, parse_rules
from .rules.ruleset import COMMAND_LINE, RuleSet
from .rules.updates import UpdateError, read_update
from .shell import suggest
from .shell.policy import BashPolicy, forbidding_rule, swept_rule
from .shell.readonly import is_read_only_command

Json = dict[str, Any]

log = logging.getLogger(__name__)

_PATH_KEY = {**dict.fromkeys((*EDIT_TOOLS, "Read"), "file_path"), **dict.fromkeys(("Grep", "Glob", "LS"), "path")}
_HARMLESS = frozenset(("TodoWrite", "BashOutput", "KillShell"))


class Askable(Protocol):
    """What the engine looks at in a tool."""

    @property
    def name(self) -> str: ...

    def is_read_only(self, tool_input: Json) -> bool: ...


class PermissionEngine:
    """Owns rules, mode and working directories of a session. `allowed` and `disallowed` are lists as given on the command
    line, each item one or more rules. Raises RuleError or ModeError."""

    def __init__(
        self,
        mode: str = DEFAULT,
        allowed: Sequence[str] = (),
        disallowed: Sequence[str] = (),
        *,
        cwd: str,
        add_dirs: Sequence[str] = (),
        home: str = "",
        allow_bypass: bool = False,
        is_root: bool | None = None,
    ) -> None:
        self._is_root = is_root_without_sandbox() if is_root is None else is_root
        self._allow_bypass = allow_bypass or mode == BYPASS  # chosen at the start: the session was launched with it
        check_mode(mode, self._allow_bypass, self._is_root)
        self._mode = mode
        self._home = home or os.path.expanduser("~")
        self._cwd = cwd
        self._add_dirs = list(add_dirs)
        self._places = Places.of(cwd, self._home, add_dirs)
        self._rules = RuleSet()
        self._rules.add(COMMAND_LINE, Behavior.ALLOW, parse_rules(allowed))
        self._rules.add(COMMAND_LINE, Behavior.DENY, parse_rules(disallowed))

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def directories(self) -> tuple[str, ...]:
        """Real paths of the working directories, the session's first."""
        return self._places.roots

    def set_mode(self, mode: str) -> None:
        """Raises ModeError."""
        check_mode(mode, self._allow_bypass, self._is_root)
        self._mode = mode

    def relaunch(
        self,
        allowed: Sequence[str],
        disallowed: Sequence[str],
        *,
        mode: str,
        add_dirs: Sequence[str],
        allow_bypass: bool,
    ) -> None:
        """Another command line takes the place of the one before; rules of other origin stay. Raises RuleError, ModeError."""
        may_bypass = self._allow_bypass or allow_bypass
        check_mode(mode, may_bypass, self._is_root)
        allow, deny = parse_rules(allowed), parse_rules(disallowed)
        self._allow_bypass, self._mode = may_bypass, mode
        self._add_dirs = list(add_dirs)
        self._places = Places.of(self._cwd, self._home, add_dirs)
        self._rules.replace(COMMAND_LINE, Behavior.ALLOW, allow)
        self._rules.replace(COMMAND_LINE, Behavior.DENY, deny)

    def visible(self, tool_name: str) -> bool:
        """False for a tool that a rule denies altogether: the model is not offered it."""
        return self._rules.whole_tool(Behavior.DENY, tool_name) is None

    def left_out(self, tool_name: str) -> list[str]:
        """What a search must leave out of its results: regular expressions (for fullmatch) of absolute paths in small letters."""
        patterns = [PathPattern(rule.content or "") for rule in self._kept_from(tool_name)]
        return [expression for pattern in patterns for expression in pattern.expressions(self._places)]

    def _kept_from(self, tool_name: str) -> list[Rule]:
        """Rules about paths that deny a tool, or want a question first."""
        return [rule for kind in (Behavior.DENY, Behavior.ASK) for rule in self._rules.contents(kind, tool_name)]

    def apply(self, updates: Sequence[Mapping[str, Any]]) -> list[str]:
        """Permission updates in the public shape. One that cannot be applied is left out; the texts returned say why."""
        problems: list[str] = []
        for update in updates:
            problem = self._try_apply(update)
            if problem:
                log.warning("permission update ignored: %s", problem)
                problems.append(problem)
        return problems

    def _try_apply(self, update: Mapping[str, Any]) -> str:
        try:
            self._apply(update)
        except ValueError as error:
            return str(error)
        return ""

    def _apply(self, update: Mapping[str, Any]) -> None:
        change = read_update(update)
        if change.kind == "setMode":
            self.set_mode(change.mode)
        elif change.kind == "addRules":
            self._rules.add(change.destination, change.behavior, change.rules)
        elif change.kind == "replaceRules":
            self._rules.replace(change.destination, change.behavior, change.rules)
        elif change.kind == "removeRules":
            self._rules.remove(change.destination, change.behavior, change.rules)
        else:
            current = Places.of(self._cwd, self._home, change.directories).roots[1:]
            if change.kind == "addDirectories":
                self._add_dirs = list(dict.fromkeys([*self._places.roots[1:], *current]))
            elif change.kind == "removeDirectories":
                self._add_dirs = [d for d in self._places.roots[1:] if d not in current]
            else:
                raise UpdateError(f"unknown type {change.kind!r}")
            self._places = Places.of(self._cwd, self._home, self._add_dirs)

    def decide(self, tool: Askable, tool_input: Json, *, can_ask: bool = False, shell_cwd: str = "") -> Decision:
        """The decision for one call. `can_ask`: a person can be asked, so plan mode asks instead of denying. `shell_cwd`:
        where Bash would run now, when an earlier `cd` took it away from the session's directory. Never raises."""
        try:
            start = os.path.realpath(shell_cwd) if shell_cwd else self._places.cwd
            return self._decide(tool, tool_input, can_ask, start)
        except Exception as error:  # a failed check asks, whatever failed
            log.exception("permission check of %s failed", tool.name)
            return Decision(Behavior.ASK, f"The permission check failed ({type(error).__name__}).")

    def _decide(self, tool: Askable, tool_input: Json, can_ask: bool, start: str) -> Decision:
        name = tool.name
        for behavior in (Behavior.DENY, Behavior.ASK):
            rule = self._rule_for(behavior, name, tool_input, start)
            if rule:
                verb = "denies" if behavior is Behavior.DENY else "wants a question before"
                return Decision(behavior, f"The rule {rule} {verb} this.", "rule")
        if name == "Bash":
            swept = swept_rule(_command(tool_input), self._kept_from("Read"), self._places, start)
            if swept:
                reason = (
                    f"It reads through directories with files that the rule {swept} is about; Grep leaves those out."
                )
                return Decision(Behavior.ASK, reason, "rule")
        if self._mode == PLAN and not self._only_looks(tool, tool_input):
            return _plan_decision(can_ask)
        if self._mode == BYPASS:
            return self._bypass_decision(name, tool_input, start)
        if name == "Bash":
            if self._rules.whole_tool(Behavior.ALLOW, name):
                doubt = self._cannot_exclude(_command(tool_input), start)
                return doubt or Decision(Behavior.ALLOW, "The rule Bash allows this.", "rule")
            policy = BashPolicy(self._rules, self._places, self._mode == ACCEPT_EDITS, start)
            return policy.decide(_command(tool_input))
        if name in _PATH_KEY:
            return self._decide_path(name, tool_input)
        allowing = self._rules.whole_tool(Behavior.ALLOW, name)
        if allowing:
            return Decision(Behavior.ALLOW, f"The rule {allowing} allows this.", "rule")
        if name in _HARMLESS:
            return Decision(Behavior.ALLOW, f"{name} changes nothing outside the session.")
        return Decision(Behavior.ASK, f"No rule allows {name}.", "other", "", suggest.add_rules([Rule(name)]))

    def _rule_for(self, behavior: Behavior, name: str, tool_input: Json, start: str) -> Rule | None:
        whole = self._rules.whole_tool(behavior, name)
        if whole:
            return whole
        if name == "Bash":
            return forbidding_rule(_command(tool_input), self._rules, behavior, self._places, start)
        if name in _PATH_KEY:
            path = _path(name, tool_input)
            for rule in self._rules.contents(behavior, name):
                if PathPattern(rule.content or "").forbids(path, self._places):
                    return rule
        return None

    def _only_looks(self, tool: Askable, tool_input: Json) -> bool:
        if tool.name == "Bash":
            return is_read_only_command(_command(tool_input))
        if tool.name in EDIT_TOOLS:
            return False
        return tool.name in READ_TOOLS or tool.name in _HARMLESS or tool.is_read_only(tool_input)

    def _bypass_decision(self, name: str, tool_input: Json, start: str) -> Decision:
        if name == "Bash":
            doubt = self._cannot_exclude(_command(tool_input), start)
            if doubt:
                return doubt
        return Decision(Behavior.ALLOW, "Permissions are bypassed.", "mode")

    def _cannot_exclude(self, command: str, start: str) -> Decision | None:
        """A command that is not understood may be what a deny rule is there to stop."""
        about_commands, about_files, about_writes = (
            bool(self._rules.contents(Behavior.DENY, tool)) for tool in ("Bash", "Read", "Edit")
        )
        if not (about_commands or about_files or about_writes):
            return None
        return BashPolicy(self._rules, self._places, True, start).understand(command, about_commands, about_files)

    def _decide_path(self, name: str, tool_input: Json) -> Decision:
        real = self._places.real(_path(name, tool_input))
        writes = name in EDIT_TOOLS
        why = protection(real, self._home) if writes else None
        if why:
            return Decision(Behavior.ASK, f"{real} is protected: {why}.", "other", real)
        if name == "Glob" and ".." in str(tool_input.get("pattern", "")).split("/"):
            return Decision(Behavior.ASK, "The pattern leaves the directory it starts from.", "workingDir", real)
        for rule in self._rules.about(Behavior.ALLOW, name):
            if rule.content is None or PathPattern(rule.content).allows(real, self._places):
                return Decision(Behavior.ALLOW, f"The rule {rule} allows this.", "rule")
        accepts = self._mode == ACCEPT_EDITS
        updates = suggest.for_path(name, real, self._places, accepts)
        if not self._places.holds(real):
            return Decision(Behavior.ASK, f"{real} is outside the working directories.", "workingDir", real, updates)
        if not writes:
            return Decision(Behavior.ALLOW, "It is read in a working directory.", "workingDir")
        if accepts:
            return Decision(Behavior.ALLOW, "Edits in the working directories are accepted.", "mode")
        return Decision(Behavior.ASK, f"{name} changes {real}.", "other", real, updates)


def _plan_decision(can_ask: bool) -> Decision:
    if can_ask:
        return Decision(Behavior.ASK, "Plan mode: this call would change something.", "mode")
    return Decision(
        Behavior.DENY,
        "Plan mode is on: only calls that read are allowed. Do not try another way to change anything; finish"
        " the plan and present it to the user.",
        "mode",
    )


def _command(tool_input: Json) -> str:
    command = tool_input.get("command")
    if not isinstance(command, str):
        raise TypeError("command is not a text")
    return command


def _path(name: str, tool_input: Json) -> str:
    """The path a call is about; for Glob the literal head of an absolute pattern counts."""
    value = tool_input.get(_PATH_KEY[name])
    if name == "Glob":
        pattern = tool_input.get("pattern", "")
        if isinstance(pattern, str) and pattern.startswith(("/", "~")):
            parts = pattern.split("/")
            wild = next((at for at, part in enumerate(parts) if any(char in part for char in "*?[{")), len(parts))
            return "/".join(parts[:wild]) or "/"
    if value is None and _PATH_KEY[name] == "path":
        return "."
    if not isinstance(value, str) or not value:
        raise TypeError("the path is not a text")
    return value
