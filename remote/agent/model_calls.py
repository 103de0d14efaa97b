"""The model calls of a turn, their answers, and questions beside the turn."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Callable

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import ModelEndRecord, WithdrawnRecord
from ccb.tunnel.wire.tool_traits import own_name

from ..context.system_prompt import style_text
from ..model import model_request
from ..model.answer_stream import BlockDone, MessageHead
from ..model.model_call import CallSettings, MessageEnd, ModelCall, ReplyListener
from ..model.retry import LAPTOP_BUDGET, MAX_OVERLOADS, ModelError, RetryPolicy
from ..session_store.journal import NotKept
from ..tools.tool_contract import Tool
from . import agent_messages
from .agent_config import AgentConfig, AgentDeps
from .agent_histories import AgentLog
from .tool_call import ToolCall, TurnContext
from .turn_state import AgentState, EndReason, LoopState, StopSignal, TurnEnding

_log = logging.getLogger(__name__)

_WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")  # what the API accepts as the id and the name of a tool_use


class TellingListener(ReplyListener):
    def __init__(self, log: AgentLog) -> None:
        super().__init__()
        self._log = log

    def silence(self, silent: float | None, left: float) -> None:
        self._log.progress("silence", agent_messages.model_silent(silent, left))

    def retrying(self, failure: ModelError, attempt: int, most: int, delay: float) -> None:
        what = "model call failed (%s), attempt %d of %d follows in %.1f s"
        _log.warning(what, failure.kind, attempt, most, delay)
        self._log.message(agent_messages.api_retry(failure, attempt, most, delay))


class AnswerListener(TellingListener):
    """Records the answers of a turn, and gives their tool calls to `submit`. `texts` are the text blocks of the answer
    with its continuations, `submitted` the ids of its calls, `first_ms` the time to the turn's first answer."""

    def __init__(self, context: TurnContext, submit: Callable[[ToolCall], None]) -> None:
        super().__init__(context.log)
        self.texts: list[str] = []
        self.submitted: list[str] = []
        self.first_ms: int | None = None
        self._clock = clock = context.deps.clock
        self._tools = context.agent.tools
        self._submit = submit
        self._partial_messages = context.config.options.partial_messages
        self._asked = ""  # the model
        self._asked_at = clock.now()

    def begin(self, model: str, *, continues: bool) -> None:
        self.submitted = []
        self._asked = model
        self._asked_at = self._clock.now()
        if not continues:
            self.texts = []

    def event(self, event: Json) -> None:
        body: Json = {"type": "stream_event", "event": event, "parent_tool_use_id": None}
        if event.get("type") == "message_start":
            body["ttft_ms"] = round((self._clock.now() - self._asked_at) * 1000)
            self.first_ms = body["ttft_ms"] if self.first_ms is None else self.first_ms
        if self._partial_messages:
            self._log.progress("", body)

    def block(self, head: MessageHead, done: BlockDone, request_id: str) -> None:
        block = done.block
        is_call = block.get("type") == "tool_use"
        if is_call:
            block = self._sendable(block)
        self._log.message(agent_messages.assistant(head, block, request_id, self._clock.wall(), self._asked))
        if block.get("type") == "text":
            self.texts.append(block["text"])
        if not is_call:
            return
        self.submitted.append(block["id"])
        name, tool_input = block["name"], block["input"]
        tool = self._tools.get(name) or self._tools.get(own_name(name))
        if tool is not None and not done.broken:
            meant = tool.stands_for(tool_input)
            if meant is not None:
                name, tool_input = meant
                tool = self._tools.get(name)
            tool_input = tool.meant(tool_input) if tool is not None else tool_input
        self._submit(ToolCall(block["id"], name, tool_input, tool, done.broken))

    def _sendable(self, block: Json) -> Json:
        """Return a tool call with a unique id and a valid name: some providers count ids from zero in each answer."""
        if not _WORD.fullmatch(block["id"]) or block["id"] in self._log.conversation.used_ids:
            block = {**block, "id": f"toolu_{new_uuid().replace('-', '')}"}
        if not _WORD.fullmatch(block["name"]):
            block = {**block, "name": re.sub(r"[^A-Za-z0-9_-]", "_", block["name"])[:128] or "unknown"}
        return block

    def withdrawn(self, message_id: str) -> None:
        self._log.record(WithdrawnRecord(message_id))
        self.texts = []


