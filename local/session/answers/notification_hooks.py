"""Runs the Notification hooks of the person's own settings on this machine, such as a desktop notification.

Only commands of the settings file on this machine run here, and nothing that the host says reaches them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from .own_commands import OwnCommand, own_commands

EVENT = "Notification"
TEXTS = {
    "permission_prompt": "The agent asks you something",
    "idle_prompt": "The agent is done and waits for you",
}
"""The notification types, and what each tells."""

_MAX_AT_ONCE = 8


class NotificationHooks:
    """`hooks` is the `hooks` object of the settings, `place` says for the person which session it is. `close` it."""

    def __init__(self, hooks: Mapping[str, Any], place: str) -> None:
        self._hooks = own_commands(hooks, EVENT)
        self._place = place
        self._running: set[asyncio.Task[None]] = set()

    def notify(self, kind: str) -> None:
        """Run the hooks for one of `TEXTS`. Returns at once."""
        event = {"hook_event_name": EVENT, "notification_type": kind, "message": TEXTS[kind], "title": self._place}
        for hook in self._hooks:
            if hook.matches(kind) and len(self._running) < _MAX_AT_ONCE:
                task = asyncio.create_task(_run(hook, json.dumps(event).encode()), name="notification hook")
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop what still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _run(hook: OwnCommand, event: bytes) -> None:
    await hook.run(event)
