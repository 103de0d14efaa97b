"""What MCP servers of this host want to know: hooks may answer a form, else the person does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire.kinds.mcp import ELICITATION as ASK_PERSON
from ccb.tunnel.wire.kinds.mcp import Elicitation
from ccb.tunnel.wire.requests import Request

from ..hooks.table import ELICITATION, ELICITATION_RESULT
from ..ports import Broker, NotKept

if TYPE_CHECKING:
    from ..hooks.runner import HookRunner

Json = dict[str, Any]

_MAX_MESSAGE = 10_000  # characters


class ServerForms:
    """Answers the forms of servers."""

    def __init__(self, broker: Broker, hooks: HookRunner | None) -> None:
        self._broker = broker
        self._hooks = hooks

    async def answer(self, server: str, params: Json) -> Json:
        """Return the answer to a form. Where nobody can be asked, decline it."""
        schema, url = params.get("requestedSchema"), params.get("url")
        form = Elicitation(
            server,
            str(params.get("message") or "")[:_MAX_MESSAGE],
            "url" if params.get("mode") == "url" else "form",
            schema if isinstance(schema, dict) else None,
            url if isinstance(url, str) else None,
        )
        facts: Json = {"mcp_server_name": server, "mode": form.mode}
        more = {"message": form.message, "url": form.url, "requested_schema": form.requested_schema}
        asked = {**facts, **{name: value for name, value in more.items() if value is not None}}
        try:
            decided = await self._by_hooks(ELICITATION, asked, server)
            if decided is not None:
                return decided
            answer: Json = {"action": "decline"}
            if self._broker.can_ask(ASK_PERSON):
                about = f"what the MCP server {server} wants to know"
                answer = await self._broker.request(Request(ASK_PERSON, form, about=about))
            return await self._by_hooks(ELICITATION_RESULT, {**facts, **answer}, server) or answer
        except NotKept:
            return {"action": "cancel"}

    async def _by_hooks(self, event: str, payload: Json, server: str) -> Json | None:
        """Return what hooks answer a server, None if they leave it to others."""
        if self._hooks is None:
            return None
        outcome = await self._hooks.run(event, payload, server)
        if outcome.blocked or outcome.stops:
            return {"action": "decline"}
        if not outcome.action:
            return None
        given = {"content": outcome.content or {}} if outcome.action == "accept" else {}
        return {"action": outcome.action, **given}
