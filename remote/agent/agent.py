"""An agent: one conversation with a model, one turn at a time."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT
from ccb.tunnel.wire.model_facts import ESTIMATED, sent_name
from ccb.tunnel.wire.ndjson import dump, to_bytes

from ..context.reminders import DeferredNames
from ..model import model_request
from ..system.deadline import within
from ..tools.todo import todo_reminder
from ..tools.tool_contract import Tool
from .agent_config import AgentConfig, AgentDeps
from .agent_histories import AgentLog, Ledger
from .conversation import Conversation
from .model_calls import judged, new_prefix, side_answer
from .turn import Turn
from .turn_state import AgentProgram, AgentState, Prompt


class Agent:
    """The tools that the model is offered change only when a turn starts: the request prefix stays the same."""

    def __init__(self, config: AgentConfig, deps: AgentDeps, conversation: Conversation, ledger: Ledger) -> None:
        self._config = config
        self._next = config  # takes effect at the next turn
        self._deps = deps
        self.reminders = deps.reminders
        self.ledger = ledger
        self.hooks = deps.hooks
        self.commands = deps.commands
        model = config.model_id(conversation.model or config.options.model)
        conversation.use(model)
        self._registered = config.tools.begin_turn()  # the registry's tools at the start of the last turn
        tools, listed = config.callable_tools(), self._listed_tools(config)
        self._state = AgentState(conversation, ledger, deps.models, model, tools, listed)
        self._turn: Turn | None = None
        deps.reminders.follow(deps.nested.due)
        shared = conversation.agent_id != MAIN_AGENT and any(tool.traits.todo_items for tool in tools.values())
        if not shared:  # else the main agent is reminded
            deps.reminders.follow(lambda occasion: todo_reminder(self._config.context.todos, occasion))
        deps.reminders.follow(DeferredNames(lambda: list(self._config.deferred_tools())))

    @property
    def config(self) -> AgentConfig:
        """The configuration of the next turn."""
        return self._next

    @property
    def conversation(self) -> Conversation:
        return self._state.conversation

    @property
    def model(self) -> str:
        return self._state.model

    @property
    def program(self) -> AgentProgram | None:
        return self._deps.program

    @property
    def online(self) -> bool:
        return self._deps.link_up_since() is not None

    @property
    def budget_spent(self) -> bool:
        budget = self._config.budget
        return budget is not None and budget.spent(self.ledger.total_cost_usd) is not None

    @property
    def interrupted(self) -> bool:
        return self._turn is not None and self._turn.interrupted

    @property
    def running_turn(self) -> Turn:
        assert self._turn is not None
        return self._turn

    async def context_report(self) -> ContextReport:
        """Return what fills the model's window: counted by the provider if it can, estimated before the first turn."""
        if self._deps.program is not None:
            return program_report(self._deps.program)
        config, prefix = self._config, self._state.prefix
        if prefix is None:
            config = self._next
            prefix = await new_prefix(config, self._listed_tools(config))
        counted = await count_tokens(self._deps, self._state)
        coming = () if self._state.conversation.messages else await config.prompts.first_user_blocks()
        return context_report(self._state, prefix, config.window, counted, coming)

    async def small_answer(self, system: str, text: str) -> str:
        """Ask the small model. Raise ModelError."""
        return await judged(self._config, self._deps, self._state, system, text, model_request.SMALL)

    async def side_answer(self, question: str) -> str | None:
        return await side_answer(self._deps, self._state, question)

    def set_model(self, name: str | None) -> None:
        """Use another model from the next model call on; None means the model of the configuration."""
        self._state.use_model(self.model_of(name), AgentLog(self._deps.log, self._state.conversation))

    def model_of(self, name: str | None) -> str:
        return self._next.model_id(name or self._next.options.model)

    def rewind(self, conversation: Conversation) -> None:
        self._state.conversation = conversation
        conversation.use(self._state.model)

    def configure(self, config: AgentConfig) -> None:
        self._next = config

    def interrupt(self) -> bool:
        if self._turn is None:
            return False
        self._turn.interrupt()
        return True

    async def run_turn(self, prompts: Sequence[Prompt]) -> Json:
        """Run one turn and return its durable `result`. Raise NotKept when the journal fails."""
        self._take_config()
        limits = self._deps.limits.over(self._config.settings.env)
        self._turn = Turn(self._config, replace(self._deps, limits=limits), self._state)
        try:
            return await self._turn.run(prompts)
        finally:
            self._turn = None

    def _take_config(self) -> None:
        """Apply a new configuration; drop the request prefix only when prompts or declarations changed."""
        old, new = self._config, self._next
        registered = new.tools.begin_turn()
        if new is old and registered == self._registered:
            return
        listed = self._listed_tools(new)
        declared = [each.declaration for each in self._state.listed]
        if new.prompts is not old.prompts or [each.declaration for each in listed] != declared:
            self._state.prefix = None
        self._state.tools, self._state.listed = new.callable_tools(), listed
        self._registered, self._config = registered, new

    def _listed_tools(self, config: AgentConfig) -> tuple[Tool, ...]:
        return config.listed_tools(can_ask=self._deps.broker.can_ask(CAN_USE_TOOL))


