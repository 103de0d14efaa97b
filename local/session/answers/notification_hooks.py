"""Runs the Notification hooks of the person's own settings on this machine, such as a desktop notification.

Only commands of the settings file on this machine run here, and nothing that the host says reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

EVENT = "Notification"
TEXTS = {
    "permission_prompt": "The agent asks you something",
    "idle_prompt": "The agent is done and waits for you",
}
"""The notification types, and what each tells."""

_TIMEOUT_S = 60.0
_MAX_AT_ONCE = 8


@dataclass(frozen=True)
class _Hook:
    matcher: str
    command: str
    timeout_s: float


class NotificationHooks:
    """`hooks` is the `hooks` object of the settings, `place` says for the person which session it is. `close` it."""

    def __init__(self, hooks: Mapping[str, Any], place: str) -> None:
        self._hooks = list(_read(hooks.get(EVENT)))
        self._place = place
        self._running: set[asyncio.Task[None]] = set()

    def notify(self, kind: str) -> None:
        """Run the hooks for one of `TEXTS`. Returns at once."""
        event = {"hook_event_name": EVENT, "notification_type": kind, "message": TEXTS[kind], "title": self._place}
        for hook in self._hooks:
            if _matches(hook.matcher, kind) and len(self._running) < _MAX_AT_ONCE:
                task = asyncio.create_task(_run(hook, json.dumps(event).encode()), name="notification hook")
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Stop what still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _run(hook: _Hook, event: bytes) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        log.warning("a notification hook cannot be started: %s", error)
        return
    try:
        async with asyncio.timeout(hook.timeout_s):
            await process.communicate(event)
    except TimeoutError:
        log.warning("a notification hook was stopped after %g s", hook.timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _read(entries: object) -> list[_Hook]:
    found = []
    for entry in entries if isinstance(entries, list) else []:
        hooks = entry.get("hooks") if isinstance(entry, dict) else None
        for hook in hooks if isinstance(hooks, list) else []:
            command, timeout = hook.get("command"), hook.get("timeout", _TIMEOUT_S)
            if hook.get("type") == "command" and isinstance(command, str) and isinstance(timeout, int | float):
                found.append(_Hook(str(entry.get("matcher") or ""), command, min(float(timeout), 600.0)))
    return found


def _matches(matcher: str, kind: str) -> bool:
    if matcher in ("", "*"):
        return True
    try:
        return re.search(matcher, kind) is not None
    except re.error:
        log.warning("the matcher %r of a notification hook is no regular expression", matcher)
        return False
