"""The person's hooks on this machine: only commands of its settings, and nothing that the host says reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.hook_output import names_refusal, plain, read_printed
from ccb.tunnel.wire.mcp_messages import Elicitation
from ccb.tunnel.wire.messages import as_blocks, as_dict

log = logging.getLogger(__name__)

_BEFORE, _AFTER = "Elicitation", "ElicitationResult"
_ACTIONS = ("accept", "decline", "cancel")
_REFUSED = 2  # the exit code of a hook that says no


class FormHooks:
    def __init__(self, hooks: Mapping[str, Any]) -> None:
        self._before, self._after = own_commands(hooks, _BEFORE), own_commands(hooks, _AFTER)

    async def answer(self, form: Elicitation, ask: Callable[[Elicitation], Awaitable[Json]]) -> Json:
        """Return the answer of a hook, else that of `ask`, which a hook may change."""
        facts: Json = {"mcp_server_name": form.mcp_server_name, "mode": form.mode}
        more = {"message": form.message, "url": form.url, "requested_schema": form.requested_schema}
        asked = {**facts, **{name: value for name, value in more.items() if value is not None}}
        decided = await _decided(self._before, _BEFORE, asked, form.mcp_server_name)
        if decided is not None:
            return decided
        answer = await ask(form)
        return await _decided(self._after, _AFTER, {**facts, **answer}, form.mcp_server_name) or answer


async def _decided(hooks: list[OwnCommand], event: str, payload: Json, server: str) -> Json | None:
    given = json.dumps({"hook_event_name": event, **payload}).encode()
    due = [hook for hook in hooks if hook.matches(server)]
    for code, printed in await asyncio.gather(*(hook.run(given) for hook in due)):
        found = _read(event, code, printed)
        if found is not None:
            return found
    return None


def _read(event: str, code: int, printed: bytes) -> Json | None:
    if code == _REFUSED:
        return {"action": "decline"} if event == _BEFORE else None
    read = read_printed(plain(printed.decode("utf-8", "replace")))
    if code != 0 or read.has_broken_json or names_refusal(read.rest):
        log.warning("a hook of %s has failed with exit code %d: %s", event, code, read.rest[:200])
        return {"action": "decline"} if event == _BEFORE and names_refusal(read.rest) else None
    if any(each.get("decision") == "block" or each.get("continue") is False for each in read.answers):
        return {"action": "decline"}
    given = as_dict(read.answers[-1].get("hookSpecificOutput")) if read.answers else {}
    if given.get("action") not in _ACTIONS:
        return None
    content = {"content": as_dict(given.get("content"))} if given["action"] == "accept" else {}
    return {"action": given["action"], **content}


EVENT = "Notification"
TEXTS = {"permission_prompt": "The agent asks you something", "idle_prompt": "The agent is done and waits for you"}
"""The notification types, and what each tells."""

_MAX_AT_ONCE = 8


class NotificationHooks:
    """`hooks` is the `hooks` object of the settings, `place` says for the person which session it is. `close` it."""

    def __init__(self, hooks: Mapping[str, Any], place: str) -> None:
        self._hooks = own_commands(hooks, EVENT)
        self._place = place
        self._running: set[asyncio.Task[tuple[int, bytes]]] = set()

    def notify(self, kind: str) -> None:
        event = {"hook_event_name": EVENT, "notification_type": kind, "message": TEXTS[kind], "title": self._place}
        for hook in self._hooks:
            if hook.matches(kind) and len(self._running) < _MAX_AT_ONCE:
                task = asyncio.create_task(hook.run(json.dumps(event).encode()), name="notification hook")
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        await cancelled(*self._running)


_TIMEOUT_S = 60.0
_MAX_TIMEOUT_S = 600.0
_MAX_OUTPUT = 1 << 16  # bytes


@dataclass(frozen=True)
class OwnCommand:
    matcher: str
    command: str
    timeout_s: float

    def matches(self, subject: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        try:
            return re.search(self.matcher, subject) is not None
        except re.error:
            log.warning("the matcher %r of a hook is no regular expression, so it runs for all", self.matcher)
            return True

    async def run(self, event: bytes) -> tuple[int, bytes]:
        """Run the command with `event` on stdin. Return its exit code, negative if it was ended, and its output."""
        with tempfile.TemporaryFile() as given:
            given.write(event)
            given.seek(0)
            try:
                process = await asyncio.create_subprocess_shell(
                    self.command, stdin=given, stdout=PIPE, stderr=DEVNULL, start_new_session=True
                )
            except OSError as error:
                log.warning("a hook cannot be started: %s", error)
                return -1, b""
        printed = b""
        try:
            async with asyncio.timeout(self.timeout_s):
                assert process.stdout is not None
                while len(printed) < _MAX_OUTPUT and (more := await process.stdout.read(_MAX_OUTPUT)):
                    printed += more
                if len(printed) < _MAX_OUTPUT:
                    return await process.wait(), printed
        except TimeoutError:
            log.warning("a hook was stopped after %g s", self.timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return -1, b""


def own_commands(hooks: Mapping[str, Any], event: str) -> list[OwnCommand]:
    """Return the commands for an event in the `hooks` of the settings. What is malformed is left out."""
    found = []
    for entry in as_blocks(hooks.get(event)):
        for hook in as_blocks(entry.get("hooks")):
            command, timeout = hook.get("command"), hook.get("timeout", _TIMEOUT_S)
            if hook.get("type", "command") != "command" or not isinstance(timeout, int | float):
                continue
            if isinstance(command, str):
                limit = min(float(timeout), _MAX_TIMEOUT_S)
                found.append(OwnCommand(str(entry.get("matcher") or ""), command, limit))
    return found