_log = logging.getLogger(__name__)

_PATH = model_request.PATH + "/count_tokens"
_SECONDS = 5.0
_MAX_BYTES = 1 << 16


async def count_tokens(deps: AgentDeps, agent: AgentState) -> int | None:
    """Return the size of the next request, None if the provider cannot count it now."""
    conversation = agent.conversation
    if agent.prefix is None or not conversation.messages or conversation.open_tool_uses or deps.link_up_since() is None:
        return None
    pieces = [agent.prefix.encoded]
    pieces += [(b"," if place else b"") + each.encoded() for place, each in enumerate(conversation.messages)]
    pieces.append(to_bytes("]," + dump({"model": sent_name(agent.model)})[1:]))
    headers = {**model_request.headers(deps.version, model_request.betas_of(agent.model)), "accept": "application/json"}

    async def ask() -> object:
        async with deps.transport.request(new_uuid(), "POST", _PATH, headers, pieces) as response:
            body = b""
            async for data in response.body():
                body += data[: _MAX_BYTES - len(body)]
            answer = json.loads(body) if response.status == 200 else {}
            return None if answer.get(ESTIMATED) else answer.get("input_tokens")

    try:
        counted = await within(_SECONDS, ask())
    except (model_request.ModelLinkError, asyncio.TimeoutError, ValueError, RecursionError, AttributeError) as error:
        _log.info("the provider did not count the tokens: %r", error)
        return None
    return counted if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0 else None


_ROWS, _COLUMNS = 5, 40
_CELLS = _ROWS * _COLUMNS
_LOOKS = {  # the glyph in the picture, the colour for clients that have colours
    "System prompt": ("▓", "promptBorder"),
    "Tools": ("▒", "inactive"),
    "Instructions and notes": ("◆", "claude"),
    "Tool results": ("▚", "warning"),
    "Messages": ("█", "permission"),
    "Free space": ("·", "inactive"),
    "Kept free for compaction": ("×", "inactive"),
}


