"""The requests of a client that this machine answers itself, and what the client says that is for this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import ControlRequestLine, ControlResponseLine, PublicLine, ResultLine, UserLine
from ccb.tunnel.wire.options import CLAUDE_CODE_VERSION

from .agent_lines import AgentLines
from .changed_lines import ChangedLines

if TYPE_CHECKING:
    from ...session.client import Json

END = "end_session"
"""The request after which no more input comes."""


class OwnAnswers:
    """`confirmed` are fields that the answer to `initialize` has besides those of the worker: what this machine has
    done with the request. `forwards_text`: the client wants to see what sub-agents say."""

    def __init__(self) -> None:
        self.confirmed: Json = {}
        self.forwards_text = False
        self._initialize: set[str] = set()
        self._models: list[Json] = [{"value": "default", "displayName": "Default", "description": ""}]
        self._started = time.monotonic()
        self._api_ms = 0
        self._cost = 0.0
        self._usage: dict[str, Json] = {}
        self._lines = ChangedLines()
        self._agents = AgentLines()

    def payload(self, line: ControlRequestLine) -> Json | None:
        """Return the answer to a request, None if the worker is to answer it."""
        if line.subtype == "initialize":
            self._initialize.add(line.request_id)
            self.forwards_text = line.request.get("forwardSubagentText") is True
        elif line.subtype == END:
            return {}
        elif line.subtype == "get_binary_version":
            return {"version": CLAUDE_CODE_VERSION, "buildTime": ""}
        elif line.subtype == "list_models":
            return {"models": self._models}
        elif line.subtype == "get_session_cost":
            return {"text": f"Total cost: ${self._cost:.4f}"}
        elif line.subtype == "get_usage":
            return self._used()
        return None

    def heard(self, public: PublicLine, body: Json) -> Json:
        """Take note of a message of the session. Return it as the client is to see it."""
        if isinstance(public, ResultLine):
            self._cost, self._usage = public.total_cost_usd, public.model_usage
            duration = body.get("duration_api_ms")
            self._api_ms += duration if isinstance(duration, int) else 0
        elif isinstance(public, UserLine):
            self._lines.note(body)
        elif isinstance(public, ControlResponseLine) and public.request_id in self._initialize and public.payload:
            models = public.payload.get("models")
            if isinstance(models, list):
                self._models = models
            if self.confirmed:
                answer = {**body["response"], "response": {**public.payload, **self.confirmed}}
                return {**body, "response": answer}
        return self._agents.named(public, body)

    def _used(self) -> Json:
        session = {
            "total_cost_usd": self._cost,
            "total_api_duration_ms": self._api_ms,
            "total_duration_ms": round((time.monotonic() - self._started) * 1000),
            "total_lines_added": self._lines.added,
            "total_lines_removed": self._lines.removed,
            "model_usage": self._usage,
        }
        return {"session": session, "subscription_type": None, "rate_limits_available": False, "rate_limits": None}
