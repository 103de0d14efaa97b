"""One run of a sub-agent, its activity, and the messages about it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import ModelEndRecord, Projection, Record, WorktreeRecord, on
from ccb.tunnel.wire.messages import AssistantMessage
from ccb.tunnel.wire.model_facts import TOKENS, count

from ..agent.agent import Agent
from ..agent.agent_histories import Ledger
from ..agent.agent_messages import task_message
from ..agent.turn_state import EndReason, Prompt
from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog
from ..tools.tasks import TaskStatus
from ..tools.tool_contract import ToolContext, ToolResult

_MAX_SUBJECT = 100  # characters


class ChildActivity(Projection):
    """What one sub-agent does. `tokens` is the size of the newest request plus all output."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.tool_uses = 0
        self.last_tool = ""
        self.doing = ""
        self.answer = ""  # the newest that has a text
        self._changed = changed
        self._context = self._output = 0

    @property
    def tokens(self) -> int:
        return self._context + self._output

    @on(ModelEndRecord)
    def _model_end(self, content: ModelEndRecord, _: Record) -> None:
        self._context = sum(count(content.usage, name) for name in TOKENS[:3])
        self._output += count(content.usage, "output_tokens")
        self._changed()

    @on(AssistantMessage)
    def _assistant(self, line: AssistantMessage, _: Record) -> None:
        if line.is_api_error:
            return
        for block in line.blocks:
            if block.get("type") == "tool_use":
                self.tool_uses += 1
                self.last_tool = str(block.get("name"))
                given = block.get("input")
                texts = [each for each in given.values() if isinstance(each, str)] if isinstance(given, dict) else []
                subject = " ".join(next(filter(str.strip, texts), "").split())[:_MAX_SUBJECT]
                self.doing = f"{self.last_tool} {subject}".strip()
                self._changed()
            elif block.get("type") == "text" and str(block.get("text")).strip():
                self.answer = str(block["text"])


_GRACE_S = 4.0  # less than the executor of the main agent waits for a cancelled tool
_SHOWN_EVERY_S = 1.0
_MAX_SUMMARY = 500  # characters
_WORDS = {
    EndReason.MAX_TURNS: "It reached the limit of its turns before it was done.",
    EndReason.PROMPT_TOO_LONG: "Its conversation no longer fits its model's context window.",
    EndReason.ABORTED_TOOLS: "The user stopped it.",
    EndReason.ABORTED_STREAMING: "The user stopped it.",
}


