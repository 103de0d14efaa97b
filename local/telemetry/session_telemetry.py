"""Spans and metrics of one session, by the semantic conventions for generative AI: turns, model calls, tool calls.

Model calls are measured by the auth proxy, approvals by what this client says. The rest is what the host reports; its
times are those at which it arrived here, because the clocks of two machines are not compared."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.providers.costs import ANSWERED
from ccb.tunnel.proxy.metering import CallReport
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.messages import (
    AssistantMessage,
    ResultMessage,
    SystemMessage,
    UserMessage,
    as_blocks,
    as_dict,
    as_text,
)
from ccb.tunnel.wire.model_facts import provider_of

from ..session.newest import Newest
from ..session.session_client import EventGap, Item, Json, LinkChange, LinkState, SessionEvent

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession

log = logging.getLogger(__name__)

_MAX_NAME = 100
_MAX_TEXT = 32_000  # characters of one text; more is cut
_MAX_OPEN = 1_000
_WORD = re.compile(r"[a-z0-9_]{1,60}")
_PROVIDERS = {
    "": "anthropic",
    "azure": "azure.ai.openai",
    "gemini": "gcp.gemini",
    "grok": "x_ai",
    "bedrock": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
    "foundry": "azure.ai.inference",
}
"""What the conventions call the kinds of providers, where ccb's own word is another one."""


