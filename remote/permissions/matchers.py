"""How rules apply to a call."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.spelling import spelled, unspelled
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT, EDIT, READ, Effect, ToolTraits
from ccb.tunnel.wire.web_fetch import WebRefused, read_url

from ..sandbox.cage_rules import CageRules
from ..system.host import is_under
from .modes import ACCEPT_EDITS, Sandbox
from .paths import PathPattern, PathScope, is_sensitive, protection
from .rule_suggestions import add_rules, file_rule, for_path
from .rules import Behavior, Decision, Rule, RuleSet

LEAVE_SANDBOX = "dangerouslyDisableSandbox"
"""The input of a command that asks to run without a cage. The name is the one that models know."""


class Askable(Protocol):
    """The part of a tool that the permission engine uses."""

    @property
    def traits(self) -> ToolTraits: ...

    def is_read_only(self, tool_input: Json) -> bool: ...


@dataclass(frozen=True)
class RuleState:
    """The rules and circumstances of one decision. `start` is the real path of the shell's current directory, `pinned`
    that which the call will use if it is fixed, `memory` the directory of the agent's notes."""

    rules: RuleSet
    places: PathScope
    mode: str
    start: str
    sandbox: Sandbox
    pinned: str = ""
    memory: str = ""

    @property
    def accepts_edits(self) -> bool:
        return self.mode == ACCEPT_EDITS

    def path_rules(self, tool_name: str) -> list[Rule]:
        return [rule for kind in (Behavior.DENY, Behavior.ASK) for rule in self.rules.contents(kind, tool_name)]