class Child:
    """A sub-agent at work for a call of the main agent, whose `context` it reports to."""

    def __init__(self, facts: TaskFacts, log: SessionLog, context: ToolContext, *, background: bool = False) -> None:
        self.status = TaskStatus.RUNNING
        self.text = ""  # its answer, or why there is none
        self.stopping = False  # by itself, without the turn that started it
        self._background = background
        self.activity = ChildActivity(self._changed)
        self.refused = False  # the person ended the turn by refusing a call
        self.tree: WorktreeRecord | None = None  # None in the session's directory
        self.facts, self._log, self.context = facts, log, context
        self._started = time.monotonic()
        self._agent: Agent | None = None  # while it works

    def stop(self) -> bool:
        """End its turn, and let the one that waits for it go on. Return False if it has not begun, or has ended."""
        self.stopping = self._agent is not None and self._agent.interrupt()
        return self.stopping

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def usage(self) -> Json:
        doing, duration = self.activity, round(self.seconds * 1000)
        return {"total_tokens": doing.tokens, "tool_uses": doing.tool_uses, "duration_ms": duration}

    async def run(self, agent: Agent, ledger: Ledger, parent: Agent) -> ToolResult:
        self._started = time.monotonic()
        facts = self.facts
        if not self._background:
            more = {"task_type": "local_agent", "is_backgrounded": False, "prompt": facts.prompt}
            self._log.say(facts.message("task_started", description=facts.description, **more))
        self._agent = agent
        turn = asyncio.ensure_future(agent.run_turn([Prompt([{"type": "text", "text": facts.prompt}])]))
        clock = asyncio.ensure_future(self._show_time())
        try:
            result = await asyncio.shield(turn)
        except asyncio.CancelledError:
            if self.stopping or (parent.interrupted and not self._background):
                agent.interrupt()
                await asyncio.wait({turn}, timeout=_GRACE_S)
                with contextlib.suppress(NotKept):
                    self._ended(TaskStatus.KILLED, "It was stopped.")
                self.context.call.stopped(self.activity.answer)
            raise
        finally:
            clock.cancel()
            if not turn.done():
                turn.cancel()
                await asyncio.wait({turn}, timeout=_GRACE_S)
            if turn.done() and not turn.cancelled():
                turn.exception()
        return self._result(agent, ledger, result)

    def _result(self, agent: Agent, ledger: Ledger, result: Json) -> ToolResult:
        terminal = EndReason(result["terminal_reason"])
        completed = terminal is EndReason.COMPLETED
        self.refused = not self.stopping and terminal in (EndReason.ABORTED_TOOLS, EndReason.ABORTED_STREAMING)
        text = said = str(result.get("result") or "")
        if not completed:
            why = _WORDS.get(terminal) or f"It failed: {said or ' '.join(result.get('errors') or ())}"
            words = f" The last that it said:\n{self.activity.answer}" if self.activity.answer else ""
            text = f"The agent did not finish. {why}{words}"
        failed = not completed and not self.activity.answer
        self.text = text
        self._ended(TaskStatus.COMPLETED if completed else TaskStatus.FAILED, text)
        usage, facts = self.usage, self.facts
        structured: Json = {
            "status": "completed" if completed else "failed",
            "prompt": facts.prompt,
            "agentId": facts.id,
            "agentType": facts.agent,
            "content": [{"type": "text", "text": text}],
            "resolvedModel": agent.model,
            "totalTokens": usage["total_tokens"],
            "totalToolUseCount": usage["tool_uses"],
            "totalDurationMs": usage["duration_ms"],
            "totalCostUsd": ledger.total_cost_usd,
            "usage": result["usage"],
        }
        told = f"{self._counted}, {self.seconds:.0f} s"
        answer = text or "(The agent gave no answer.)"
        return ToolResult(f"{answer}\n\n<usage>agentId {self.facts.id}, {told}</usage>", failed, structured)

    def kept(self, result: ToolResult, tree: WorktreeRecord) -> ToolResult:
        told = _left_in(tree)
        self.text += told
        structured = {**result.structured, "worktreePath": tree.path, "worktreeBranch": tree.branch}
        return replace(result, content=f"{result.content}{told}", structured=structured)

    def stopped_in(self, tree: WorktreeRecord) -> None:
        self.context.call.stopped(f"{self.activity.answer}{_left_in(tree)}")

    def _ended(self, status: TaskStatus, text: str) -> None:
        self.status = status
        if not self._background:
            summary = text.partition("\n")[0][:_MAX_SUMMARY]
            more = {"output_file": "", "summary": summary, "usage": self.usage}
            self._log.say(self.facts.message("task_notification", status=status.public, **more))

    def _changed(self) -> None:
        does = self.activity.doing or self.facts.description
        more = {"usage": self.usage, "last_tool_name": self.activity.last_tool}
        message = self.facts.message("task_progress", description=does, **more)
        self._log.progress(f"{self.facts.id}:task", message)
        self._show()

    def _show(self) -> None:
        if self._background:
            return
        line = "\n".join(filter(None, [self.activity.doing, self._counted]))
        self.context.call.progress({"output": line, "total_bytes": len(line), "elapsed_seconds": self.seconds})

    @property
    def _counted(self) -> str:
        return f"{self.activity.tool_uses} tool uses, {self.activity.tokens} tokens"

    async def _show_time(self) -> None:
        while True:
            await asyncio.sleep(_SHOWN_EVERY_S)
            self._show()


def _left_in(tree: WorktreeRecord) -> str:
    branch = f", on the branch {tree.branch}" if tree.branch else ""
    return f"\n\nIts changes are in the git worktree {tree.path}{branch}."


_MAX_LABEL = 120  # characters


@dataclass(frozen=True)
class TaskFacts:
    """`id` is the id of the call that started the agent, `call_id` that of the call it works for now."""

    id: str
    agent: str
    description: str
    prompt: str
    call_id: str = ""

    @property
    def label(self) -> str:
        return " ".join(f"{self.agent}: {self.description}".split())[:_MAX_LABEL]

    def message(self, subtype: str, **more: object) -> Json:
        call_id = self.call_id or self.id
        return task_message(subtype, self.id, tool_use_id=call_id, subagent_type=self.agent, **more)
