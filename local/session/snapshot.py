"""What a client has to know of events that it does not load: the body of the wire's `Snapshot`, typed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class SnapshotPrompt:
    """A prompt that waits for the agent or, if `taken`, whose turn runs. `text` may be only its beginning. `ids` are
    the id of the input and, if it has another one, the uuid of the user message."""

    ids: tuple[str, ...]
    text: str
    taken: bool


@dataclass(frozen=True)
class SkippedState:
    """The state of a session after the events that are not loaded. `model` and `permission_mode` are empty if the
    snapshot does not name them; `result` is the last result message; `questions` are the open `control_request`
    messages."""

    model: str
    permission_mode: str
    result: Json | None
    todos: tuple[Json, ...]
    questions: tuple[Json, ...]
    prompts: tuple[SnapshotPrompt, ...] | None


def parse_snapshot(body: Json) -> SkippedState:
    """Read the body of a snapshot. Broken parts are left out; `prompts` is None if it has no list of them."""
    result, prompts = body.get("result"), body.get("prompts")
    return SkippedState(
        model=str(body.get("model") or ""),
        permission_mode=str(body.get("permission_mode") or ""),
        result=result if isinstance(result, dict) else None,
        todos=tuple(_objects(body.get("todos"))),
        questions=tuple(_objects(body.get("asks"))),
        prompts=tuple(_prompts(prompts)) if isinstance(prompts, list) else None,
    )


def _objects(values: object) -> Iterator[Json]:
    return (each for each in (values if isinstance(values, list) else ()) if isinstance(each, dict))


def _prompts(values: object) -> Iterator[SnapshotPrompt]:
    for each in _objects(values):
        text = str(each.get("text") or "")
        if text.strip():
            yield SnapshotPrompt(input_ids(each.get("input"), each.get("uuid")), text, each.get("taken") is True)


def input_ids(input_id: object, uuid: object) -> tuple[str, ...]:
    """Return the ids under which an input may be known: the one in the journal, then the uuid of its message."""
    return tuple(dict.fromkeys((str(input_id), str(uuid or ""))))
