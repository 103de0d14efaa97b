"""What clients may ask of the worker: the handlers of their control requests, registered with the broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from ccb.tunnel.wire.records import MessageRecord
from ccb.tunnel.wire.requests import (
    INTERRUPT,
    SET_MODEL,
    SET_PERMISSION_MODE,
    AnsweredBy,
    RequestKind,
    RequestRefused,
    client_kind,
)

from ..agent.messages import status
from ..model.models import facts
from .broker import Handled, RequestBroker

if TYPE_CHECKING:
    from .session import Session

Json = dict[str, Any]


INITIALIZE: RequestKind[None, Json] = client_kind("initialize", lambda fields: None)
MCP_STATUS: RequestKind[None, Json] = client_kind("mcp_status", lambda fields: None)
GET_CONTEXT_USAGE: RequestKind[None, Json] = client_kind("get_context_usage", lambda fields: None)


class Controls:
    """Handlers for the requests of clients. Source: section 6.1 of the stream-json protocol as observed."""

    def __init__(self, session: Session, broker: RequestBroker) -> None:
        self._session = session
        self._broker = broker
        self.set_mode: Callable[[str], None] = lambda mode: None
        self.mode: Callable[[], str] = lambda: "default"
        broker.register(INITIALIZE, self._initialize)
        broker.register(INTERRUPT, self._interrupt)
        broker.register(SET_PERMISSION_MODE, self._set_permission_mode)
        broker.register(SET_MODEL, self._set_model)
        broker.register(MCP_STATUS, lambda _: Handled({"mcpServers": []}))
        broker.register(GET_CONTEXT_USAGE, self._context_usage)

    def _initialize(self, _: None) -> Handled:
        session = self._session
        agent = session.agent
        model = agent.model if agent is not None else ""
        reply: Json = {
            "commands": [],
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [
                {"value": "default", "resolvedModel": model, "displayName": "Default", "description": model},
                {"value": "opus", "displayName": "Opus", "description": "Largest"},
                {"value": "haiku", "displayName": "Haiku", "description": "Fastest"},
            ],
            "account": {"apiKeySource": session.options.api_key_source},
            "pid": os.getpid(),
            "current_permission_mode": self.mode(),
            "session_state": session.state,
            "capabilities": ["interrupt_receipt_v1"],
        }
        return Handled(reply)

    def _context_usage(self, _: None) -> Handled:
        agent = self._session.agent
        model = agent.model if agent is not None else ""
        used, window = self._session.usage.context_tokens, facts(model).context_window
        usage: Json = {
            "categories": [
                {"name": "Messages", "tokens": used, "color": "blue"},
                {"name": "Free space", "tokens": max(0, window - used), "color": "gray"},
            ],
            "totalTokens": used,
            "maxTokens": window,
            "rawMaxTokens": window,
            "percentage": round(100 * used / window),
            "gridRows": [],
            "model": model,
            "memoryFiles": [],
            "mcpTools": [],
            "agents": [],
            "isAutoCompactEnabled": False,
        }
        return Handled(usage)

    def _interrupt(self, _: None) -> Handled:
        """Withdraw the questions to the person at once; end the turn after the answer, even if that cannot be journalled."""
        self._broker.withdraw(AnsweredBy.PERSON)
        return Handled({"still_queued": self._session.queued_uuids}, self._session.interrupt)

    def _set_permission_mode(self, mode: str) -> Handled:
        try:
            self.set_mode(mode)
        except ValueError as error:
            raise RequestRefused(str(error), getattr(error, "code", "")) from error
        return Handled({"mode": mode}, self._say_mode)

    def _say_mode(self) -> None:
        self._session.emit(MessageRecord(status(None, self.mode())))

    def _set_model(self, name: str | None) -> Handled:
        agent = self._session.agent
        if agent is None:
            raise RequestRefused("the session has not begun")
        agent.set_model(name)
        return Handled({"model": name or agent.model})