@dataclass(frozen=True)
class ContextReport:
    """`parts` are the tokens of each category in the order of the request; their sum is the window."""

    model: str
    limits: model_request.ContextLimits
    auto: bool | None
    used: int
    parts: dict[str, int]
    exact: bool = False

    @property
    def percentage(self) -> int:
        return round(100 * self.used / self.limits.window)

    def public(self) -> Json:
        cells = [{"categoryName": name, "color": _LOOKS[name][1], "isFilled": True} for name in self._cells()]
        shown = [(name, tokens) for name, tokens in self.parts.items() if tokens]
        return {
            "categories": [{"name": name, "tokens": tokens, "color": _LOOKS[name][1]} for name, tokens in shown],
            "totalTokens": self.used,
            "maxTokens": self.limits.window,
            "rawMaxTokens": self.limits.window,
            "percentage": self.percentage,
            "gridRows": [cells[row : row + _COLUMNS] for row in range(0, _CELLS, _COLUMNS)],
            "model": self.model,
            "memoryFiles": [],
            "mcpTools": [],
            "agents": [],
            "isAutoCompactEnabled": bool(self.auto),
            "autoCompactThreshold": self.limits.auto,
        }

    def text(self) -> str:
        glyphs = "".join(_LOOKS[name][0] for name in self._cells())
        size = f"{'' if self.exact else 'about '}{_short(self.used)} of {_short(self.limits.window)} tokens"
        lines = [f"{self.model}: {size} ({self.percentage} %)", ""]
        lines += [f"  {glyphs[row : row + _COLUMNS]}" for row in range(0, _CELLS, _COLUMNS)]
        lines.append("")
        width = max(map(len, _LOOKS))
        for name, tokens in self.parts.items():
            share = 100 * tokens / self.limits.window
            lines.append(f"  {_LOOKS[name][0]} {name:<{width}} {_short(tokens):>7} {share:5.1f} %")
        if self.auto is not None:
            compacts = f"compacted at {_short(self.limits.auto)} tokens" if self.auto else "compacted by /compact only"
            lines += ["", f"The conversation is {compacts}."]
        return "\n".join(lines)

    def _cells(self) -> list[str]:
        """Return the name of the part in each cell. A part that is there has one at least; the rest is free."""
        shares = {
            name: max(int(tokens > 0), round(_CELLS * tokens / self.limits.window))
            for name, tokens in self.parts.items()
        }
        shares["Free space"] += _CELLS - sum(shares.values())
        return [name for name, share in shares.items() for _ in range(share)][:_CELLS]


def context_report(
    agent: AgentState,
    prefix: model_request.RequestPrefix,
    window: model_request.WindowSettings,
    counted: int | None = None,
    coming: Sequence[Json] = (),
) -> ContextReport:
    """Return what fills the window. The sum is counted or known from the last answer; the parts are estimates. `coming`
    are blocks that go before the first prompt."""
    limits = model_request.ContextLimits.of(agent.facts, window)
    system, tools = model_request.text_tokens(prefix.system_size), model_request.text_tokens(prefix.tools_size)
    notes = results = rest = 0
    for block in chain(coming, *(message.blocks for message in agent.conversation.messages)):
        tokens = model_request.block_tokens(block)
        if block.get("type") == "tool_result":
            results += tokens
        elif str(block.get("text", "")).startswith("<system-reminder>"):
            notes += tokens
        else:
            rest += tokens
    estimated = system + tools + notes + results + rest
    used = counted or (agent.tokens if agent.prefix is not None else estimated)
    scale = used / estimated if estimated else 0
    system, tools, notes, results = (round(part * scale) for part in (system, tools, notes, results))
    kept = limits.window - limits.auto if window.auto else 0
    parts = {
        "System prompt": system,
        "Tools": tools,
        "Instructions and notes": notes,
        "Tool results": results,
        "Messages": max(0, used - system - tools - notes - results),
        "Free space": max(0, limits.window - used - kept),
        "Kept free for compaction": min(kept, max(0, limits.window - used)),
    }
    return ContextReport(agent.model, limits, window.auto, used, parts, exact=bool(counted))


def program_report(program: AgentProgram) -> ContextReport:
    facts = program.facts
    parts = {"Messages": facts.used, "Free space": max(0, facts.size - facts.used)}
    limits = model_request.ContextLimits(facts.size or 1, 0, facts.size, facts.size)
    return ContextReport(facts.models.current or program.name, limits, None, facts.used, parts, exact=True)


def _short(count: int) -> str:
    return str(count) if count < 1_000 else f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"