class RuleMatcher:
    """Matches rules about a whole tool. Every method may raise TypeError for an input that it cannot read."""

    def matching_rule(self, behavior: Behavior, traits: ToolTraits, tool_input: Json, state: RuleState) -> Rule | None:
        """Return the first deny (or ask) rule with a pattern that covers the call."""
        return None

    def question_in_any_mode(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision | None:
        """Return ASK for a call that would circumvent a rule even where permissions are bypassed, else None."""
        return None

    def question_about_deny_rules(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision | None:
        """Return ASK for a call that cannot be checked against the deny rules, else None."""
        return None

    def only_reads(self, tool: Askable, tool_input: Json) -> bool:
        """Return whether the call only reads, so that plan mode lets it run."""
        effect = tool.traits.effect
        return effect in (Effect.NONE, Effect.READ) or (effect is not Effect.WRITE and tool.is_read_only(tool_input))

    def cage_if_granted(self, tool_input: Json, state: RuleState) -> CageRules | None:
        """Return the cage in which a call runs that the person has granted."""
        return None

    def real_path(self, traits: ToolTraits, tool_input: Json, places: PathScope) -> str:
        """Return where the path of a call leads now; "" for a call that is not about a path."""
        return ""

    def decide(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision:
        """Decide on a call that no deny or ask rule covers, by allow rules, mode and defaults."""
        allowing = state.rules.whole_tool(Behavior.ALLOW, traits.name)
        if allowing:
            return Decision(Behavior.ALLOW, f"The rule {allowing} allows this.", "rule")
        if traits.effect is Effect.NONE:
            return Decision(Behavior.ALLOW, f"{traits.name} changes nothing outside the session.")
        return Decision(Behavior.ASK, f"No rule allows {traits.name}.", suggestions=add_rules([Rule(traits.name)]))


class AgentMatcher(RuleMatcher):
    """Rules that name an agent, such as `Task(Explore)`."""

    def matching_rule(self, behavior: Behavior, traits: ToolTraits, tool_input: Json, state: RuleState) -> Rule | None:
        name = str(tool_input.get("subagent_type") or DEFAULT_AGENT)
        found = (rule for rule in state.rules.contents(behavior, traits.name) if fnmatchcase(name, rule.content or ""))
        return next(found, None)


class PathMatcher(RuleMatcher):
    """Rules with a path pattern, such as `Edit(src/**)`, for a tool that reads or writes files."""

    def matching_rule(self, behavior: Behavior, traits: ToolTraits, tool_input: Json, state: RuleState) -> Rule | None:
        paths = [path for path in (_path(traits, tool_input), state.pinned) if path]
        for rule in state.rules.contents(behavior, traits.name):
            if any(PathPattern(rule.content or "").forbids(path, state.places) for path in paths):
                return rule
        return None

    def real_path(self, traits: ToolTraits, tool_input: Json, places: PathScope) -> str:
        return places.real(_path(traits, tool_input))

    def decide(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision:
        places, writes = state.places, traits.effect is Effect.WRITE
        real = state.pinned or self.real_path(traits, tool_input, places)
        shown, glob_key = spelled(real), traits.path.glob_key if traits.path else ""
        why = protection(real, places.home) if writes else None
        if why:
            return Decision(Behavior.ASK, f"{shown} is protected: {why}.", "other", shown)
        if glob_key and ".." in str(tool_input.get(glob_key, "")).split("/"):
            return Decision(Behavior.ASK, "The pattern leaves the directory it starts from.", "workingDir", shown)
        is_secret = is_sensitive(real, places.home)
        for rule in state.rules.about(Behavior.ALLOW, traits.name):
            if rule.content is None or PathPattern(rule.content).opens(real, places, is_secret):
                return Decision(Behavior.ALLOW, f"The rule {rule} allows this.", "rule")
        if not is_secret:
            return self._decide_by_place(traits, real, state)
        exact = file_rule(EDIT.name if writes else READ.name, real) if shown == real else None
        updates = add_rules([exact] if exact else [])
        return Decision(Behavior.ASK, f"{shown} usually holds secrets.", "other", shown, updates)

    def _decide_by_place(self, traits: ToolTraits, real: str, state: RuleState) -> Decision:
        places, writes, shown = state.places, traits.effect is Effect.WRITE, spelled(real)
        inside, accepts = places.holds(real), state.accepts_edits or state.sandbox.opens_workspace(places.roots)
        if state.memory and is_under(real, state.memory):
            return Decision(Behavior.ALLOW, "It is in the memory of this agent.")
        if inside and not writes:
            return Decision(Behavior.ALLOW, "It is read in a working directory.", "workingDir")
        if inside and accepts:
            return Decision(Behavior.ALLOW, "Edits in the working directories are accepted.", "mode")
        # a rule cannot hold a name that is no plain text
        updates = for_path(writes, real, places, accepts) if inside or shown == real else []
        if not inside:
            return Decision(Behavior.ASK, f"{shown} is outside the working directories.", "workingDir", shown, updates)
        return Decision(Behavior.ASK, f"{traits.name} changes {shown}.", "other", shown, updates)


def _path(traits: ToolTraits, tool_input: Json) -> str:
    """Return the path that a call is about: the literal head of an absolute glob pattern, or the path in the input."""
    where = traits.path
    assert where is not None, "rules about paths are for tools with one"
    pattern = tool_input.get(where.glob_key) if where.glob_key else None
    if isinstance(pattern, str) and pattern.startswith(("/", "~")):
        head = itertools.takewhile(lambda part: not any(char in part for char in "*?[{"), pattern.split("/"))
        return "/".join(head) or "/"
    value = tool_input.get(where.key)
    if value is None and where.default:
        return where.default
    if not isinstance(value, str) or not value:
        raise TypeError("the path is not a text")
    return unspelled(value)


_PREFIX = "domain:"


class DomainMatcher(RuleMatcher):
    """A rule that denies or asks covers subdomains as well; one that allows does not. `*` stands for any text."""

    def matching_rule(self, behavior: Behavior, traits: ToolTraits, tool_input: Json, state: RuleState) -> Rule | None:
        host = _host(tool_input)
        for rule in state.rules.contents(behavior, traits.name):
            domain = _domain(rule)
            if domain and (fnmatchcase(host, domain) or fnmatchcase(host, f"*.{domain}")):
                return rule
        return None

    def decide(self, traits: ToolTraits, tool_input: Json, state: RuleState) -> Decision:
        host = _host(tool_input)
        for rule in state.rules.about(Behavior.ALLOW, traits.name):
            if rule.content is None or fnmatchcase(host, _domain(rule) or "\n"):
                return Decision(Behavior.ALLOW, f"The rule {rule} allows this.", "rule")
        updates = add_rules([Rule(traits.name, f"{_PREFIX}{host}")])
        return Decision(Behavior.ASK, f"{traits.name} reads a page of {host}.", suggestions=updates)


def _domain(rule: Rule) -> str:
    content = rule.content or ""
    return content[len(_PREFIX) :].strip().lower() if content.startswith(_PREFIX) else ""


def _host(tool_input: Json) -> str:
    url = tool_input.get("url")
    if not isinstance(url, str):
        raise TypeError("the URL is not a text")
    try:
        return read_url(url).host
    except WebRefused as refused:
        raise TypeError(str(refused)) from None
