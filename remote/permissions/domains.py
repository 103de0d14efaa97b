"""Rules with a domain, such as `WebFetch(domain:example.com)`, for a tool that reads a page of the web."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from ccb.tunnel.wire.web.addresses import WebRefused, read_url

from .decision import Behavior, Decision
from .matchers import Askable, RuleMatcher, RuleState
from .rules.rules import Rule

Json = dict[str, Any]

_PREFIX = "domain:"


class DomainMatcher(RuleMatcher):
    """A rule that denies or asks covers the subdomains of its domain as well; one that allows does not. `*` stands for
    any text."""

    def matching_rule(self, behavior: Behavior, tool: Askable, tool_input: Json, state: RuleState) -> Rule | None:
        host = _host(tool_input)
        for rule in state.rules.contents(behavior, tool.name):
            domain = _domain(rule)
            if domain and (fnmatchcase(host, domain) or fnmatchcase(host, f"*.{domain}")):
                return rule
        return None

    def decide(self, tool: Askable, tool_input: Json, state: RuleState) -> Decision:
        host = _host(tool_input)
        for rule in state.rules.about(Behavior.ALLOW, tool.name):
            if rule.content is None or fnmatchcase(host, _domain(rule) or "\n"):
                return Decision(Behavior.ALLOW, f"The rule {rule} allows this.", "rule")
        from .shell import suggest

        updates = suggest.add_rules([Rule(tool.name, f"{_PREFIX}{host}")])
        return Decision(Behavior.ASK, f"{tool.name} reads a page of {host}.", "other", "", updates)


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
