"""One turn: from a prompt to exactly one result."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, TypeVar

from ccb.tunnel.wire.records import (
    Content,
    MessageRecord,
    ModelEndRecord,
    PromptItem,
    PromptRecord,
    WithdrawnRecord,
)

from ..model import request
from ..model.attempt import CallSettings, MessageEnd
from ..model.call import ModelCall, Retrying
from ..model.errors import ModelError
from ..model.models import max_tokens
from ..model.retry import RetryPolicy
from ..model.stream import BlockDone, MessageHead
from ..ports import NotKept
from ..tools.contract import Tool
from . import messages
from .conversation import Conversation, close_open_tool_uses
from .deps import AgentDeps, Prompt
from .executor import ToolCall, ToolExecutor
from .state import Ending, State, Terminal
from .tool_runner import DENIAL_FEEDBACK, CallRunner, DenialCounter
from .usage import Ledger

Json = dict[str, Any]
T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_RECOVERIES = 3
_CANCEL_GRACE = 5.0
_NOT_WANTED = "The user doesn't want to proceed with this tool use."
_STOPPED = f"{_NOT_WANTED} It was stopped while it ran: what it had done until then stays done. Wait for the user."
_NOT_RUN = f"{_NOT_WANTED} It was not run. Wait for the user."
_BROKEN_OFF = "The turn was broken off by an internal error; whether this tool had any effect is not known."


@dataclass
class AgentState:
    """What outlives a turn. `prefix` is made by the first turn, and again only when another command line asks for another."""

    conversation: Conversation
    ledger: Ledger
    tools: dict[str, Tool]
    model: Callable[[], str]
    denial_counter: DenialCounter
    prefix: request.RequestPrefix | None = None


_WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")  # what the API takes for the id and the name of a tool_use


class _Interrupted(Exception):
    """The person, or a denial, ended the turn."""


class Turn:
    """`run` once. Hears its model calls (`attempt.Listener`)."""

    def __init__(self, deps: AgentDeps, agent_state: AgentState) -> None:
        self._deps = deps
        self._state = agent_state
        self._conversation = agent_state.conversation
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._denials: list[Json] = []
        self._runner = CallRunner(
            deps, self._record, self._interrupt_by_denial, self._denials, agent_state.denial_counter
        )
        self._executor = ToolExecutor(self._runner.run, self._runner.is_read_only)
        self._call: ModelCall | None = None
        self._refused = False  # the person refused a tool call and ended the turn with it
        self._submitted = 0
        self._texts: list[str] = []  # of the answer, recoveries included
        self._user_lines = 0
        self._stop_reason: str | None = None
        self._api_seconds = 0.0
        self._calls = 1
        self._started = deps.clock.now()

    def interrupt(self) -> None:
        """End the turn as soon as possible. Idempotent."""
        self._executor.halt()
        if not self._stop.done():
            self._stop.set_result(None)

    def _interrupt_by_denial(self) -> None:
        self._refused = True
        self.interrupt()

    async def run(self, prompts: Sequence[Prompt]) -> Json:
        """The result message, already emitted. Raises only NotKept, with the result, and CancelledError."""
        try:
            return await self._run(prompts)
        except NotKept as error:
            error.result = self._result(_unkept(error))
            raise

    async def _run(self, prompts: Sequence[Prompt]) -> Json:
        self._state.ledger.start_turn()
        try:
            ending = await self._ending(prompts)
        finally:
            await self._executor.cancel()
        result = self._result(ending)
        self._say(result)
        await self._deps.emitter.commit()
        return result

    def _result(self, ending: Ending) -> Json:
        return messages.result(
            ending,
            self._state.ledger,
            duration=self._deps.clock.now() - self._started,
            duration_api=self._api_seconds,
            num_turns=self._calls + 1 if ending.terminal is Terminal.MAX_TURNS else 1 + self._user_lines,
            stop_reason=self._stop_reason,
            denials=self._denials,
        )

    async def _ending(self, prompts: Sequence[Prompt]) -> Ending:
        """Every way a turn ends, with a valid history after each."""
        try:
            self._init()
            self._close_open(_BROKEN_OFF)
            await self._open(prompts)
            return await self._loop()
        except _Interrupted:
            return await self._interrupted()
        except ModelError as failure:
            self._close_open(_NOT_RUN)
            return self._failed(failure)
        except NotKept as error:
            _log.error("the turn ended: %s", error)
            await self._executor.cancel()
            self._close_open(_BROKEN_OFF)
            return _unkept(error)
        except Exception as error:  # noqa: BLE001 - whatever happens, the turn has its result
            _log.exception("the turn failed")
            await self._executor.cancel()
            self._close_open(_BROKEN_OFF)
            return Ending(Terminal.MODEL_ERROR, errors=(f"internal error: {type(error).__name__}: {error}",))

    def _init(self) -> None:
        deps = self._deps
        self._say(
            messages.init(
                cwd=deps.context.cwd,
                tools=list(self._state.tools),
                model=self._state.model(),
                mode=deps.permissions.mode,
                api_key_source=deps.api_key_source,
                version=deps.version,
                add_dirs=deps.context.add_dirs,
            )
        )

    async def _open(self, prompts: Sequence[Prompt]) -> None:
        """Gather what every request starts with, and put the prompt in the history."""
        context: list[Json] = []
        if not self._conversation.messages:
            context = await self._unless_stopped(self._deps.prompts.first_user_blocks())
        self._add_prompts(prompts, context)
        await self._deps.emitter.commit()
        if self._state.prefix is None:
            tools = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
                for tool in self._state.tools.values()
            ]
            system = await self._unless_stopped(self._deps.prompts.system())
            self._state.prefix = request.RequestPrefix(system, tools)

    def _add_prompts(self, prompts: Sequence[Prompt], context: Sequence[Json] = ()) -> None:
        items: list[PromptItem] = []
        for prompt in prompts:
            if prompt.input_id:
                self._conversation.know_input(prompt.input_id, list(prompt.blocks))
                items.append(PromptItem(prompt.input_id))
            else:
                items.append(PromptItem(content=list(prompt.blocks)))
        self._emit(PromptRecord(list(context), items))

    async def _loop(self) -> Ending:
        state = State()
        while True:
            self._calls = state.calls
            end = await self._call_model(state)
            if end.withdrawn:
                state = state.escalate()
                continue
            if end.lost is not None:
                text = f"API Error: Connection lost mid-response ({end.lost.message})"
                self._say(messages.api_error(text, end.lost, end.lost.kind, self._deps.clock.wall()))
            if self._submitted:
                await self._unless_stopped(self._executor.drain())
                self._checkpoint()
                limit = self._deps.max_turns
                if limit is not None and state.calls >= limit:
                    return Ending(Terminal.MAX_TURNS, errors=(f"Reached maximum number of turns ({limit})",))
                await self._between_calls()
                state = state.next_turn()
                continue
            if end.stop_reason == "max_tokens" and state.recoveries < _MOST_RECOVERIES:
                self._record(messages.user_text(messages.CONTINUE, synthetic=True))
                state = state.recover()
                continue
            return self._answered(end)

    async def _between_calls(self) -> None:
        """What joins the tool results on their way to the model."""
        if self._state.denial_counter.take_feedback():
            self._record(messages.user_text(DENIAL_FEEDBACK, synthetic=True))
        queued = self._deps.take_queued()
        if queued:
            self._add_prompts(queued)
            await self._deps.emitter.commit()

    async def _call_model(self, state: State) -> MessageEnd:
        deps, agent_state = self._deps, self._state
        assert agent_state.prefix is not None
        model = agent_state.model()
        limit, higher = max_tokens(model, escalated=state.escalated), max_tokens(model, escalated=True)
        agent_state.conversation.seal()
        settings = CallSettings(
            transport=deps.transport,
            clock=deps.clock,
            limits=deps.limits,
            headers=request.headers(deps.version),
            body=request.body(
                agent_state.prefix,
                agent_state.conversation.messages,
                model=model,
                max_tokens=limit,
                session_id=deps.session_id,
            ),
            withdraw_truncated=limit < higher,
            link_up_since=deps.link_up_since,
        )
        if deps.partial_messages:
            deps.emitter.progress("", messages.status("requesting"))
        self._submitted = 0
        if not state.recoveries:
            self._texts = []
        self._call = ModelCall(settings, self, RetryPolicy(deps.limits.max_retries))
        started = deps.clock.now()
        try:
            end = await self._unless_stopped(self._call.run())
        finally:
            self._api_seconds += deps.clock.now() - started
        self._call = None
        self._stop_reason = end.stop_reason
        self._state.ledger.add(end.head.model or model, end.usage)
        self._emit(ModelEndRecord(end.head.id, end.stop_reason, end.usage))
        await deps.emitter.commit()
        return end

    def _answered(self, end: MessageEnd) -> Ending:
        """The model has stopped without a tool call."""
        if end.stop_reason == "max_tokens":
            text = "API Error: the answer was cut off at the output token limit again and again. Ask for smaller steps."
            kind, terminal = "max_output_tokens", Terminal.API_ERROR
        elif end.stop_reason == "model_context_window_exceeded":
            text = "API Error: the conversation no longer fits the model's context window. Start a new session."
            kind, terminal = "invalid_request", Terminal.PROMPT_TOO_LONG
        else:
            return Ending(Terminal.COMPLETED, text="".join(self._texts))
        self._say(messages.api_error(text, None, kind, self._deps.clock.wall()))
        return Ending(terminal, text=text)

    def _failed(self, failure: ModelError) -> Ending:
        text = failure.prose(self._state.model())
        self._say(messages.api_error(text, failure, failure.kind, self._deps.clock.wall()))
        terminal = Terminal.PROMPT_TOO_LONG if failure.prompt_too_long else Terminal.API_ERROR
        return Ending(terminal, text=text, api_error_status=failure.status)

    async def _interrupted(self) -> Ending:
        """Stop everything, keep what there is of the answer, close what is open, and leave the model a note."""
        call, self._call = self._call, None
        await self._executor.cancel()
        if call is not None:
            self._salvage(call)
        self._close_open(self._why_stopped)
        in_tools = self._refused or (call is None and self._submitted > 0)
        self._record(messages.user_text(messages.INTERRUPTED_FOR_TOOL if in_tools else messages.INTERRUPTED))
        terminal = Terminal.ABORTED_TOOLS if in_tools else Terminal.ABORTED_STREAMING
        return Ending(terminal, errors=("Request interrupted by user",))

    def _why_stopped(self, tool_use_id: str) -> str:
        if tool_use_id not in self._runner.started:
            return _NOT_RUN
        printed = self._runner.printed.get(tool_use_id, "").rstrip("\n")
        return f"{_STOPPED}\nIt had printed:\n{printed}" if printed else _STOPPED

    def _salvage(self, call: ModelCall) -> None:
        rest = call.salvage()
        if rest is not None:
            head, text, request_id = rest
            self._state.ledger.add(head.model or self._state.model(), head.usage)  # what was sent is paid for
            if text.strip():
                block = {"type": "text", "text": text}
                line = messages.assistant(head, block, request_id, self._deps.clock.wall())
                self._record({**line, "aborted": True})
        call.close_events()

    def _close_open(self, why: str | Callable[[str], str]) -> None:
        for message in close_open_tool_uses(self._conversation, why):
            self._user_lines += 1
            self._deps.emitter.emit(message)

    def _checkpoint(self) -> None:
        if self._stop.done():
            raise _Interrupted

    async def _unless_stopped(self, work: Awaitable[T]) -> T:
        """The result of `work`; raises _Interrupted, with `work` cancelled and ended, when the turn is stopped before."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Interrupted
            if task.cancelled():  # not by us: seen as a cancellation of the turn it would cost the turn its result
                raise RuntimeError("a part of the turn was cancelled from outside")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_GRACE)
            if task.done() and not task.cancelled():
                task.exception()

    def _record(self, body: Json) -> None:
        """Emit a public message that is part of the conversation."""
        self._emit(MessageRecord(body))
        if body["type"] == "user":
            self._user_lines += 1

    def _emit(self, content: Content) -> None:
        """Emit a record that is part of the conversation."""
        self._conversation.apply(self._deps.emitter.emit(content))

    def _say(self, body: Json) -> None:
        """Emit a public message that is not part of the conversation."""
        self._deps.emitter.emit(MessageRecord(body))

    def event(self, event: Json) -> None:
        """A raw event of the stream, for clients that asked for it."""
        if self._deps.partial_messages:
            self._deps.emitter.progress("", {"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def block(self, head: MessageHead, done: BlockDone, request_id: str) -> None:
        """A finished block: a line on the wire, and a tool call that may start at once."""
        block = done.block
        is_call = block.get("type") == "tool_use"
        if is_call:
            block = self._sendable(block)
        self._record(messages.assistant(head, block, request_id, self._deps.clock.wall()))
        if block.get("type") == "text":
            self._texts.append(block["text"])
        if is_call:
            self._submitted += 1
            name = block["name"]
            self._executor.submit(ToolCall(block["id"], name, block["input"], self._state.tools.get(name), done.broken))

    def _sendable(self, block: Json) -> Json:
        """The call with an id of its own (some providers count from zero in each answer) and a name: the API takes no history
        in which they are not as it wants them."""
        if not _WORD.fullmatch(block["id"]) or self._conversation.is_used(block["id"]):
            block = {**block, "id": f"toolu_{uuid.uuid4().hex}"}
        if not _WORD.fullmatch(block["name"]):
            block = {**block, "name": re.sub(r"[^A-Za-z0-9_-]", "_", block["name"])[:128] or "unknown"}
        return block

    def withdrawn(self, message_id: str) -> None:
        """The lines of this answer do not count: it is asked for again."""
        self._emit(WithdrawnRecord(message_id))
        self._texts = []

    def retrying(self, retry: Retrying) -> None:
        """An attempt failed; another follows."""
        _log.warning(
            "model call failed (%s), attempt %d of %d follows in %.1f s",
            retry.failure.kind,
            retry.attempt,
            retry.max_retries,
            retry.delay,
        )
        self._say(messages.api_retry(retry))


def _unkept(error: NotKept) -> Ending:
    return Ending(Terminal.STORAGE_FULL if error.full else Terminal.MODEL_ERROR, errors=(str(error),))