_MAX_LEFT_OUT = 20  # in one turn
_CUT_OFF = "the answer was cut off at the output token limit again and again. Ask for smaller steps."
_NO_ROOM = "the conversation no longer fits the model's context window. Send /compact."
_REFUSAL = "the model refused to answer. Ask in another way, or choose another model."
_ENDINGS: dict[str | None, tuple[str, EndReason, str]] = {  # by the stop reasons that are none of a finished answer
    "max_tokens": ("max_output_tokens", EndReason.API_ERROR, _CUT_OFF),
    "model_context_window_exceeded": ("invalid_request", EndReason.PROMPT_TOO_LONG, _NO_ROOM),
    "refusal": ("invalid_request", EndReason.API_ERROR, _REFUSAL),
}


class ModelCalls:
    """Makes the calls, one at a time. `seconds` is what they took, `stop_reason` why the last answer ended."""

    def __init__(self, context: TurnContext, listener: AnswerListener, stop: StopSignal) -> None:
        self._config, self._deps, self._agent, self._log = context.config, context.deps, context.agent, context.log
        self._listener = listener
        self._stop = stop
        self._call: ModelCall | None = None
        self._left_out = 0  # tools that the API has refused
        self._lent = ""  # the model that is used in this turn only
        self.stop_reason: str | None = None
        self.seconds = 0.0

    @contextmanager
    def on_model(self, name: str | None) -> Iterator[None]:
        before = self._agent.model
        if name:
            self._lend(self._config.model_id(name))
        try:
            yield
        finally:
            if self._lent and self._agent.model == self._lent:  # else the person has chosen another one meanwhile
                with suppress(NotKept):
                    self._agent.use_model(before, self._log)

    async def call(self, state: LoopState) -> MessageEnd:
        agent, clock = self._agent, self._deps.clock
        settings = self._call_settings(state)
        if self._config.options.partial_messages:
            self._log.progress("", agent_messages.status_message("requesting"))
        self._listener.begin(agent.model, continues=state.recoveries > 0)
        fallback = self._config.options.fallback_model
        other = self._config.model_id(fallback) if fallback else ""
        other = other if other != agent.model else ""
        policy = RetryPolicy(self._deps.limits.max_retries, max_overloads=MAX_OVERLOADS if other else None)
        self._call = ModelCall(settings, self._listener, policy)
        started = clock.now()
        try:
            end = await self._stop.unless_set(self._call.run())
        except ModelError as failure:
            if other and failure.overloaded:
                self._warn(f"{agent.model} is overloaded: {other} takes over until the end of this turn.")
                self._lend(other)
            elif not await self._leave_out(failure):
                raise
            return await self.call(state)
        finally:
            self.seconds += clock.now() - started
        self._call = None
        self.stop_reason = end.stop_reason
        agent.count(end.head.model, end.usage)
        self._log.record(ModelEndRecord(end.head.id, end.stop_reason, end.usage))
        await self._log.commit()
        if end.lost is not None:
            text = f"API Error: Connection lost mid-response ({end.lost.message})"
            self._tell_api_error(text, end.lost.kind, end.lost)
        return end

    def interrupted(self) -> bool:
        """Record what came of an interrupted answer, which is charged for. Return False if there was none."""
        call, self._call = self._call, None
        attempt = call.attempt if call is not None else None
        rest = attempt.salvage() if attempt is not None else None
        if rest is not None:
            head, text, request_id = rest
            self._agent.count(head.model, head.usage)
            if text.strip():
                block = {"type": "text", "text": text}
                line = agent_messages.assistant(head, block, request_id, self._deps.clock.wall())
                self._log.message({**line, "aborted": True})
        if attempt is not None:
            attempt.close_events()
        return call is not None

    def ending_of(self, end: MessageEnd) -> TurnEnding:
        if end.stop_reason not in _ENDINGS:
            return TurnEnding(EndReason.COMPLETED, text="".join(self._listener.texts))
        kind, terminal, what = _ENDINGS[end.stop_reason]
        self._tell_api_error(f"API Error: {what}", kind)
        return TurnEnding(terminal, text=f"API Error: {what}")

    def failed(self, failure: ModelError) -> TurnEnding:
        answered = any(message.role == "assistant" for message in self._agent.conversation.messages)
        text = failure.prose(self._agent.model, answered=answered)
        if failure.error_type == LAPTOP_BUDGET:
            return TurnEnding(EndReason.BUDGET_EXHAUSTED, errors=(failure.message,))
        self._tell_api_error(text, failure.kind, failure)
        terminal = EndReason.PROMPT_TOO_LONG if failure.prompt_too_long else EndReason.API_ERROR
        return TurnEnding(terminal, text=text, api_error_status=failure.status)

    async def _leave_out(self, failure: ModelError) -> bool:
        """Go on without a tool of an MCP server that the API refuses. Return False if that does not help."""
        agent = self._agent
        name = failure.refused_tool([tool.name for tool in agent.listed])
        if not name.startswith("mcp__") or self._left_out >= _MAX_LEFT_OUT:
            return False
        self._left_out += 1
        self._config.tools.remove([name])
        agent.listed = tuple(tool for tool in agent.listed if tool.name != name)
        agent.prefix = await new_prefix(self._config, agent.listed)
        self._warn(f"The tool {name} is left out, because the model's API refuses it: {failure.message[:300]}")
        return True

    def _warn(self, text: str) -> None:
        self._log.message(agent_messages.informational(text, "warning"))

    def _call_settings(self, state: LoopState) -> CallSettings:
        agent, deps = self._agent, self._deps
        assert agent.prefix is not None
        model, known = agent.model, agent.facts
        conversation, options = agent.conversation, self._config.options
        limit = model_request.allowed(options, model_request.max_tokens(known, escalated=state.escalated))
        higher = model_request.allowed(options, model_request.max_tokens(known, escalated=True))
        conversation.seal()
        may_think = conversation.may_think
        more, most, betas = model_request.reasoning_fields(options, model, known, limit, may_think=may_think)
        sent, session = conversation.messages, deps.log.session_id
        body = model_request.body(agent.prefix, sent, model=model, max_tokens=most, session_id=session, **more)
        betas = (*betas, *model_request.betas_of(model))
        return deps.call_settings(
            body, withdraw_truncated=limit < higher, betas=betas, thinks=model_request.thinks(known, more)
        )

    def _lend(self, model: str) -> None:
        self._lent = model
        self._agent.use_model(model, self._log)

    def _tell_api_error(self, text: str, kind: str, failure: ModelError | None = None) -> None:
        self._log.message(agent_messages.api_error(text, failure, kind, self._deps.clock.wall()))


