"""One run of a sub-agent, its activity, and the messages about it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import ModelEndRecord, Record, WorktreeRecord
from ccb.tunnel.wire.messages import AssistantMessage
from ccb.tunnel.wire.model_facts import TOKENS, count
from ccb.tunnel.wire.projection import Projection, on

from ..agent.agent import Agent
from ..agent.agent_histories import Ledger
from ..agent.turn_state import EndReason, Prompt
from ..model.model_call import Clock
from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog
from ..tools.tasks import TaskStatus
from ..tools.tool_contract import ToolContext, ToolResult

Json = dict[str, Any]

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
                self.doing = f"{self.last_tool} {_subject(block.get('input'))}".strip()
                self._changed()
            elif block.get("type") == "text" and str(block.get("text")).strip():
                self.answer = str(block["text"])


def _subject(tool_input: object) -> str:
    values = tool_input.values() if isinstance(tool_input, dict) else ()
    first = next((value for value in values if isinstance(value, str) and value.strip()), "")
    return " ".join(first.split())[:_MAX_SUBJECT]


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
        self.facts = facts
        self._log = log
        self.context = context
        self._clock = Clock()
        self._started = self._clock.now()

    @property
    def usage(self) -> TaskUsage:
        return TaskUsage(self.activity.tokens, self.activity.tool_uses, self._clock.now() - self._started)

    async def run(self, agent: Agent, ledger: Ledger, parent: Agent) -> ToolResult:
        """Run the agent's turn. When cancelled by the person, the turn ends with a note first."""
        self._started = self._clock.now()
        if not self._background:
            self._log.say(task_started(self.facts))
        prompt = Prompt([{"type": "text", "text": self.facts.prompt}])
        turn = asyncio.ensure_future(agent.run_turn([prompt]))
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
        self.refused = terminal in (EndReason.ABORTED_TOOLS, EndReason.ABORTED_STREAMING)
        text = str(result.get("result") or "") if completed else self._partial(terminal, result)
        failed = not completed and not self.activity.answer
        self.text = text
        self._ended(TaskStatus.COMPLETED if completed else TaskStatus.FAILED, text)
        usage = self.usage
        structured: Json = {
            "status": "completed" if completed else "failed",
            "prompt": self.facts.prompt,
            "agentId": self.facts.id,
            "agentType": self.facts.agent,
            "content": [{"type": "text", "text": text}],
            "resolvedModel": agent.model,
            "totalTokens": usage.tokens,
            "totalToolUseCount": usage.tool_uses,
            "totalDurationMs": round(usage.seconds * 1000),
            "totalCostUsd": ledger.total_cost_usd,
            "usage": result["usage"],
        }
        told = f"{usage.tool_uses} tool uses, {usage.tokens} tokens, {usage.seconds:.0f} s"
        answer = text or "(The agent gave no answer.)"
        return ToolResult(f"{answer}\n\n<usage>agentId {self.facts.id}, {told}</usage>", failed, structured)

    def kept(self, result: ToolResult, tree: WorktreeRecord) -> ToolResult:
        told = _left_in(tree)
        self.text += told
        structured = {**result.structured, "worktreePath": tree.path, "worktreeBranch": tree.branch}
        return replace(result, content=f"{result.content}{told}", structured=structured)

    def stopped_in(self, tree: WorktreeRecord) -> None:
        self.context.call.stopped(f"{self.activity.answer}{_left_in(tree)}")

    def _partial(self, terminal: EndReason, result: Json) -> str:
        said = str(result.get("result") or "") or " ".join(result.get("errors") or ())
        why = _WORDS.get(terminal) or f"It failed: {said}"
        words = f" The last that it said:\n{self.activity.answer}" if self.activity.answer else ""
        return f"The agent did not finish. {why}{words}"

    def _ended(self, status: TaskStatus, text: str) -> None:
        self.status = status
        if not self._background:
            summary = text.partition("\n")[0][:_MAX_SUMMARY]
            self._log.say(task_notification(self.facts, status.public, summary, self.usage))

    def _changed(self) -> None:
        message = task_progress(self.facts, self.usage, self.activity.doing, self.activity.last_tool)
        self._log.progress(f"{self.facts.id}:task", message)
        self._show()

    def _show(self) -> None:
        if self._background:
            return
        usage, doing = self.usage, self.activity.doing
        counted = f"{usage.tool_uses} tool uses, {usage.tokens} tokens"
        line = f"{doing}\n{counted}" if doing else counted
        self.context.call.progress({"output": line, "total_bytes": len(line), "elapsed_seconds": usage.seconds})

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


@dataclass(frozen=True)
class TaskUsage:
    tokens: int
    tool_uses: int
    seconds: float

    def public(self) -> Json:
        return {
            "total_tokens": self.tokens,
            "tool_uses": self.tool_uses,
            "duration_ms": round(self.seconds * 1000),
        }


def task_started(facts: TaskFacts) -> Json:
    return {
        **_about("task_started", facts),
        "description": facts.description,
        "task_type": "local_agent",
        "is_backgrounded": False,
        "prompt": facts.prompt,
    }


def task_progress(facts: TaskFacts, usage: TaskUsage, doing: str, last_tool: str) -> Json:
    return {
        **_about("task_progress", facts),
        "description": doing or facts.description,
        "usage": usage.public(),
        "last_tool_name": last_tool,
    }


def task_notification(facts: TaskFacts, status: str, summary: str, usage: TaskUsage | None = None) -> Json:
    body = {**_about("task_notification", facts), "status": status, "output_file": "", "summary": summary}
    return body if usage is None else {**body, "usage": usage.public()}


def _about(subtype: str, facts: TaskFacts) -> Json:
    return {
        "type": "system",
        "subtype": subtype,
        "task_id": facts.id,
        "tool_use_id": facts.call_id or facts.id,
        "subagent_type": facts.agent,
    }
