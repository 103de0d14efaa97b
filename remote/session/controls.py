"""Control requests of a client: every one is answered, unknown ones with an error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from ccb.tunnel.wire.records import MessageRecord

from ..agent.messages import status
from ..model.models import facts

if TYPE_CHECKING:
    from .session import Session

Json = dict[str, Any]


class ControlRefused(Exception):
    """The request cannot be done; `code` is the public error_code, "" for none."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class Controls:
    """The control protocol of one session. Source: section 6.1 of the stream-json protocol as observed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, Callable[[Json], Json | None]] = {
            "initialize": self._initialize,
            "interrupt": self._interrupt,
            "set_permission_mode": self._set_permission_mode,
            "set_model": self._set_model,
            "mcp_status": lambda request: {"mcpServers": []},
            "get_context_usage": self._context_usage,
        }
        self.set_mode: Callable[[str], None] = lambda mode: None
        self.mode: Callable[[], str] = lambda: "default"

    def take(self, body: Json) -> None:
        """Answer one control_request."""
        session = self._session
        request_id = str(body.get("request_id", ""))
        request = body.get("request")
        subtype = request.get("subtype") if isinstance(request, dict) else None
        handler = self._known.get(str(subtype))
        try:
            if handler is None or not isinstance(request, dict):
                raise ControlRefused(f"Unsupported control request subtype: {subtype}", "unsupported_request")
            payload = handler(request)
        except ControlRefused as refused:
            answer: Json = {"subtype": "error", "request_id": request_id, "error": str(refused)}
            if refused.code:
                answer["error_code"] = refused.code
        else:
            answer = {"subtype": "success", "request_id": request_id}
            if payload is not None:
                answer["response"] = payload
        try:
            session.emit(MessageRecord({"type": "control_response", "response": answer}))
        finally:  # also where the disk has no room for the answer
            if subtype == "interrupt":
                session.interrupt()
        if subtype == "set_permission_mode" and answer["subtype"] == "success":
            session.emit(MessageRecord(status(None, self.mode())))

    def _initialize(self, request: Json) -> Json:
        session = self._session
        agent = session.agent
        model = agent.model if agent is not None else ""
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
            "current_permission_mode": self.mode(),
            "session_state": session.state,
            "capabilities": ["interrupt_receipt_v1"],
        }

    def _context_usage(self, request: Json) -> Json:
        agent = self._session.agent
        model = agent.model if agent is not None else ""
        used, window = self._session.context_tokens, facts(model).context_window
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

    def _interrupt(self, request: Json) -> Json:
        self._session.withdraw_asks()
        return {"still_queued": self._session.queued_uuids}

    def _set_permission_mode(self, request: Json) -> Json:
        mode = str(request.get("mode"))
        try:
            self.set_mode(mode)
        except ValueError as error:
            raise ControlRefused(str(error), getattr(error, "code", "")) from error
        return {"mode": mode}

    def _set_model(self, request: Json) -> Json:
        agent = self._session.agent
        name = request.get("model")
        if agent is None or not (name is None or isinstance(name, str)):
            raise ControlRefused("the model must be a name or null")
        agent.set_model(name)
        return {"model": name or agent.model}
