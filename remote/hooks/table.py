"""The hooks that are configured, and which of them an event runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass

Json = dict[str, Any]

PRE_TOOL_USE, PERMISSION_REQUEST = "PreToolUse", "PermissionRequest"
POST_TOOL_USE, POST_TOOL_USE_FAILURE = "PostToolUse", "PostToolUseFailure"
USER_PROMPT_SUBMIT, NOTIFICATION = "UserPromptSubmit", "Notification"
SESSION_START, SESSION_END, PRE_COMPACT = "SessionStart", "SessionEnd", "PreCompact"
STOP, SUBAGENT_START, SUBAGENT_STOP = "Stop", "SubagentStart", "SubagentStop"

EVENTS = (
    PRE_TOOL_USE,
    PERMISSION_REQUEST,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    USER_PROMPT_SUBMIT,
    NOTIFICATION,
    STOP,
    SUBAGENT_START,
    SUBAGENT_STOP,
    PRE_COMPACT,
    SESSION_START,
    SESSION_END,
)
ABOUT_TOOLS = (PRE_TOOL_USE, PERMISSION_REQUEST, POST_TOOL_USE, POST_TOOL_USE_FAILURE)
WITHOUT_MATCHER = (USER_PROMPT_SUBMIT, STOP)

COMMAND_TIMEOUT_S, CALLBACK_TIMEOUT_S = 600.0, 60.0
_MAX_HOOKS = 500
_NAMES = re.compile(r"[A-Za-z0-9_|]+")
_ALL = ("", "*")
_GOES_ON = (None, "continue")
_SHAPE = 'an entry is {"matcher": "…", "hooks": [{"type": "command", "command": "…", "timeout": seconds}]}'


@dataclass(frozen=True)
class Hook:
    """One hook of an event: the shell `command`, the `url` that gets it, or the `callback` id of the program that
    drives. `source` and `path` say where it is configured: see `WorkerSettings`; callbacks have the source `client`.
    `must_decide`: what it is asked about is blocked if it fails.

    `condition` is a permission rule: the hook runs for the calls that the rule covers. `beside`: nothing waits for it,
    and it decides nothing. `once`: it runs once in a session. `headers` go to the `url`, with the values of the
    variables in `variables`."""

    event: str
    matcher: str
    command: str = ""
    callback: str = ""
    timeout_s: float = COMMAND_TIMEOUT_S
    source: str = ""
    path: str = ""
    must_decide: bool = False
    url: str = ""
    condition: str = ""
    beside: bool = False
    once: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()

    @property
    def does(self) -> str:
        """What it runs."""
        return self.command or self.url or f"callback {self.callback}"

    @property
    def kind(self) -> str:
        """`command`, `http` or `callback`."""
        return "callback" if self.callback else "http" if self.url else "command"

    @property
    def key(self) -> str:
        """What tells it from other hooks, also after a restart."""
        return hashlib.sha256(repr((self.event, self.matcher, self.does, self.condition)).encode()).hexdigest()[:16]

    def matches(self, subject: str) -> bool:
        """Return whether the hook runs for an event about `subject`: a tool's name, a source, a trigger."""
        if self.matcher in _ALL or self.event in WITHOUT_MATCHER:
            return True
        if _NAMES.fullmatch(self.matcher):
            return subject in self.matcher.split("|")
        return re.search(self.matcher, subject) is not None


@dataclass(frozen=True)
class HookSource:
    """A `hooks` object of one settings file, as the file has it, and where it comes from."""

    value: Any
    source: str
    path: str = ""


def read_hooks(sources: Iterable[HookSource], report: Callable[[str], None]) -> tuple[Hook, ...]:
    """Return the command hooks of all sources in order. What cannot be used is reported in words."""
    found: list[Hook] = []
    for given in sources:
        for event, entry, hook in _listed(given, report):
            where = f"{given.path or given.source}: hooks.{event}"
            read = _read(event, entry.get("matcher"), hook, given)
            if isinstance(read, str):
                report(f"{where}: {read}")
            elif len(found) >= _MAX_HOOKS:
                report(f"{where}: more than {_MAX_HOOKS} hooks; the rest is left out")
                return tuple(found)
            else:
                found.append(read)
    return tuple(found)


