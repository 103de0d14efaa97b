"""The requests that clients may make of the worker: one handler for each kind, registered with the broker.

Source: section 6.1 of the stream-json protocol as observed.
"""

from __future__ import annotations

import os
from typing import Any

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
from ..ports import NotKept
from .broker import Handled
from .session import Session

Json = dict[str, Any]

INITIALIZE: RequestKind[None, Json] = client_kind("initialize", lambda fields: None)
MCP_STATUS: RequestKind[None, Json] = client_kind("mcp_status", lambda fields: None)
GET_CONTEXT_USAGE: RequestKind[None, Json] = client_kind("get_context_usage", lambda fields: None)


def register_client_requests(session: Session) -> None:
    """Register the handlers for the requests of clients with the session's broker."""
    broker = session.broker
    broker.register(INITIALIZE, lambda _: Handled(_description(session)))
    broker.register(INTERRUPT, lambda _: _interrupt(session))
    broker.register(SET_PERMISSION_MODE, lambda mode: _set_permission_mode(session, mode))
    broker.register(SET_MODEL, lambda name: _set_model(session, name))
    broker.register(MCP_STATUS, lambda _: Handled({"mcpServers": []}))
    broker.register(GET_CONTEXT_USAGE, lambda _: Handled(_context_usage(session)))


def _description(session: Session) -> Json:
    """Return the description of the session that a client gets before its first prompt."""
    model = session.agent.model
    return {
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
        "current_permission_mode": session.mode,
        "sandbox": session.agent.config.permissions.cage_in_force,
        "session_state": session.state,
        "capabilities": ["interrupt_receipt_v1"],
    }


def _context_usage(session: Session) -> Json:
    model = session.agent.model
    used, window = session.log.usage.context_tokens, facts(model).context_window
    return {
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


def _interrupt(session: Session) -> Handled:
    """Withdraw the questions to the person before the answer; end the turn after it. The turn also ends if the
    withdrawal or the answer cannot be journalled."""
    try:
        session.broker.withdraw(AnsweredBy.PERSON)
    except NotKept:
        session.turns.interrupt()
        raise
    return Handled({"still_queued": session.queued_uuids}, session.turns.interrupt)


def _set_permission_mode(session: Session, mode: str) -> Handled:
    try:
        session.agent.config.permissions.set_mode(mode)
    except ValueError as error:
        raise RequestRefused(str(error), getattr(error, "code", "")) from error

    def announce() -> None:
        permissions = session.agent.config.permissions
        session.log.emit(MessageRecord(status(None, permissions.mode, permissions.cage_in_force)))

    return Handled({"mode": mode}, announce)


def _set_model(session: Session, name: str | None) -> Handled:
    session.agent.set_model(name)
    return Handled({"model": name or session.agent.model})
