"""What a headless run answers its client itself, and the questions of the worker that wait for the client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ccb.tunnel.wire import messages
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION

from ..session.newest import Newest
from ..transcript.session_facts import FileChanges
from .turn_results import TurnReports

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession


_MAX_AGENTS = 1_000
_MAX_TEXT = 4_000  # characters


_REFUSAL = "AbortError: Tool permission stream closed before response received"
END = "end_session"  # the request after which no more input comes


class ClientQuestions:
    """The questions that the client answers on stdin; each is refused once its input has `ended`."""

    def __init__(self, session: RemoteSession, reports: TurnReports) -> None:
        self.ended = False
        self._session = session
        self._reports = reports
        self._open: dict[str, bool] = {}  # by request id: whether the person is asked

    async def opened(self, request_id: str, *, to_person: bool) -> None:
        self._open[request_id] = to_person
        if self.ended:
            await self._refuse(request_id)
        elif to_person:
            await self._reports.waits(waits=True)

    async def closed(self, request_id: str) -> None:
        if self._open.pop(request_id, False) and not any(self._open.values()):
            await self._reports.waits(waits=False)

    async def input_ended(self) -> None:
        self.ended = True
        for request_id in list(self._open):
            await self._refuse(request_id)

    def asks_person(self, request_id: str) -> bool:
        return self._open.get(request_id, False)

    async def _refuse(self, request_id: str) -> None:
        await self.closed(request_id)
        await self._session.refuse(request_id, _REFUSAL)


class OwnAnswers:
    """What this machine answers. `confirmed` are fields of the answer to `initialize`."""

    def __init__(self) -> None:
        self.confirmed: Json = {}
        self.forwards_text = False
        self._initialize: set[str] = set()
        self._models: list[Json] = [{"value": "default", "displayName": "Default", "description": ""}]
        self._started = time.monotonic()
        self._api_ms = 0
        self._cost = 0.0
        self._usage: dict[str, Json] = {}
        self._changes = FileChanges()
        self._agents: Newest[str, Json] = Newest(_MAX_AGENTS)

    def payload(self, line: messages.ControlRequest) -> Json | None:
        if line.subtype == "initialize":
            self._initialize.add(line.request_id)
            self.forwards_text = line.request.get("forwardSubagentText") is True
        answers: dict[str, Json] = {
            END: {},
            "get_binary_version": {"version": CLAUDE_CODE_VERSION, "buildTime": ""},
            "list_models": {"models": self._models},
            "get_session_cost": {"text": f"Total cost: ${self._cost:.4f}"},
            "get_usage": self._used(),
        }
        return answers.get(line.subtype)

    def heard(self, public: messages.PublicMessage, body: Json) -> Json:
        if isinstance(public, messages.ResultMessage):
            self._cost, self._usage = public.total_cost_usd, public.model_usage
            duration = body.get("duration_api_ms")
            self._api_ms += duration if isinstance(duration, int) else 0
        elif isinstance(public, messages.UserMessage):
            self._changes.note(body.get("tool_use_result"))
        elif isinstance(public, messages.ControlResponse) and public.request_id in self._initialize and public.payload:
            models = public.payload.get("models")
            if isinstance(models, list):
                self._models = models
            if self.confirmed:
                answer = {**body["response"], "response": {**public.payload, **self.confirmed}}
                return {**body, "response": answer}
        if isinstance(public, messages.TaskMessage) and public.subtype == "task_started" and body.get("subagent_type"):
            agent = str(body.get("agent_id") or public.task_id)
            kind = str(body["subagent_type"])[:_MAX_TEXT]
            self._agents[agent] = {"subagent_type": kind, "task_description": public.description[:_MAX_TEXT]}
        elif isinstance(public, messages.AssistantMessage | messages.UserMessage) and body.get("parent_tool_use_id"):
            agent = str(body["parent_tool_use_id"])
            return {**body, "agent_id": agent, **self._agents.get(agent, {})}
        return body

    def _used(self) -> Json:
        session = {
            "total_cost_usd": self._cost,
            "total_api_duration_ms": self._api_ms,
            "total_duration_ms": round((time.monotonic() - self._started) * 1000),
            "total_lines_added": self._changes.added,
            "total_lines_removed": self._changes.removed,
            "model_usage": self._usage,
        }
        return {"session": session, "subscription_type": None, "rate_limits_available": False, "rate_limits": None}