class SessionTelemetry:
    """Follows one session while this ccb drives it. Nothing here raises. `kinds` are the kinds of providers with names
    of their own. `content` makes texts public that are sent; without it none is. `begun` is called with the session."""

    def __init__(
        self,
        tracer: Tracer,
        meter: Meter,
        kinds: Mapping[str, str],
        content: Callable[[str], str] | None,
        begun: Callable[[], None],
    ) -> None:
        self._tracer = tracer
        self._sessions = meter.create_counter("ccb.sessions", "{session}", "Sessions that were begun or resumed.")
        self._reconnects = meter.create_counter("ccb.reconnects", "{reconnect}", "Lost connections that came back.")
        self._cost = meter.create_counter("ccb.cost", "{USD}", "Cost of model calls.")
        self._approvals = meter.create_counter("ccb.approvals", "{approval}", "Answers to questions about tool calls.")
        self._kinds = kinds
        self._content = content
        self._begun = begun
        self._driving: Callable[[], bool] = lambda: False
        self._after = 0  # the last event of before
        self._common: dict[str, str] = {}
        self._turn: Span | None = None  # the newest, also when it has ended
        self._asked: list[str] = []  # its prompts, if content is sent
        self._wanted: Newest[str, tuple[int, str, Json]] = Newest(_MAX_OPEN)  # calls: when in ns, of what, with what
        self._tools: Newest[str, Span] = Newest(_MAX_OPEN)  # those that run
        self._prompts: Newest[str, str] = Newest(_MAX_OPEN)
        self._lost = False

    def follow(self, session: RemoteSession, host: str) -> None:
        self._driving, self._after = lambda: session.driving, session.hello.seq
        identity = one_line(session.hello.session)[:_MAX_NAME]
        self._common = {"gen_ai.conversation.id": identity, "session.id": identity, "ccb.host": host}
        self._sessions.add(1)
        session.tell_items(self._came)
        self._begun()

    def close(self) -> None:
        """End what is open: the session goes on without this client."""
        self._safely(self._cut)

    def _safely(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except Exception:
            log.exception("telemetry failed on an event")

    # Model calls, as the auth proxy has measured them.

    def call_ended(self, report: CallReport) -> None:
        if report.path == ANSWERED:
            self._safely(self._call_ended, report)

    def _call_ended(self, report: CallReport) -> None:
        kind = {"gen_ai.operation.name": "chat", **self._of_model(report.model)}
        error = "" if report.complete and report.status == 200 else str(report.status or "not_answered")
        tokens = report.tokens
        attributes: dict[str, AttributeValue] = {
            **self._common,
            **kind,
            "gen_ai.usage.input_tokens": tokens.input + tokens.cache_write + tokens.cache_read,
            "gen_ai.usage.cache_creation.input_tokens": tokens.cache_write,
            "gen_ai.usage.cache_read.input_tokens": tokens.cache_read,
            "gen_ai.usage.output_tokens": tokens.output,
            "gen_ai.response.time_to_first_chunk": report.first_byte_s,
            "ccb.cost_usd": report.cost_usd,
            "ccb.usage.estimated": report.estimated or report.untold,
        }
        name = " ".join(filter(None, ("chat", kind.get("gen_ai.request.model"))))
        began = int(report.began * 1e9)
        span = self._tracer.start_span(name, _within(self._turn), SpanKind.CLIENT, attributes, start_time=began)
        _end(span, "cut" if error == "200" else error, at=began + int(report.duration_s * 1e9))
        self._cost.add(report.cost_usd, kind)

    def _of_model(self, model: str) -> dict[str, str]:
        name = provider_of(model)
        kind = self._kinds.get(name, name)
        own = model.partition("/")[2] if name else model
        asked = {"gen_ai.request.model": one_line(own)[:_MAX_NAME]} if own else {}
        return {"gen_ai.provider.name": _PROVIDERS.get(kind, kind), **asked}

    def decided(self, allows: bool) -> None:
        """Somebody here was asked about a tool call."""
        self._safely(self._approvals.add, 1, {"ccb.decision": "accept" if allows else "reject"})

    # What the host reports.

    def _came(self, item: Item) -> None:
        match item:
            case SessionEvent():
                if item.kind != "progress" and item.seq > self._after and self._driving():
                    self._safely(self._event, item)
            case EventGap() | LinkChange(state=LinkState.FENCED):
                self._safely(self._cut)
            case LinkChange(state=LinkState.RECONNECTING):
                self._lost = True
            case LinkChange(state=LinkState.CONNECTED) if self._lost:
                self._lost = False
                self._safely(self._reconnects.add, 1)

    def _event(self, event: SessionEvent) -> None:
        agent = event.record.agent_id
        match event.record.content:
            case records.TurnStartRecord() if not agent:
                self._turn_ends("cut")
                kind = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "ccb"}
                self._turn = self._tracer.start_span("invoke_agent ccb", Context(), attributes={**self._common, **kind})
                self._asked = []
            case records.TurnEndRecord() if not agent:
                self._turn_ends()
            case records.InputRecord(id=identity, public=UserMessage() as prompt) if self._content is not None:
                self._prompts[identity] = prompt.text("\n")[:_MAX_TEXT]
            case records.PromptRecord(input_ids=inputs):
                self._asked.extend(filter(None, (self._prompts.pop(each, "") for each in inputs)))
            case records.ToolStartRecord(tool_use_id=identity, name=name) if identity not in self._tools:
                self._tools[identity] = self._tool_span(identity, name, agent)
            case records.MessageRecord(public=SystemMessage(subtype="init", model=model)) if model and self._turn:
                self._turn.set_attributes(self._of_model(model))
            case records.MessageRecord(public=AssistantMessage(blocks=blocks)):
                for block in blocks:
                    if block.get("type") == "tool_use":
                        call = time.time_ns(), as_text(block.get("name")), as_dict(block.get("input"))
                        self._wanted.setdefault(as_text(block.get("id")), call)
            case records.MessageRecord(public=UserMessage() as message):
                self._tools_end(message, agent)
            case records.MessageRecord(public=ResultMessage() as result) if not agent:
                self._result(result)

    def _result(self, result: ResultMessage) -> None:
        if self._turn is None:
            return
        said = [as_text(result.body.get("result"))]
        for name, role, texts in (("input", "user", self._asked), ("output", "assistant", said)):
            parts = [{"type": "text", "content": text} for text in texts if text]
            messages = [{"role": role, "parts": parts}] if parts else []
            self._turn.set_attributes(self._text(f"gen_ai.{name}.messages", messages))
        if result.is_error or result.subtype != "success":
            known = result.subtype != "success" and _WORD.fullmatch(result.subtype)
            self._turn_ends(result.subtype if known else "error")

    def _turn_ends(self, error: str = "") -> None:
        if self._turn is not None and self._turn.is_recording():
            _end(self._turn, error)

    def _tool_span(self, identity: str, name: str, agent: str) -> Span:
        now = time.time_ns()
        wanted, name, arguments = self._wanted.pop(identity, (now, name, {}))
        name = one_line(name[:_MAX_NAME])
        attributes: dict[str, AttributeValue] = {
            **self._common,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": one_line(identity)[:_MAX_NAME],
            "gen_ai.tool.type": "function",
            "ccb.tool.wait_s": max(0, now - wanted) / 1e9,
            **self._text("gen_ai.tool.call.arguments", arguments),
        }
        within = _within(self._tools.get(agent, self._turn))
        return self._tracer.start_span(f"execute_tool {name}", within, attributes=attributes)

    def _tools_end(self, message: UserMessage, agent: str) -> None:
        told = {as_text(each.get("id")): each for each in as_blocks(message.body.get("tool_result_meta"))}
        for block in message.blocks:
            identity = as_text(block.get("tool_use_id"))
            if block.get("type") != "tool_result" or not (identity in self._tools or identity in self._wanted):
                continue
            span = self._tools.pop(identity, None) or self._tool_span(identity, "", agent)
            decision = as_dict(told.get(identity, {}).get("permission_decision"))
            for name, value in (("ccb.decision", "decision"), ("ccb.decision.source", "source")):
                if _WORD.fullmatch(word := as_text(decision.get(value))):
                    span.set_attribute(name, word)
            span.set_attributes(self._text("gen_ai.tool.call.result", block.get("content")))
            rejected = decision.get("decision") == "reject"
            _end(span, "rejected" if rejected else "tool_error" if block.get("is_error") is True else "")

    def _cut(self) -> None:
        """End what is open: what comes of it is not seen here."""
        for span in self._tools.values():
            _end(span, "cut")
        self._tools.clear()
        self._turn_ends("cut")

    def _text(self, name: str, value: Any) -> dict[str, str]:
        if self._content is None or not value:
            return {}
        text = value if isinstance(value, str) else json.dumps(value)
        return {name: self._content(text[:_MAX_TEXT])}


def _within(span: Span | None) -> Context:
    return Context() if span is None else set_span_in_context(span, Context())


def _end(span: Span, error: str, at: int | None = None) -> None:
    if error:
        span.set_attribute("error.type", error)
        span.set_status(StatusCode.ERROR)
    span.end(at)
