"""The requests of clients about tasks, and about prompts that wait for a turn."""

from __future__ import annotations

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
