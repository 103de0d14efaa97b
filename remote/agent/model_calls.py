"""The model calls of one turn: their settings, the model that takes over for a while, and how a call ends the turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ccb.tunnel.wire.records import ModelEndRecord, ModelRecord

from ..model import request
from ..model.attempt import CallSettings, MessageEnd
from ..model.call import ModelCall
from ..model.errors import LAPTOP_BUDGET, ModelError
from ..model.models import betas_of, max_tokens, resolve_model
from ..model.reasoning import thinks
from ..model.retry import MAX_OVERLOADS, RetryPolicy
from ..ports import NotKept
from . import messages
from .answer import AnswerListener
from .prompts.request_start import new_prefix
from .state import Ending, LoopState, Terminal
from .stop import StopSignal
from .tool_calls.call import PipelineContext

Json = dict[str, Any]

_MAX_LEFT_OUT = 20  # in one turn


class ModelCalls:
    """Makes the calls, one at a time. `seconds` is what they took, `stop_reason` why the last answer ended."""

    def __init__(self, context: PipelineContext, listener: AnswerListener, stop: StopSignal) -> None:
        self._config = context.config
        self._deps = context.deps
        self._agent = context.agent
        self._recorder = context.recorder
        self._listener = listener
        self._stop = stop
        self._call: ModelCall | None = None
        self._left_out = 0  # tools that the API has refused
        self._lent = ""  # the model that is used in this turn only
        self.stop_reason: str | None = None
        self.seconds = 0.0

    @contextmanager
    def on_model(self, name: str | None) -> Iterator[None]:
        """Let a model that is used in this turn only, such as that of a command, hold until its end."""
        before = self._agent.model
        if name:
            self._lend(resolve_model(name, self._config.names))
        try:
            yield
        finally:
            if self._lent and self._agent.model == self._lent:  # else the person has chosen another one meanwhile
                with suppress(NotKept):
                    self._use_model(before)

    async def call(self, state: LoopState) -> MessageEnd:
        """Make one model call, and count what it used."""
        agent, clock = self._agent, self._deps.clock
        settings = self._call_settings(state)
        if self._config.disclosure.partial_messages:
            self._recorder.progress("", messages.status("requesting"))
        self._listener.begin(agent.model, continues=state.recoveries > 0)
        can_fall_back = bool(self._fallback())
        policy = RetryPolicy(self._deps.limits.max_retries, max_overloads=MAX_OVERLOADS if can_fall_back else None)
        self._call = ModelCall(settings, self._listener, policy)
        started = clock.now()
        try:
            end = await self._stop.unless_set(self._call.run())
        except ModelError as failure:
            if await self._leave_out(failure):
                return await self.call(state)
            if not (can_fall_back and failure.overloaded):
                raise
            return await self._fall_back(state)
        finally:
            self.seconds += clock.now() - started
        self._call = None
        self.stop_reason = end.stop_reason
        agent.count(end.head.model, end.usage)
        self._recorder.record(ModelEndRecord(end.head.id, end.stop_reason, end.usage))
        await self._recorder.commit()
        if end.lost is not None:
            text = f"API Error: Connection lost mid-response ({end.lost.message})"
            self._tell_api_error(text, end.lost.kind, end.lost)
        return end

    def interrupted(self) -> bool:
        """Record the received part of an interrupted answer, and count its usage: the provider charges for it. Return
        False if no call was running."""
        call, self._call = self._call, None
        if call is None:
            return False
        rest = call.salvage()
        if rest is not None:
            head, text, request_id = rest
            self._agent.count(head.model, head.usage)
            if text.strip():
                block = {"type": "text", "text": text}
                line = messages.assistant(head, block, request_id, self._deps.clock.wall())
                self._recorder.message({**line, "aborted": True})
        call.close_events()
        return True

    def ending_of(self, end: MessageEnd) -> Ending:
        """Return the ending of a turn in which the model has stopped without a tool call."""
        if end.stop_reason == "max_tokens":
            text = "API Error: the answer was cut off at the output token limit again and again. Ask for smaller steps."
            kind, terminal = "max_output_tokens", Terminal.API_ERROR
        elif end.stop_reason == "model_context_window_exceeded":
            text = "API Error: the conversation no longer fits the model's context window. Send /compact."
            kind, terminal = "invalid_request", Terminal.PROMPT_TOO_LONG
        elif end.stop_reason == "refusal":
            text = "API Error: the model refused to answer. Ask in another way, or choose another model."
            kind, terminal = "invalid_request", Terminal.API_ERROR
        else:
            return Ending(Terminal.COMPLETED, text="".join(self._listener.texts))
        self._tell_api_error(text, kind)
        return Ending(terminal, text=text)

    def failed(self, failure: ModelError) -> Ending:
        """Return the ending of a turn whose model call has finally failed."""
        answered = any(message.role == "assistant" for message in self._agent.conversation.messages)
        text = failure.prose(self._agent.model, answered=answered)
        if failure.error_type == LAPTOP_BUDGET:
            return Ending(Terminal.BUDGET_EXHAUSTED, errors=(failure.message,))
        self._tell_api_error(text, failure.kind, failure)
        terminal = Terminal.PROMPT_TOO_LONG if failure.prompt_too_long else Terminal.API_ERROR
        return Ending(terminal, text=text, api_error_status=failure.status)

    def _fallback(self) -> str:
        """Return the model that takes over when the present one is overloaded, "" for none."""
        name = self._config.fallback_model
        model = resolve_model(name, self._config.names) if name else ""
        return model if model != self._agent.model else ""

    async def _fall_back(self, state: LoopState) -> MessageEnd:
        """Make the call with the other model, and use it for the rest of the turn."""
        overloaded, other = self._agent.model, self._fallback()
        text = f"{overloaded} is overloaded: {other} takes over until the end of this turn."
        self._recorder.message(messages.informational(text, "warning"))
        self._lend(other)
        return await self.call(state)

    async def _leave_out(self, failure: ModelError) -> bool:
        """Go on without a tool of an MCP server that the API refuses. Return False if that does not help."""
        agent = self._agent
        name = failure.refused_tool([tool.name for tool in agent.listed])
        if not name.startswith("mcp__") or self._left_out >= _MAX_LEFT_OUT:
            return False
        self._left_out += 1
        self._config.tools.remove([name])
        agent.listed = tuple(tool for tool in agent.listed if tool.name != name)
        agent.prefix = await new_prefix(self._config, agent.listed, self._deps.home)
        text = f"The tool {name} is left out, because the model's API refuses it: {failure.message[:300]}"
        self._recorder.message(messages.informational(text, "warning"))
        return True

    def _call_settings(self, state: LoopState) -> CallSettings:
        """Return the settings of a model call, with the request for the whole history."""
        agent, deps = self._agent, self._deps
        assert agent.prefix is not None
        model, known = agent.model, agent.facts
        conversation, reasoning = agent.conversation, self._config.reasoning
        limit = reasoning.allowed(max_tokens(known, escalated=state.escalated))
        higher = reasoning.allowed(max_tokens(known, escalated=True))
        conversation.seal()
        asked = reasoning.fields(model, known, limit, may_think=conversation.may_think)
        body = request.body(
            agent.prefix,
            conversation.messages,
            model=model,
            max_tokens=asked.max_tokens,
            session_id=deps.session_id,
            more=asked.body,
        )
        return deps.call_settings(
            body,
            withdraw_truncated=limit < higher,
            betas=(*asked.betas, *betas_of(model)),
            thinks=thinks(known, asked.body),
        )

    def _lend(self, model: str) -> None:
        """Use another model for the rest of the turn."""
        self._lent = model
        self._use_model(model)

    def _use_model(self, model: str) -> None:
        if model != self._agent.model:
            self._agent.model = model
            self._recorder.record(ModelRecord(model))

    def _tell_api_error(self, text: str, kind: str, failure: ModelError | None = None) -> None:
        self._recorder.message(messages.api_error(text, failure, kind, self._deps.clock.wall()))