_MAX_TOKENS = 4_096
_MAX_RETRIES = 2
_SIDE = """\
The user asks a question beside the work. Answer it from what you know of this conversation, in a few sentences. Call \
no tool. The work goes on afterwards, and you will not remember the question.

"""


async def side_answer(deps: AgentDeps, agent: AgentState, question: str) -> str | None:
    if agent.prefix is None or not agent.conversation.messages:
        return None
    open_uses = agent.conversation.open_tool_uses
    history = list(agent.conversation.messages)
    for place, message in enumerate(history):
        if any(block.get("id") in open_uses for block in message.blocks):
            del history[place:]  # a request must not hold calls that still run
            break
    return await text_answer(deps, agent, agent.prefix, with_question(history, _SIDE + question), agent.model)


async def judged(config: AgentConfig, deps: AgentDeps, agent: AgentState, system: str, text: str, model: str) -> str:
    chosen = config.small_model(agent.model) if model == model_request.SMALL else config.model_id(model)
    prefix = model_request.RequestPrefix([{"type": "text", "text": system}], [])
    return await text_answer(deps, agent, prefix, with_question([], text), chosen)


async def text_answer(
    deps: AgentDeps,
    agent: AgentState,
    prefix: model_request.RequestPrefix,
    sent: list[model_request.HistoryMessage],
    model: str,
    max_tokens: int = _MAX_TOKENS,
    retries: int = _MAX_RETRIES,
    listener: ReplyListener | None = None,
) -> str:
    if model != agent.model:
        sent = [_without_thinking(message) for message in sent]
    body = model_request.body(prefix, sent, model=model, max_tokens=max_tokens, session_id=deps.log.session_id)
    settings = deps.call_settings(
        body, betas=model_request.betas_of(model), thinks=model_request.thinks(deps.models.facts(model), {})
    )
    listener = listener or ReplyListener()
    end = await ModelCall(settings, listener, RetryPolicy(min(retries, deps.limits.max_retries))).run()
    agent.count(end.head.model, end.usage, model)
    return listener.text.strip()


def with_question(history: Sequence[model_request.HistoryMessage], text: str) -> list[model_request.HistoryMessage]:
    ask = model_request.HistoryMessage("user")
    for block in history[-1].blocks if history and history[-1].role == "user" else ():
        ask.put(block)
    ask.put({"type": "text", "text": text})
    return [*(history[:-1] if len(ask.blocks) > 1 else history), ask]


def _without_thinking(message: model_request.HistoryMessage) -> model_request.HistoryMessage:
    if not any(block.get("type") in model_request.THINKING for block in message.blocks):
        return message
    made = model_request.HistoryMessage(message.role)
    for block in message.blocks:
        if block.get("type") not in model_request.THINKING:
            made.put(block)
    return made


async def new_prefix(config: AgentConfig, listed: Sequence[Tool]) -> model_request.RequestPrefix:
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in listed]
    system = await config.prompts.system()
    style = style_text(config.settings, config.context.cages.home)
    if style:
        system = [*system[:1], {"type": "text", "text": style}, *system[1:]]
    return model_request.RequestPrefix(system, tools)
