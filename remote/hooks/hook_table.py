"""The hooks that are configured, and which of them an event runs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import unmarked
from ccb.tunnel.wire.model_facts import CCB_NAMES, ModelNames

from ..settings.worker_settings import Layer, Sourced, at_line

Json = dict[str, Any]

PRE_TOOL_USE, PERMISSION_REQUEST = "PreToolUse", "PermissionRequest"
POST_TOOL_USE, POST_TOOL_USE_FAILURE = "PostToolUse", "PostToolUseFailure"
USER_PROMPT_SUBMIT, NOTIFICATION = "UserPromptSubmit", "Notification"
SESSION_START, SESSION_END = "SessionStart", "SessionEnd"
PRE_COMPACT, POST_COMPACT = "PreCompact", "PostCompact"
STOP, SUBAGENT_START, SUBAGENT_STOP = "Stop", "SubagentStart", "SubagentStop"
STOP_FAILURE, PERMISSION_DENIED = "StopFailure", "PermissionDenied"
ELICITATION, ELICITATION_RESULT = "Elicitation", "ElicitationResult"
POST_TOOL_BATCH, USER_PROMPT_EXPANSION = "PostToolBatch", "UserPromptExpansion"
CWD_CHANGED, FILE_CHANGED = "CwdChanged", "FileChanged"
INSTRUCTIONS_LOADED, SETUP = "InstructionsLoaded", "Setup"
CONFIG_CHANGE, DIRECTORY_ADDED = "ConfigChange", "DirectoryAdded"
TASK_CREATED, TASK_COMPLETED = "TaskCreated", "TaskCompleted"
WORKTREE_CREATE, WORKTREE_REMOVE = "WorktreeCreate", "WorktreeRemove"
PRE_MODEL_SWITCH, POST_MODEL_SWITCH = "PreModelSwitch", "PostModelSwitch"

ABOUT_TOOLS = (PRE_TOOL_USE, PERMISSION_REQUEST, PERMISSION_DENIED, POST_TOOL_USE, POST_TOOL_USE_FAILURE)
EVENTS = (
    *ABOUT_TOOLS,
    *(USER_PROMPT_SUBMIT, NOTIFICATION, STOP, STOP_FAILURE, ELICITATION, ELICITATION_RESULT, SUBAGENT_START),
    *(SUBAGENT_STOP, PRE_COMPACT, POST_COMPACT, SESSION_START, SESSION_END, POST_TOOL_BATCH, USER_PROMPT_EXPANSION),
    *(CWD_CHANGED, FILE_CHANGED, INSTRUCTIONS_LOADED, SETUP, CONFIG_CHANGE, DIRECTORY_ADDED, TASK_CREATED),
    *(TASK_COMPLETED, WORKTREE_CREATE, WORKTREE_REMOVE, PRE_MODEL_SWITCH, POST_MODEL_SWITCH),
)
WITHOUT_MATCHER = (
    *(USER_PROMPT_SUBMIT, STOP, POST_TOOL_BATCH, CWD_CHANGED, TASK_CREATED, TASK_COMPLETED),
    *(WORKTREE_CREATE, WORKTREE_REMOVE),
)
WATCHES = (SESSION_START, CWD_CHANGED, FILE_CHANGED)  # their hooks may name files to watch
SETS_VARIABLES = (*WATCHES, SETUP)  # their hooks may set variables for commands
TELLS_ONLY = (
    *(NOTIFICATION, SUBAGENT_START, POST_COMPACT, SESSION_START, SESSION_END, STOP_FAILURE),
    *(PERMISSION_DENIED, ELICITATION_RESULT, CWD_CHANGED, FILE_CHANGED, INSTRUCTIONS_LOADED, SETUP),
    *(CONFIG_CHANGE, DIRECTORY_ADDED, WORKTREE_REMOVE, POST_MODEL_SWITCH),
)
"""The events that no hook can stop: what it says against them is for the person."""
GATES = (
    *(PRE_TOOL_USE, PERMISSION_REQUEST, USER_PROMPT_SUBMIT, USER_PROMPT_EXPANSION, STOP, SUBAGENT_STOP),
    *(TASK_CREATED, TASK_COMPLETED, WORKTREE_CREATE, PRE_MODEL_SWITCH),
)
"""The events at which a hook that cannot decide refuses, because something waits for its leave."""

COMMAND_TIMEOUT_S, CALLBACK_TIMEOUT_S, PROMPT_TIMEOUT_S = 600.0, 60.0, 30.0
_TARGETS = {"command": "command", "http": "url", "prompt": "prompt"}
_MAX_STATUS = 200  # characters
_MAX_HOOKS = 500
_NAMES = re.compile(r"[A-Za-z0-9_|]+")
_ALL = ("", "*")
_GOES_ON = (None, "continue")
_SHAPE = 'an entry is {"matcher": "…", "hooks": [{"type": "command", "command": "…", "timeout": seconds}]}'


CLIENT = Layer("client", "", {})


@dataclass(frozen=True)
class Hook:
    """One hook of an event. `what` is the command of the shell, the address that gets the event (`kind` is `http`) with
    these `headers` and the values of these `variables` in them, what a `model` is asked (`prompt`; "" is a small one),
    or an id of the program that drives (`callback`). `must_decide`: its failure blocks. `condition` is a permission
    rule for the calls it runs for. `beside`: nothing waits for it. `broken` says why its settings cannot be used: at a
    gate it then refuses."""

    event: str
    matcher: str
    kind: str = "command"
    what: str = ""
    timeout_s: float = COMMAND_TIMEOUT_S
    layer: Layer = CLIENT
    must_decide: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    model: str = ""
    condition: str = ""
    beside: bool = False
    once: bool = False
    status: str = ""
    broken: str = ""

    @property
    def does(self) -> str:
        """What the hook runs or asks: a command, an address, a question or a callback."""
        return self.broken or (f"callback {self.what}" if self.kind == "callback" else self.what)

    @property
    def key(self) -> str:
        """The key of the hook among all hooks. A restart of the worker does not change it."""
        return hashlib.sha256(repr((self.event, self.matcher, self.does, self.condition)).encode()).hexdigest()[:16]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of files in the matcher of a hook of FileChanged, which are watched."""
        found = self.matcher.split("|") if self.matcher not in _ALL else ()
        return tuple(name for each in found if (name := each.strip()))

    def matches(self, subject: str) -> bool:
        """Return whether the hook runs for an event about `subject`: a tool's name, a source, a trigger."""
        if self.matcher in _ALL or self.event in WITHOUT_MATCHER:
            return True
        if self.event == FILE_CHANGED:
            return not {subject, os.path.basename(subject)}.isdisjoint(self.names)
        names = {subject, unmarked(subject)}
        if _NAMES.fullmatch(self.matcher):
            return not names.isdisjoint(self.matcher.split("|"))
        return any(re.search(self.matcher, name) for name in names)


