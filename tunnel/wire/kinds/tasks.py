"""The requests of clients about tasks, and about prompts that wait for a turn."""

from __future__ import annotations

from collections.abc import Sequence

from ..dataclass import dataclass
from ..frames import Json
from ..requests import RequestKind, client_kind

BACKGROUND_TASKS: RequestKind[None, Json] = client_kind("background_tasks", lambda fields: None)
"""Let the running foreground commands go on in the background."""

STOP_TASK: RequestKind[str, Json] = client_kind(
    "stop_task", lambda fields: str(fields.get("task_id")), lambda task_id: {"task_id": task_id}
)

READ_TASK: RequestKind[str, Json] = client_kind(
    "read_task", lambda fields: str(fields.get("task_id")), lambda task_id: {"task_id": task_id}
)
"""Return the end of what a task has put out."""

CANCEL_ASYNC_MESSAGE: RequestKind[str, Json] = client_kind(
    "cancel_async_message", lambda fields: str(fields.get("message_uuid")), lambda uuid: {"message_uuid": uuid}
)
"""Take back a prompt that no turn has taken, by the uuid of its message."""


@dataclass(frozen=True)
class QueueMove:
    """A waiting prompt goes in front of the first of `before` that still waits, and last if none does. All are uuids
    of messages, or ids of inputs. `steers`: it no longer waits for the end of the running turn."""

    uuid: str
    before: Sequence[str] = ()
    steers: bool = False


def _queue_move(fields: Json) -> QueueMove:
    before = fields.get("before")
    return QueueMove(
        str(fields.get("message_uuid")),
        [str(each) for each in before] if isinstance(before, list) else [],
        fields.get("steer") is True,
    )


MOVE_ASYNC_MESSAGE: RequestKind[QueueMove, Json] = client_kind(
    "move_async_message",
    _queue_move,
    lambda move: {"message_uuid": move.uuid, "before": list(move.before), **({"steer": True} if move.steers else {})},
)
"""Give a prompt that no turn has taken another place among those that wait. The answer says whether it was `moved`."""
