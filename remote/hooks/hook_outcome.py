"""The outcome of hooks: the output of one hook read, and the answers of all hooks of an event merged. A hook of an
event in `GATES` must not fail open: if it cannot decide, or seems to decide something that cannot be read, what it is
asked about is refused, and the reason says so."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from itertools import chain

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.hook_output import (
    ANSWERS,
    PrintedAnswers,
    could_not_decide,
    names_decision,
    names_refusal,
    plain,
    read_printed,
)
from ccb.tunnel.wire.messages import as_dict

from .hook_table import (
    GATES,
    POST_TOOL_USE,
    PRE_COMPACT,
    SESSION_START,
    SETUP,
    TELLS_ONLY,
    USER_PROMPT_SUBMIT,
    WATCHES,
    WORKTREE_CREATE,
    Json,
)

_RANK = {"": 0, "allow": 1, "ask": 2, "deny": 3}
_WORDS = {"approve": "allow", "allow": "allow", "block": "deny", "deny": "deny", "ask": "ask"}
_ACTIONS = ("accept", "decline", "cancel")
_FIELDS = """
hookEventName additionalContext permissionDecision permissionDecisionReason updatedInput decision updatedMCPToolOutput
updatedToolOutput initialUserMessage sessionTitle retry action content worktreePath"""
_KNOWN = frozenset(_FIELDS.split())
"""The fields of `hookSpecificOutput`."""
_TEXT_EVENTS = (USER_PROMPT_SUBMIT, SESSION_START, SETUP, PRE_COMPACT)
"""The events for which plain output counts."""
_MAX_SHOWN = 200  # characters
_WATCH = "watchPaths"
_MAX_NAME = 60
_MAX_TEXT = 30_000  # characters of one text that goes to the model or the person


@dataclass(frozen=True)
class HookOutcome:
    """What the hooks of an event decided together. `decision` is `deny` (also for "block" and exit code 2), `ask`,
    `allow`, or "" for none. `context` is for the model, `notes` for the person, `errors` tell of hooks that failed.
    `output` takes the place of the result of a tool, `mcp_output` only of that of an MCP tool. `watch` None: the files
    of before. `unknown` are names of fields that ccb does not know."""

    decision: str = ""
    reason: str = ""
    context: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    stops: bool = False
    stop_reason: str = ""
    updated_input: Json | None = None
    updates: tuple[Json, ...] = ()
    interrupt: bool = False
    output: object = None
    mcp_output: object = None
    initial: str = ""
    title: str = ""
    retry: bool = False
    action: str = ""
    content: Json | None = None
    watch: tuple[str, ...] | None = None
    worktree: str = ""
    unknown: tuple[str, ...] = ()

    @property
    def blocked(self) -> bool:
        """Whether a hook forbids what the event announces."""
        return self.decision == "deny"

    @property
    def refuses(self) -> bool:
        """Whether a hook forbids what the event announces, or lets the agent not go on."""
        return self.blocked or self.stops

    @property
    def why(self) -> str:
        return self.reason or self.stop_reason or "no reason given"


NOTHING = HookOutcome()
"""The outcome of an event without hooks."""


def failed(event: str, why: str) -> HookOutcome:
    """Return the outcome of a hook that could not decide: a refusal where it gates."""
    shut = HookOutcome("deny", f"The hook failed: {why}")
    return replace(shut if event in GATES else NOTHING, errors=(why,))


def read_output(event: str, code: int, stdout: str, stderr: str, *, whole: bool = True) -> HookOutcome:
    """Return the answer of a command that has ended. `whole`: nothing of stdout was cut off."""
    if code == 2 and event in TELLS_ONLY:
        return HookOutcome(errors=(_text(stderr) or "exit code 2",))
    if code == 2:
        return HookOutcome("deny", _text(stderr) or "The hook gave no reason.")
    text, beside = plain(stdout), plain(stderr)
    read, strict = read_printed(text), event in GATES and event not in _TEXT_EVENTS
    if code != 0:
        refuses = could_not_decide(code, beside) or names_refusal(f"{text}\n{beside}")
        return _ended_badly(event, code, _text(stderr or stdout), refuses or (strict and read.has_broken_json))
    outcome = merged([read_answer(event, each) for each in read.answers])
    if outcome.errors or outcome.blocked:
        return outcome
    why = _unread(event, read, (text, beside), outcome, whole)
    return merged([outcome, failed(event, why)]) if why else _with_text(event, outcome, read.rest)


def _ended_badly(event: str, code: int, said: str, refuses: bool) -> HookOutcome:
    first = said.partition("\n")[0]
    why = f"exit code {code}: {first}" if first else f"exit code {code}"
    return failed(event, why) if refuses else HookOutcome(errors=(why,))


def _unread(event: str, read: PrintedAnswers, printed: tuple[str, str], outcome: HookOutcome, whole: bool) -> str:
    """Return why a hook decides something that cannot be read, "" if it does not. `printed` are stdout and stderr."""
    strict = event in GATES and event not in _TEXT_EVENTS
    if read.has_broken_json if strict else read.broken.startswith("{"):
        return f"its output is not JSON that ccb can read: {_short(read.broken)!r}"
    if event in GATES and (names_decision(read.rest) or _contradicts(printed[1], outcome)):
        return f"it names a decision, but not in one JSON object on stdout: {_short(printed[0] or printed[1])!r}"
    return "it has printed more than ccb reads" if strict and not whole else ""


def _with_text(event: str, outcome: HookOutcome, text: str) -> HookOutcome:
    """Return an outcome with what the command has printed beside its answers, where that counts."""
    if text and event == WORKTREE_CREATE and not outcome.worktree:
        return replace(outcome, worktree=text.splitlines()[-1].strip())
    if text and event in _TEXT_EVENTS:
        return replace(outcome, context=(_text(text), *outcome.context))
    return outcome


def _contradicts(beside: str, outcome: HookOutcome) -> bool:
    """Return whether stderr names a decision that stdout does not. A shell that traces shows the same one there."""
    if outcome.decision == "allow":
        return names_refusal(beside)
    return not (outcome.decision or outcome.stops) and names_decision(beside)


def _short(text: str) -> str:
    return text.strip().partition("\n")[0][:_MAX_SHOWN]


def read_answer(event: str, answer: Json) -> HookOutcome:
    """Return the outcome in the JSON object that a hook has answered with."""
    own = as_dict(answer.get("hookSpecificOutput"))
    nested = as_dict(own.get("decision"))  # of PermissionRequest
    words = [own.get("permissionDecision"), nested.get("behavior"), answer.get("decision")]
    why = _misread(event, answer, own, words)
    if why:
        return failed(event, why)
    known = _KNOWN | {_WATCH} if event in WATCHES else _KNOWN
    replaces, watched = own if event == POST_TOOL_USE else {}, own.get(_WATCH) if event in WATCHES else None
    return HookOutcome(
        decision=max((_WORDS[word] for word in words if word), key=_RANK.__getitem__, default=""),
        reason=_text(own.get("permissionDecisionReason") or nested.get("message") or answer.get("reason")),
        context=tuple(filter(None, (_text(own.get("additionalContext")),))),
        notes=tuple(filter(None, (_text(answer.get("systemMessage")),))),
        stops=answer.get("continue") is False,
        stop_reason=_text(answer.get("stopReason")),
        updated_input=_object((nested or own).get("updatedInput")),
        updates=_objects(nested.get("updatedPermissions")),
        interrupt=nested.get("interrupt") is True,
        output=replaces.get("updatedToolOutput"),
        mcp_output=replaces.get("updatedMCPToolOutput"),
        initial=_text(own.get("initialUserMessage")) if event == SESSION_START else "",
        title=_text(own.get("sessionTitle")),
        retry=own.get("retry") is True,
        action=str(own.get("action")) if own.get("action") in _ACTIONS else "",
        content=_object(own.get("content")),
        watch=tuple(map(str, watched)) if isinstance(watched, list) else None,
        worktree=_text(own.get("worktreePath")),
        unknown=tuple(sorted(str(each)[:_MAX_NAME] for each in own.keys() - known)),
    )


def _misread(event: str, answer: Json, own: Json, words: Sequence[object]) -> str:
    """Return why an answer decides nothing, "" if it can be read."""
    if own.get("hookEventName", event) != event:
        return f"its answer is for {own.get('hookEventName')!r}"
    for name, kind in (("hookSpecificOutput", dict), ("continue", bool)):
        value = answer.get(name)
        if value is not None and not isinstance(value, kind):
            return f"`{name}` in its answer is {str(value)[:_MAX_SHOWN]!r}"
    misplaced = own.get("decision") and not as_dict(own["decision"])
    if misplaced or answer.get("permissionDecision") or answer.get("behavior"):
        return "it names a decision in a place where that has no meaning"
    if event in GATES and not any(words) and names_refusal(json.dumps([_odd(answer, ANSWERS), _odd(own, _KNOWN)])):
        return "it says no in a field that has no meaning"
    wrong = [word for word in words if word not in (None, "", *_WORDS)]
    return f"it decided {str(wrong[0])[:_MAX_SHOWN]!r}, which is no decision" if wrong else ""


def _odd(given: Json, known: Collection[str]) -> Json:
    return {name: value for name, value in given.items() if name not in known}


_OF_DECIDING = ("reason", "updates", "interrupt")
"""The fields that count only in the answers of the hooks that made the decision."""
_JOINED = ("reason", "stop_reason", "initial")
_LAST = ("updated_input", "output", "mcp_output")


def merged(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Return the outcome of all hooks of an event: the strictest decision holds, with the reasons of those who made
    it. Of several changed inputs or outputs the last one holds, of other single values the first."""
    if len(outcomes) == 1:
        return outcomes[0]
    strictest = max((each.decision for each in outcomes), key=_RANK.__getitem__, default="")
    found: Json = {}
    for name in (each.name for each in fields(HookOutcome)):
        counting = [each for each in outcomes if name not in _OF_DECIDING or each.decision == strictest]
        told = [value for each in counting if (value := getattr(each, name)) != getattr(NOTHING, name)]
        if not told:
            continue
        if isinstance(told[0], tuple):
            found[name] = tuple(chain.from_iterable(told))
        elif name in _JOINED:
            found[name] = "\n".join(told)
        else:
            found[name] = told[-1 if name in _LAST else 0]
    return HookOutcome(**{**found, "decision": strictest})


def _object(value: object) -> Json | None:
    return value if isinstance(value, dict) else None


def _objects(value: object) -> tuple[Json, ...]:
    return tuple(each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    text = value.strip()
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… (cut)"
