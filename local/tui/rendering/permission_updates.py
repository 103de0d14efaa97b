"""Permission updates that come with a question, in words, and which of them an answer may grant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import AGENT_OPTION, READS_SERVICES
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import BASH, BUILT_IN, Effect, RuleKind, View, traits_of
from ccb.tunnel.wire.web_fetch import WebRefused, read_url

from ...config.project_records import projects_path
from ...transcript.session_facts import READING, mode_name
from .untrusted_text import escaped_name

_MAX_RULE = 1_000
_RULE = re.compile(r"(?P<tool>[^()]+)\((?P<content>[^\S\n]*\S.*)\)")


KEPT = "localSettings"  # the destination of updates that are kept for this host and directory, in the public protocol
READS: Json = {
    "type": "addRules",
    "rules": [{"toolName": BASH.name, "ruleContent": READS_SERVICES}],
    "behavior": "allow",
    "destination": KEPT,
}


def describe_update(update: Json) -> list[str]:
    """Return a permission update in words, one text for each rule or directory: they may have commas."""
    kind = update.get("type")
    if kind in ("addRules", "replaceRules"):
        behavior = escaped_name(str(update.get("behavior", "allow")))
        return [f"{behavior} {escaped_name(_in_words(each))}" for each in _listed(update.get("rules"), dict)]
    if kind == "setMode":
        mode = str(update.get("mode"))
        return [mode_name(mode) if mode == "acceptEdits" else f"permission mode {escaped_name(mode_name(mode))}"]
    if kind == "addDirectories":
        return [f"work in {escaped_name(str(each))}" for each in _listed(update.get("directories"), object)]
    if kind == AGENT_OPTION:  # in the agent's words: nobody here knows how much that grants
        return [f"what the agent calls “{escaped_name(str(update.get('name') or update.get('option')))}”"]
    return [escaped_name(str(kind))]


def suggestions(request: ControlRequest) -> list[Json]:
    return _listed(request.request.get("permission_suggestions"), dict)


_PLAN_MODES = {"acceptEdits": "Yes, and accept edits", "default": "Yes, and ask before each edit"}


def plan_modes(request: ControlRequest) -> dict[str, tuple[str, Json]]:
    """Return the modes in which an approved plan may be carried out, each in words and as an update."""
    modes = {str(each.get("mode")): each for each in suggestions(request) if each.get("type") == "setMode"}
    return {
        mode: (_PLAN_MODES.get(mode) or f"Yes, and {mode_name(mode)} as before", {**update, "destination": "session"})
        for mode, update in modes.items()
        if mode in (*_PLAN_MODES, "bypassPermissions")
    }


def session_updates(request: ControlRequest) -> list[Json]:
    """Return what "this session" grants: the first suggestion, unless it names nothing or is too long to read."""
    first = suggestions(request)[:1]
    length = sum(len(each) + 1 for update in first for each in describe_update(update))
    return [{**update, "destination": "session"} for update in first if 0 < length <= _MAX_RULE]


def reads_services(request: ControlRequest) -> bool:
    """Return whether the updates READS would make a question needless."""
    return request.request.get("reads_services") is True and covers([READS], request)


def covers(updates: list[Json], request: ControlRequest) -> bool:
    """Return whether updates add rules about the tool of a call and nothing else. The host chooses what it suggests, so
    the same rule at another question proves nothing: where the laptop may be concerned, the rule must be about the
    whole tool, or about the domain of the call, because nobody here checks which calls another one covers."""
    rules = [rule for each in updates for rule in _listed(each.get("rules"), dict)]
    return (
        bool(rules)
        and all(each.get("type") == "addRules" and each.get("behavior") == "allow" for each in updates)
        and all(_is_about(rule, request.tool_name, request.input) for rule in rules)
    )


def _is_about(rule: Json, tool_name: str, tool_input: Json) -> bool:
    traits, content = traits_of(tool_name), rule.get("ruleContent")
    if rule.get("toolName") not in traits.rule_names:
        return False
    if not content or (tool_name in BUILT_IN and traits.effect is not Effect.NETWORK):
        return True
    try:
        domain = f"domain:{read_url(str(tool_input.get('url'))).host}" if traits.rules is RuleKind.DOMAIN else None
    except WebRefused:
        return False
    return domain is not None and content == domain


def kept_updates(response: Json) -> list[Json]:
    return [each for each in response.get("updatedPermissions", ()) if each.get("destination") == KEPT]


def kept_note(updates: Sequence[Json]) -> str:
    rules = ", ".join(text for each in updates for text in describe_update(each))
    place = "host" if updates == [READS] else "host and directory"
    return f"Kept for this {place}, on the laptop: {rules}"


def kept_in() -> str:
    """Return the file of the laptop that keeps what is allowed always."""
    path, home = projects_path(), Path.home()
    return one_line(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


def accepts_edits(updates: list[Json]) -> bool:
    """Whether updates change to the mode after the first one, which has a key."""
    return [each.get("mode") for each in updates if each.get("type") == "setMode"] == ["acceptEdits"]


def can_be_kept(updates: list[Json]) -> bool:
    return bool(updates) and all(each.get("type") == "addRules" for each in updates)


def editable_rules(updates: list[Json]) -> list[str]:
    """Return the rules that updates add, if that is all they do and each text says all of its rule; else none."""
    if len(updates) != 1 or updates[0].get("type") != "addRules":
        return []
    rules = _listed(updates[0].get("rules"), dict)
    texts = list(map(_rule, rules))
    whole = all(isinstance(each.get("ruleContent"), str) for each in rules)
    return texts if whole and list(map(escaped_name, texts)) == texts else []


def with_rule(updates: list[Json], place: int, text: str) -> list[Json] | None:
    """Return updates whose rule at a place is `text`, None if that is not about the same tool. Without a text, they are
    without that rule if they have others."""
    (update,) = updates
    rules = _listed(update.get("rules"), dict)
    match = _RULE.fullmatch(text.strip())
    if match is not None and match["tool"] == rules[place].get("toolName"):
        rules[place] = {**rules[place], "ruleContent": match["content"]}
    elif not text and len(rules) > 1:
        del rules[place]
    else:
        return None
    return [{**update, "rules": rules}]


def _in_words(rule: Json) -> str:
    """Return a rule about commands as a command, with ` *` where it goes on, unless it would look like another rule."""
    content, view = rule.get("ruleContent"), traits_of(str(rule.get("toolName"))).view
    if rule in READS["rules"]:
        return READING
    if view is not View.COMMAND or not isinstance(content, str) or not content or "(" in content:
        return _rule(rule)
    return f"{content[:-2].rstrip()} *" if content.endswith(":*") else content


def _rule(rule: Json) -> str:
    content = rule.get("ruleContent")
    return f"{rule.get('toolName', '?')}({content})" if content else str(rule.get("toolName", "?"))


def _listed(values: object, kind: type[Any]) -> list[Any]:
    return [each for each in values if isinstance(each, kind)] if isinstance(values, list) else []
