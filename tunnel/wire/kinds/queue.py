"""The records of the queue of prompts: what waits, what was taken back or moved, what a turn has
taken."""

from __future__ import annotations

from typing import ClassVar

from ..dataclass import dataclass
from ..frames import Json

BEFORE = "before"
"""The field of a user message with the uuids of the waiting prompts that it goes before: in front of the first of them
that still waits, last if none does."""

PRIORITY, LATER = "priority", "later"
"""The field of a user message that says when its prompt is taken, and its value for a prompt that waits until the
running turn is over. Any other prompt goes to the agent with the next tool results."""

TASK_PREFIX = "task:"
"""The start of the `id` of a `queued` record that tells the end of a task; the id of the task follows."""


@dataclass(frozen=True)
class QueuedRecord:
    """`queued`: the worker itself puts `content` into the queue of prompts, for the agent that the record names. A
    prompt takes it by its `id`, as it takes an input. `origin` is public, such as {"kind": "task-notification"}.
    `wakes`: it starts a turn when the agent is idle; otherwise it waits for the next one."""

    kind: ClassVar[str] = "queued"
    id: str
    content: list[Json]
    origin: Json
    wakes: bool = False


@dataclass(frozen=True)
class UnqueuedRecord:
    """`unqueued`: the input `id` was taken back before a turn took it."""

    kind: ClassVar[str] = "unqueued"
    id: str


@dataclass(frozen=True)
class MovedRecord:
    """`moved`: the waiting prompt of the input `id` now stands before that of the input `before`, or last without
    one. `steers`: it does not wait for the end of the running turn any more."""

    kind: ClassVar[str] = "moved"
    id: str
    before: str = ""
    steers: bool = False


@dataclass(frozen=True)
class TakenRecord:
    """`taken`: a turn has taken the prompt of the input `input_id`, so no other turn takes it. A `prompt` record
    follows if it enters the conversation, which commands and prompts that a hook refuses do not."""

    kind: ClassVar[str] = "taken"
    input_id: str
