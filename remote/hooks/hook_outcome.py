"""The outcome of hooks: the output of one hook read, and the answers of all hooks of an event merged. A hook of an
event in `GATES` must not fail open: if it cannot decide, or seems to decide something that cannot be read, what it is
asked about is refused, and the reason says so."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import field, fields, replace
from itertools import chain
from typing import Any, Callable

from ccb.tunnel.wire import hook_output
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.hook_output import ANSWERS, could_not_decide, names_decision, names_refusal, plain, read_printed
from ccb.tunnel.wire.messages import as_dict

from . import hook_table as events
from .hook_table import GATES, Json

_RANK = {"": 0, "allow": 1, "ask": 2, "deny": 3}
_WORDS = {"approve": "allow", "allow": "allow", "block": "deny", "deny": "deny", "ask": "ask"}
_TEXT_EVENTS = (events.USER_PROMPT_SUBMIT, events.SESSION_START, events.SETUP, events.PRE_COMPACT)
"""The events for which plain output counts."""
_STRICT = tuple(event for event in GATES if event not in _TEXT_EVENTS)
_MAX_SHOWN = 200  # characters
_MAX_NAME = 60
_WATCH = "watchPaths"
_MAX_TEXT = 30_000  # characters of one text that goes to the model or the person


def _object(value: object) -> Json | None:
    return value if isinstance(value, dict) else None


def _objects(value: object) -> tuple[Json, ...]:
    return tuple(each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    text = value.strip()
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… (cut)"


def _text_if_any(value: object) -> str | None:
    return _text(value) or None


_OWN: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    **dict.fromkeys(("updatedToolOutput", "updatedMCPToolOutput"), (lambda value: value, (events.POST_TOOL_USE,))),
    "initialUserMessage": (_text_if_any, (events.SESSION_START,)),
    "sessionTitle": (_text_if_any, ()),
    "worktreePath": (_text_if_any, ()),
    "retry": (lambda value: value is True or None, ()),
    "action": (lambda value: value if value in ("accept", "decline", "cancel") else None, ()),
    "content": (_object, ()),
    _WATCH: (lambda value: tuple(map(str, value)) if isinstance(value, list) else None, events.WATCHES),
}
"""What reads a field of `HookOutcome.own`, None for nothing, and the events for which it counts; () is any."""
_COMMON = "hookEventName additionalContext permissionDecision permissionDecisionReason updatedInput decision"
_KNOWN = frozenset((*_COMMON.split(), *_OWN)) - {_WATCH}
"""The fields of `hookSpecificOutput`."""


@dataclass(frozen=True)
class HookOutcome:
    """What the hooks of an event decided together. `decision` is `deny` (also for "block" and exit code 2), `ask`,
    `allow`, or "" for none. `context` is for the model, `notes` for the person, `errors` tell of hooks that failed.
    `own` is what hooks of few events can answer, by its name there; `unknown` are other names."""

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
    own: Json = field(default_factory=dict)
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


NOTHING = HookOutcome()  # of an event without hooks


def failed(event: str, why: str) -> HookOutcome:
    """Return the outcome of a hook that could not decide: a refusal where it gates."""
    shut = HookOutcome("deny", f"The hook failed: {why}")
    return replace(shut if event in GATES else NOTHING, errors=(why,))


def read_output(event: str, code: int, stdout: str, stderr: str, *, whole: bool = True) -> HookOutcome:
    """Return the answer of a command that has ended. `whole`: nothing of stdout was cut off."""
    if code == 2 and event in events.TELLS_ONLY:
        return HookOutcome(errors=(_text(stderr) or "exit code 2",))
    if code == 2:
        return HookOutcome("deny", _text(stderr) or "The hook gave no reason.")
    text, beside = plain(stdout), plain(stderr)
    read = read_printed(text)
    if code != 0:
        denies = could_not_decide(code, beside) or names_refusal(f"{text}\n{beside}")
        return _ended_badly(event, code, _text(stderr or stdout), denies or (event in _STRICT and read.has_broken_json))
    outcome = merged([read_answer(event, each) for each in read.answers])
    if outcome.errors or outcome.blocked:
        return outcome
    why = _unread(event, read, (text, beside), outcome, whole)
    return merged([outcome, failed(event, why)]) if why else _with_text(event, outcome, read.rest)


def _ended_badly(event: str, code: int, said: str, refuses: bool) -> HookOutcome:
    first = said.partition("\n")[0]
    why = f"exit code {code}: {first}" if first else f"exit code {code}"
    return failed(event, why) if refuses else HookOutcome(errors=(why,))


def _unread(
    event: str, read: hook_output.PrintedAnswers, printed: tuple[str, str], outcome: HookOutcome, whole: bool
) -> str:
    """Return why a hook decides something that cannot be read, "" if it does not. `printed` are stdout and stderr."""
    if read.has_broken_json if event in _STRICT else read.broken.startswith("{"):
        return f"its output is not JSON that ccb can read: {_short(read.broken)!r}"
    if event in GATES and (names_decision(read.rest) or _contradicts(printed[1], outcome)):
        return f"it names a decision, but not in one JSON object on stdout: {_short(printed[0] or printed[1])!r}"
    return "it has printed more than ccb reads" if event in _STRICT and not whole else ""


def _with_text(event: str, outcome: HookOutcome, text: str) -> HookOutcome:
    """Return an outcome with what the command has printed beside its answers, where that counts."""
    if text and event == events.WORKTREE_CREATE and "worktreePath" not in outcome.own:
        return replace(outcome, own={**outcome.own, "worktreePath": text.splitlines()[-1].strip()})
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
    known = _KNOWN | {_WATCH} if event in events.WATCHES else _KNOWN
    told = {name: read(own.get(name)) for name, (read, when) in _OWN.items() if event in (when or (event,))}
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
        own={name: value for name, value in told.items() if value is not None},
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
_JOINED = ("reason", "stop_reason", "initialUserMessage")
_LAST = ("updated_input", "updatedToolOutput", "updatedMCPToolOutput")


def merged(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Return the outcome of all hooks of an event: the strictest decision holds, with the reasons of those who made
    it. Of several changed inputs or outputs the last one holds, of other single values the first."""
    if len(outcomes) == 1:
        return outcomes[0]
    strictest = max((each.decision for each in outcomes), key=_RANK.__getitem__, default="")
    found: Json = {"decision": strictest, "own": {}}
    for name in (*(each.name for each in fields(HookOutcome) if each.name not in found), *_OWN):
        counting = [each for each in outcomes if name not in _OF_DECIDING or each.decision == strictest]
        given = [each.own.get(name) if name in _OWN else getattr(each, name) for each in counting]
        told = [value for value in given if value != getattr(NOTHING, name, None)]
        if told:
            (found["own"] if name in _OWN else found)[name] = _one(name, told)
    return HookOutcome(**found)


def _one(name: str, told: Sequence[Any]) -> object:
    if isinstance(told[0], tuple):
        return tuple(chain.from_iterable(told))
    return "\n".join(told) if name in _JOINED else told[-1 if name in _LAST else 0]
