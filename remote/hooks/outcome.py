"""What hooks answer: the output of one hook, read, and the answers of all hooks of an event, merged.

A hook that ends with exit code 0 may print a JSON object; other output of UserPromptSubmit and SessionStart hooks is
context for the model. Exit code 2 blocks, with stderr as the reason. Any other code is an error that is shown to the
person and decides nothing. The same object is the answer of a callback."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass

from .table import SESSION_START, USER_PROMPT_SUBMIT

Json = dict[str, Any]

_RANK = {"": 0, "allow": 1, "ask": 2, "deny": 3}
_WORDS = {"approve": "allow", "allow": "allow", "block": "deny", "deny": "deny", "ask": "ask"}
_MAX_TEXT = 30_000  # characters of one text that goes to the model or the person


@dataclass(frozen=True)
class HookOutcome:
    """What the hooks of an event decided together. `decision` is `deny` (also for "block" and exit code 2), `ask`,
    `allow`, or "" for none; `reason` belongs to it. `context` are texts for the model, `notes` texts for the person,
    `errors` describe hooks that failed. `stops`: the agent must not go on after this event. The last three fields are
    for PreToolUse and PermissionRequest."""

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

    @property
    def blocked(self) -> bool:
        """Whether a hook forbids what the event announces."""
        return self.decision == "deny"


NOTHING = HookOutcome()
"""The outcome of an event without hooks."""


def read_output(event: str, code: int, stdout: str, stderr: str) -> HookOutcome:
    """Return the answer of a command that has ended."""
    if code == 2:
        return HookOutcome("deny", _text(stderr) or "The hook gave no reason.")
    if code != 0:
        first = _text(stderr or stdout).partition("\n")[0]
        return HookOutcome(errors=(f"exit code {code}" + (f": {first}" if first else ""),))
    text = stdout.strip()
    if text.startswith("{"):
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            return HookOutcome(errors=(f"its output is not JSON: {error}",))
        return read_answer(event, answer)
    if text and event in (USER_PROMPT_SUBMIT, SESSION_START):
        return HookOutcome(context=(_text(text),))
    return NOTHING


def read_answer(event: str, answer: Json) -> HookOutcome:
    """Return the outcome in the JSON object that a hook has answered with."""
    own = answer.get("hookSpecificOutput")
    own = own if isinstance(own, dict) else {}
    if own.get("hookEventName", event) != event:
        return HookOutcome(errors=(f"its answer is for {own.get('hookEventName')!r}",))
    nested = own.get("decision")
    nested = nested if isinstance(nested, dict) else {}  # of PermissionRequest
    word = own.get("permissionDecision") or nested.get("behavior") or answer.get("decision") or ""
    if word and word not in _WORDS:
        return HookOutcome(errors=(f"it decided {word!r}, which is no decision",))
    reason = own.get("permissionDecisionReason") or nested.get("message") or answer.get("reason")
    changed = nested.get("updatedInput") if nested else own.get("updatedInput")
    granted = nested.get("updatedPermissions")
    context, note = _text(own.get("additionalContext")), _text(answer.get("systemMessage"))
    return HookOutcome(
        decision=_WORDS.get(str(word), ""),
        reason=_text(reason),
        context=(context,) if context else (),
        notes=(note,) if note else (),
        stops=answer.get("continue") is False,
        stop_reason=_text(answer.get("stopReason")),
        updated_input=changed if isinstance(changed, dict) else None,
        updates=tuple(each for each in granted if isinstance(each, dict)) if isinstance(granted, list) else (),
        interrupt=nested.get("interrupt") is True,
    )


def merged(outcomes: Sequence[HookOutcome]) -> HookOutcome:
    """Return the outcome of all hooks of an event: the strictest decision holds, with the reasons of those who made
    it. Of several changed inputs the last one holds."""
    if len(outcomes) == 1:
        return outcomes[0]
    strictest = max((each.decision for each in outcomes), key=_RANK.__getitem__, default="")
    deciding = [each for each in outcomes if each.decision == strictest]
    changed = [each.updated_input for each in outcomes if each.updated_input is not None]
    return HookOutcome(
        decision=strictest,
        reason="\n".join(each.reason for each in deciding if each.reason),
        context=tuple(text for each in outcomes for text in each.context),
        notes=tuple(text for each in outcomes for text in each.notes),
        errors=tuple(text for each in outcomes for text in each.errors),
        stops=any(each.stops for each in outcomes),
        stop_reason="\n".join(each.stop_reason for each in outcomes if each.stops and each.stop_reason),
        updated_input=changed[-1] if changed else None,
        updates=tuple(update for each in deciding for update in each.updates),
        interrupt=any(each.interrupt for each in deciding),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        return ""
    text = value.strip()
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… (cut)"
