"""The Elicitation hooks of the person's own settings, for the forms of MCP servers of this machine.

They run here: the host learns neither the form nor the answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ccb.tunnel.wire.hook_output import names_refusal, plain, read_printed
from ccb.tunnel.wire.kinds.mcp import Elicitation

from ..session.answers.own_commands import OwnCommand, own_commands

Json = dict[str, Any]

log = logging.getLogger(__name__)

_BEFORE, _AFTER = "Elicitation", "ElicitationResult"
_ACTIONS = ("accept", "decline", "cancel")
_REFUSED = 2  # the exit code of a hook that says no


class FormHooks:
    """`hooks` is the `hooks` object of the settings."""

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
    """Run the hooks of an event. Return the first answer that one gives."""
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
    own = read.answers[-1].get("hookSpecificOutput") if read.answers else None
    own = own if isinstance(own, dict) else {}
    if any(each.get("decision") == "block" or each.get("continue") is False for each in read.answers):
        return {"action": "decline"}
    if own.get("action") not in _ACTIONS:
        return None
    content = own.get("content")
    accepted = {"content": content if isinstance(content, dict) else {}} if own["action"] == "accept" else {}
    return {"action": own["action"], **accepted}