def client_hooks(value: object) -> tuple[Hook, ...]:
    """Return the callbacks in the `hooks` of a client's `initialize` request. Raise ValueError if it is malformed."""
    found = []
    for event, entries in value.items() if isinstance(value, dict) else ():
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or not isinstance(ids := entry.get("hookCallbackIds"), list):
                raise ValueError(f"hooks.{event}: a list of hookCallbackIds is missing")
            matcher, timeout = entry.get("matcher"), entry.get("timeout")
            wrong = _matcher_problem(matcher)
            if wrong:
                raise ValueError(f"hooks.{event}: {wrong}")
            seconds = float(str(timeout)) if _is_positive(timeout) else CALLBACK_TIMEOUT_S
            hook = Hook(event, matcher or "", "", "", seconds, "client", "", entry.get("onFailure") not in _GOES_ON)
            found += [replace(hook, callback=str(each)) for each in ids]
    return tuple(found[:_MAX_HOOKS])


def _listed(given: HookSource, report: Callable[[str], None]) -> Iterator[tuple[str, Json, Json]]:
    """Yield the event, the entry and the hook object of each hook."""
    where = f"{given.path or given.source}: hooks"
    for event, entries in given.value.items() if isinstance(given.value, dict) else [("", given.value)]:
        if event not in EVENTS:
            report(f"{where}.{event}: there is no such event")
            continue
        for entry in entries if isinstance(entries, list) else [entries]:
            hooks = entry.get("hooks") if isinstance(entry, dict) else None
            if not isinstance(hooks, list):
                report(f"{where}.{event}: {_SHAPE}")
                continue
            for hook in hooks:
                yield event, entry, hook if isinstance(hook, dict) else {}


def _read(event: str, matcher: object, hook: Json, given: HookSource) -> Hook | str:
    """Return the hook, or what is wrong with it."""
    kind, timeout = hook.get("type"), hook.get("timeout", COMMAND_TIMEOUT_S)
    condition, headers, variables = hook.get("if"), hook.get("headers", {}), hook.get("allowedEnvVars", [])
    wrong = _matcher_problem(matcher) or (condition and _condition_problem(event, condition))
    if wrong:
        return str(wrong)
    if kind in ("prompt", "agent"):
        return f"hooks of the type {kind} do not run in ccb: use a command"
    target = hook.get("url" if kind == "http" else "command")
    if kind not in ("command", "http") or not isinstance(target, str) or not target or not _is_positive(timeout):
        return _SHAPE
    if not isinstance(headers, dict) or not isinstance(variables, list):
        return "`headers` is an object and `allowedEnvVars` a list"
    command, url = ("", target) if kind == "http" else (target, "")
    return Hook(
        event,
        str(matcher or ""),
        command,
        timeout_s=float(timeout),
        source=given.source,
        path=given.path,
        url=url,
        condition=str(condition or ""),
        beside=hook.get("async") is True,
        once=hook.get("once") is True,
        headers=dict(zip(map(str, headers), map(str, headers.values()))),
        variables=tuple(map(str, variables)),
    )


def _condition_problem(event: str, condition: object) -> str:
    from ..permissions.rules.rules import RuleError, parse_rule

    if event not in ABOUT_TOOLS:
        return f"`if` is for the events about tools, not for {event}"
    try:
        parse_rule(condition if isinstance(condition, str) else "")
    except RuleError as error:
        return f"`if`: {error}"
    return ""


def _matcher_problem(matcher: object) -> str:
    try:
        re.compile(matcher if isinstance(matcher, str) and matcher not in _ALL else "")
    except re.error as error:
        return f"the matcher {matcher!r} is no regular expression: {error}"
    return "" if matcher is None or isinstance(matcher, str) else "a matcher is a text"


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e7