def read_hooks(
    sources: Iterable[Sourced], report: Callable[[str], None], names: ModelNames = CCB_NAMES
) -> tuple[Hook, ...]:
    """Return the hooks of all `hooks` objects in order. Report what cannot be used. `names` are those of models."""
    found: list[Hook] = []
    for given in sources:
        for event, matcher, where, hook in _listed(given):
            layer, full = given.layer, len(found) >= _MAX_HOOKS
            read = hook if isinstance(hook, str) else _read(event, matcher, hook, layer, names)
            if full:
                event, matcher, read = PRE_TOOL_USE, "", f"more than {_MAX_HOOKS} hooks; the rest is left out"
            if not isinstance(read, str):
                found.append(read)
                continue
            gates = event in GATES
            report(f"{where}: {read}" + ("; until that is corrected, it refuses" if gates else ""))
            if gates:
                known = "" if _matcher_problem(matcher, event) else str(matcher or "")
                found.append(Hook(event, known, layer=layer, broken=f"{where}: {read}"))
            if full:
                return tuple(found)
    return tuple(found)


def client_hooks(value: object) -> tuple[Hook, ...]:
    """Return the callbacks in the `hooks` of a client's `initialize` request. Raise ValueError if it is malformed."""
    found = []
    for event, entries in value.items() if isinstance(value, dict) else ():
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or not isinstance(ids := entry.get("hookCallbackIds"), list):
                raise ValueError(f"hooks.{event}: a list of hookCallbackIds is missing")
            matcher, timeout = entry.get("matcher"), entry.get("timeout")
            wrong = _matcher_problem(matcher, event)
            if wrong:
                raise ValueError(f"hooks.{event}: {wrong}")
            seconds = float(str(timeout)) if _is_positive(timeout) else CALLBACK_TIMEOUT_S
            must_decide = entry.get("onFailure") not in _GOES_ON
            hook = Hook(event, matcher or "", "callback", "", seconds, must_decide=must_decide)
            found += [replace(hook, what=str(each)) for each in ids]
    return tuple(found[:_MAX_HOOKS])


