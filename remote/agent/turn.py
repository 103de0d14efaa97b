"""A turn: from prompts to one result."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import (
    AgentResultRecord,
    CompactEndRecord,
    CompactStartRecord,
    MessageRecord,
    PromptItem,
    PromptRecord,
)

from ..context.reminders import Occasion
from ..model.retry import ModelError
from ..session_store.journal import NotKept
from . import agent_messages, turn_state
from .agent_config import AgentConfig, AgentDeps
from .agent_histories import AgentLog
from .agent_hooks import MAX_STOP_BLOCKS, after_batch, batched, before_stop, instructions_loaded, model_failed
from .compaction import Compactor
from .conversation import CompactionFailed, close_open_tool_uses
from .model_calls import AnswerListener, ModelCalls, new_prefix
from .prompt_opening import Opened, PromptOpening, granted, mentioned_blocks
from .tool_call import NOT_RUN, STOPPED, CallOutcome, ToolCall, TurnContext
from .tool_pipeline import ToolExecutor
from .turn_state import EndReason, Prompt, TurnEnding

_log = logging.getLogger(__name__)

_MAX_RECOVERIES = 3
_BROKEN_OFF = "The turn was broken off by an internal error; whether this tool had any effect is not known."


class Turn:
    def __init__(self, config: AgentConfig, deps: AgentDeps, state: turn_state.AgentState) -> None:
        log = AgentLog(deps.log, state.conversation, deps.followers)
        self._context = context = TurnContext(config, deps, log, state)
        self._agent, self._log = state, log
        self._executor = ToolExecutor(context, self._call_ended)
        self._listener = AnswerListener(context, self._executor.submit)
        self._stop = turn_state.StopSignal()
        self._model = ModelCalls(context, self._listener, self._stop)
        self._refused = False  # the person refused a tool call and thereby ended the turn
        self._opening = PromptOpening(context)
        self._stopped_by_hook: str | None = None  # why a hook of a tool call ends the turn
        self._target = turn_state.TokenTarget()
        if config.structured is not None:
            config.structured.begin_turn()
        self._denials: list[Json] = []
        self._batch: dict[str, Json] = {}  # the calls of the present answer that have ended, by id
        self._calls = 1
        self._started = deps.clock.now()

    @property
    def interrupted(self) -> bool:
        return self._stop.is_set

    def interrupt(self) -> None:
        self._executor.halt()
        self._stop.set()

    async def run(self, prompts: Sequence[Prompt]) -> Json:
        """Run the turn and return its durable result message. Raise NotKept, with the result, and CancelledError."""
        try:
            self._agent.ledger.start_turn()
            try:
                ending = await self._ending(prompts)
            finally:
                await self._executor.cancel()
            result = self._result(ending, prompts)
            if self._log.agent_id:
                self._log.record(AgentResultRecord(result))
            else:
                self._log.message(result)
            await self._log.commit()
            return result
        except NotKept as error:
            error.result = self._result(_not_kept(error), prompts)
            raise

    def _result(self, ending: TurnEnding, prompts: Sequence[Prompt]) -> Json:
        num_turns = self._calls and self._calls + 1
        if ending.terminal is not EndReason.MAX_TURNS and self._calls:
            num_turns = 1 + self._log.user_messages  # as the public protocol counts them
        return agent_messages.result_message(
            ending,
            self._agent.ledger,
            duration_ms=round((self._context.deps.clock.now() - self._started) * 1000),
            duration_api_ms=round(self._model.seconds * 1000),
            num_turns=num_turns,
            stop_reason=self._model.stop_reason,
            permission_denials=[*self._denials, *ending.denials],
            origin=turn_state.origin_of(prompts),
            ttft_ms=self._listener.first_ms,
        )

    async def _ending(self, prompts: Sequence[Prompt]) -> TurnEnding:
        """Run the turn to its end, and leave a valid history however it ends."""
        try:
            if not self._log.agent_id:  # clients take it for the start of the session's turn
                self._log.message(await self._stop.unless_set(self._init()))
            self._close_open(_BROKEN_OFF)
            opened = await self._stop.unless_set(self._opening.open(prompts))
            if opened.ending is not None:
                self._calls = 0
                return opened.ending
            with granted(self._context.config.permissions, opened.allowed), self._model.on_model(opened.model):
                await self._open(opened)
                return await self._answer(opened)
        except turn_state.Interrupted:
            return await self._interrupted()
        except ModelError as failure:
            self._close_open(NOT_RUN)
            model_failed(self._context, failure)
            return self._model.failed(failure)
        except NotKept as error:
            _log.error("the turn ended: %s", error)
            await self._executor.cancel()
            self._close_open(_BROKEN_OFF)
            return _not_kept(error)
        except Exception as error:  # noqa: BLE001 - whatever happens, the turn has its result
            _log.exception("the turn failed")
            await self._executor.cancel()
            self._close_open(_BROKEN_OFF)
            return TurnEnding(EndReason.MODEL_ERROR, errors=(f"internal error: {type(error).__name__}: {error}",))

    async def _init(self) -> Json:
        agent, config, program = self._agent, self._context.config, self._context.deps.program
        version = self._context.deps.version
        if program is not None:
            await program.prepare(self._log, agent)
            return agent_messages.init_message(config, (), program.facts.models.current or agent.model, version)
        tools = [*(tool.name for tool in agent.listed), *config.deferred_tools()]
        return agent_messages.init_message(config, tools, agent.model, version)

    async def _answer(self, opened: Opened) -> TurnEnding:
        """Let the model answer, or the program that works in its place."""
        program = self._context.deps.program
        if opened.prompts and all(prompt.silent for prompt in opened.prompts):
            self._calls = 0
            if program is not None:
                program.unread(opened.prompts)
            return TurnEnding(EndReason.COMPLETED)
        if program is None:
            return await self._loop()
        return await self._stop.unless_set(program.run(self._log, self._agent, opened.said))

    async def _open(self, opened: Opened) -> None:
        config, deps = self._context.config, self._context.deps
        context: list[Json] = []
        prompts = list(opened.prompts)
        if deps.program is not None:  # it finds its instructions and the files that are named itself
            self._add_prompts(prompts, [])
            await self._log.commit()
            return
        if not self._agent.conversation.messages:
            context = await self._stop.unless_set(config.prompts.first_user_blocks())
            role = config.role
            if role is not None and role.initial_prompt and not self._log.agent_id:
                self._tell(f"First, {role.name} is told: {role.initial_prompt}")
                prompts.insert(0, Prompt([{"type": "text", "text": role.initial_prompt}]))
            files = await config.prompts.instructions()
            instructions_loaded(deps.hooks, self._log.agent_id, files, "session_start")
        context += await self._stop.unless_set(mentioned_blocks(self._context, opened.prompts))
        self._add_prompts(prompts, [*context, *deps.reminders.take(Occasion.PROMPT)])
        if opened.expanded:
            self._log.record(MessageRecord(agent_messages.synthetic(opened.expanded)))
        await self._log.commit()
        await self._make_prefix()

    async def _make_prefix(self) -> None:
        if self._agent.prefix is None:
            made = new_prefix(self._context.config, self._agent.listed)
            self._agent.prefix = await self._stop.unless_set(made)

    def _add_prompts(self, prompts: Sequence[Prompt], context: Sequence[Json]) -> None:
        items: list[PromptItem] = []
        if not self._log.agent_id and self._target.take(prompts):
            self._tell(f"The agent works until it has written about {self._target.tokens:,} tokens.")
        for prompt in prompts:
            if prompt.input_id:
                self._agent.conversation.know_input(prompt.input_id, list(prompt.blocks))
                items.append(PromptItem(prompt.input_id))
            else:
                items.append(PromptItem(content=list(prompt.blocks)))
        self._log.record(PromptRecord(list(context), items))

    async def _loop(self) -> TurnEnding:
        state = turn_state.LoopState()
        while True:
            self._calls = state.calls
            await self._stop.unless_set(self._compactor.make_room())
            try:
                end = await self._model.call(state)
            except ModelError as failure:
                if not failure.prompt_too_long or not await self._rescued(state):
                    raise
                state = state.compacted()
                continue
            if end.withdrawn:
                state = replace(state, can_rescue=True, escalated=True, recoveries=0)
            elif self._listener.submitted:
                ending = await self._after_tools(state)
                if ending is not None:
                    return ending
                state = state.next_turn()
            elif end.stop_reason == "max_tokens" and state.recoveries < _MAX_RECOVERIES:
                self._note(agent_messages.CONTINUE)
                state = replace(state, can_rescue=True, escalated=True, recoveries=state.recoveries + 1)
            elif end.stop_reason == "model_context_window_exceeded" and await self._rescued(state):
                state = state.compacted()
            else:
                stopped = await self._at_stop(self._model.ending_of(end), state)
                if isinstance(stopped, TurnEnding):
                    return stopped
                state = stopped

    async def _at_stop(self, ending: TurnEnding, state: turn_state.LoopState) -> TurnEnding | turn_state.LoopState:
        structured, answered = self._context.config.structured, self._broken() or ending
        if structured is not None and answered.terminal is EndReason.COMPLETED:  # the model still owes the value
            asking = structured.missed()
            if structured.given_up is not None:
                return structured.given_up
            self._note(asking)
            return state.next_turn()
        if self._is_to_go_on(answered, state):
            return state.next_turn()
        if answered.terminal is EndReason.COMPLETED:
            outcome = await self._stop.unless_set(before_stop(self._context, answered, state))
            if outcome.stops:
                return self._hook_stopped(outcome.stop_reason or outcome.reason, EndReason.STOP_HOOK_PREVENTED)
            if outcome.blocked and not self._is_last(state):
                if state.stop_blocks < MAX_STOP_BLOCKS:
                    self._note(f"Stop hook feedback:\n{outcome.reason}")
                    await self._log.commit()
                    return state.next_turn(blocked=True)
                told = f"Stop hooks have let the turn go on {MAX_STOP_BLOCKS} times; it ends now."
                self._tell(told, "warning")
        if answered.is_empty:
            self._tell("The model ended its turn without an answer.")
        return answered

    def _is_last(self, state: turn_state.LoopState) -> bool:
        limit = self._context.config.options.max_turns
        return limit is not None and state.calls >= limit

    async def _after_tools(self, state: turn_state.LoopState) -> TurnEnding | None:
        """Return how the turn ends after the tools of an answer, None if the model is called again."""
        await self._stop.unless_set(self._executor.drain())
        if self._stop.is_set:
            raise turn_state.Interrupted
        batch = [self._batch[each] for each in self._listener.submitted]
        self._batch = {}
        outcome = await self._stop.unless_set(after_batch(self._context, batch))
        if outcome.refuses:
            self._stopped_by_hook = outcome.stop_reason or outcome.reason
        structured = self._context.config.structured
        if structured is not None and structured.value is not None:
            text = "".join(self._listener.texts)
            return TurnEnding(EndReason.COMPLETED, text=text, structured=structured.value)
        if self._is_last(state):
            limit = self._context.config.options.max_turns
            return TurnEnding(EndReason.MAX_TURNS, errors=(f"Reached maximum number of turns ({limit})",))
        if self._stopped_by_hook is not None:
            return self._hook_stopped(self._stopped_by_hook, EndReason.HOOK_STOPPED)
        broken = self._broken()
        if broken is None:
            await self._between_calls()
        return broken

    def _broken(self) -> TurnEnding | None:
        """Return how the turn ends that breaks what the client demands: a value in time, a budget."""
        config = self._context.config
        if config.structured is not None and config.structured.given_up is not None:
            return config.structured.given_up
        return config.budget.spent(self._agent.ledger.total_cost_usd) if config.budget is not None else None

    def _is_to_go_on(self, ending: TurnEnding, state: turn_state.LoopState) -> bool:
        """Tell an agent that has stopped before its token target to go on. Return whether it was told so."""
        target = self._target
        if not target.tokens or ending.terminal is not EndReason.COMPLETED or self._is_last(state):
            return False
        nudge = target.nudge(self._agent.ledger.turn["output_tokens"])
        if nudge:
            self._note(nudge)
        elif target.is_given_up:
            self._tell(f"It stops before the target of {target.tokens:,} tokens: little came of the last answers.")
        return bool(nudge)

    def _hook_stopped(self, reason: str, terminal: EndReason) -> TurnEnding:
        self._tell(f"A hook stopped the turn: {reason or 'no reason given'}")
        return TurnEnding(terminal)

    def _note(self, text: str) -> None:
        """Tell the model."""
        self._log.message(agent_messages.user_text(text, isSynthetic=True))

    def _tell(self, text: str, level: str = "info") -> None:
        """Tell the person."""
        self._log.message(agent_messages.informational(text, level))

    async def compact(self, asked: CompactStartRecord) -> str:
        """Compact before the first model call. Return what the person is told. Raise ModelError."""
        if not self._agent.conversation.messages:
            return "There is nothing to compact yet."
        await self._make_prefix()
        try:
            pre, post = await self._compactor.compact(asked)
        except CompactionFailed as failure:
            return f"The conversation was not compacted: {failure}."
        except ModelError as failure:
            if not failure.prompt_too_long:
                raise
            why = f"for {self._agent.model} it is too long even to be summed up ({failure.message})"
            return f"The conversation was not compacted: {why}. Go back with /rewind, or begin anew with /clear."
        return f"Compacted: about {pre:,} tokens became {post:,}."

    async def clear(self) -> None:
        await self._compactor.clear()
        if self._context.deps.program is not None:
            await self._context.deps.program.forget(self._log)

    async def _rescued(self, state: turn_state.LoopState) -> bool:
        return state.can_rescue and await self._stop.unless_set(self._compactor.rescue())

    @property
    def _compactor(self) -> Compactor:
        return Compactor(self._context)

    def _call_ended(self, call: ToolCall, outcome: CallOutcome) -> None:
        if outcome.stop_reason is not None:
            self._stopped_by_hook = outcome.stop_reason
        structured = self._context.config.structured
        if structured is not None and call.tool is structured and outcome.result.is_error:
            structured.missed()
        self._batch[call.id] = batched(call, outcome.result)
        if outcome.denial is not None:
            self._denials.append(outcome.denial)
        if outcome.ends_turn:
            self._refused = True
            self.interrupt()

    async def _between_calls(self) -> None:
        """Record the reminders, prompts and notes that go to the model together with the tool results."""
        if self._agent.feedback_due:
            self._agent.feedback_due = False
            self._note(turn_state.DENIAL_FEEDBACK)
        waiting = self._context.config.take_queued(self._log.agent_id)
        queued = (await self._stop.unless_set(self._opening.admit(waiting))).prompts
        said = await self._stop.unless_set(mentioned_blocks(self._context, queued))
        said += self._context.deps.reminders.take(Occasion.TOOL_RESULTS)
        if queued or said:
            self._add_prompts(queued, said)
            await self._log.commit()

    async def _interrupted(self) -> TurnEnding:
        """Stop everything, keep what was received, close open tool calls, and leave a note for the model."""
        await self._executor.cancel()
        answering = self._model.interrupted()
        self._close_open(self._why_stopped)
        if self._agent.conversation.compactions.unfinished is not None:
            self._log.record(CompactEndRecord("interrupted"))
            self._log.message(agent_messages.status_message(compact_result="failed"))
        in_tools = self._refused or bool(not answering and self._listener.submitted)
        note = agent_messages.INTERRUPTED_FOR_TOOL if in_tools else agent_messages.INTERRUPTED
        self._log.message(agent_messages.user_text(note))
        terminal = EndReason.ABORTED_TOOLS if in_tools else EndReason.ABORTED_STREAMING
        return TurnEnding(terminal, errors=("Request interrupted by user",))

    def _why_stopped(self, tool_use_id: str) -> str:
        if tool_use_id not in self._context.printed:
            return NOT_RUN
        printed = self._context.printed[tool_use_id].rstrip("\n")
        return f"{STOPPED}\nIt had printed:\n{printed}" if printed else STOPPED

    def _close_open(self, why: str | Callable[[str], str]) -> None:
        for message in close_open_tool_uses(self._agent.conversation, why):
            self._log.message(message.body)


def _not_kept(error: NotKept) -> TurnEnding:
    return TurnEnding(EndReason.STORAGE_FULL if error.full else EndReason.MODEL_ERROR, errors=(str(error),))