def _place(layer: Layer, *keys: object) -> str:
    name = ".".join(map(str, ("hooks", *keys)))
    return f"{at_line(layer.path or layer.source, layer.lines, name)}: {name}"


def _listed(given: Sourced) -> Iterator[tuple[str, object, str, Json | str]]:
    """Yield the event, the matcher, the place and the object of each hook. A text in its place says what is wrong."""
    if not isinstance(given.value, dict):
        yield PRE_TOOL_USE if given.value else "", "", _place(given.layer), "it is no object"
        return
    for event, entries in given.value.items():
        if event not in EVENTS:
            from difflib import get_close_matches  # most settings name no wrong events

            near = get_close_matches(event, EVENTS, 1, 0.85)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield near[0] if near else event, "", _place(given.layer, event), f"there is no such event{meant}"
            continue
        for number, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            hooks = entry.get("hooks") if isinstance(entry, dict) else None
            matcher = entry.get("matcher") if isinstance(entry, dict) else None
            if not isinstance(hooks, list):
                yield event, matcher, _place(given.layer, event, number), _SHAPE
                continue
            for each, hook in enumerate(hooks):
                where = _place(given.layer, event, number, "hooks", each)
                yield event, matcher, where, hook if isinstance(hook, dict) else _SHAPE


def _read(event: str, matcher: object, hook: Json, layer: Layer, names: ModelNames) -> Hook | str:
    """Return the hook, or what is wrong with it."""
    kind, condition = hook.get("type", "command"), hook.get("if")
    timeout = hook.get("timeout", PROMPT_TIMEOUT_S if kind == "prompt" else COMMAND_TIMEOUT_S)
    what: Any = hook.get(_TARGETS.get(str(kind), ""))
    wrong = _matcher_problem(matcher, event) or (condition and _condition_problem(event, condition))
    wrong = wrong or _problem_of_kind(kind, what, timeout, hook, names)
    if wrong:
        return str(wrong)
    headers, variables = (hook.get("headers", {}), hook.get("allowedEnvVars", [])) if kind == "http" else ({}, [])
    return Hook(
        event,
        str(matcher or ""),
        str(kind),
        what,
        float(timeout),
        layer,
        headers=dict(zip(map(str, headers), map(str, headers.values()))),
        variables=tuple(map(str, variables)),
        model=str(hook.get("model") or ""),
        condition=str(condition or ""),
        beside=hook.get("async") is True,
        once=hook.get("once") is True,
        status=" ".join(str(hook.get("statusMessage") or "").split())[:_MAX_STATUS],
    )


def _problem_of_kind(kind: object, what: object, timeout: object, hook: Json, names: ModelNames) -> str:
    if kind == "agent":
        return "hooks of the type agent do not run in ccb: use a prompt or a command"
    if str(kind) not in _TARGETS or not isinstance(what, str) or not what or not _is_positive(timeout):
        return _SHAPE
    are_read = isinstance(hook.get("headers", {}), dict) and isinstance(hook.get("allowedEnvVars", []), list)
    if kind == "http" and not are_read:
        return "`headers` is an object and `allowedEnvVars` a list"
    model = str(hook.get("model") or "")
    return "`model` is no name of a model" if kind == "prompt" and model and not names.may_be(model) else ""


def _condition_problem(event: str, condition: object) -> str:
    from ..permissions.rules import parse_rule

    if event not in ABOUT_TOOLS:
        return f"`if` is for the events about tools, not for {event}"
    try:
        parse_rule(condition if isinstance(condition, str) else "")
    except ValueError as error:
        return f"`if`: {error}"
    return ""


def _matcher_problem(matcher: object, event: str = "") -> str:
    if event == FILE_CHANGED and isinstance(matcher, str):
        return ""
    try:
        re.compile(matcher if isinstance(matcher, str) and matcher not in _ALL else "")
    except re.error as error:
        return f"the matcher {matcher!r} is no regular expression: {error}"
    return "" if matcher is None or isinstance(matcher, str) else "a matcher is a text"


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e7
