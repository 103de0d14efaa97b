"""The report on what fills the model's window (`/context`)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ESTIMATED, sent_name
from ccb.tunnel.wire.ndjson import dump, to_bytes

from ..model import model_request
from ..model.model_request import ModelLinkError, RequestPrefix, betas_of
from ..model.token_counts import ContextLimits, WindowSettings, block_tokens, text_tokens
from ..system.deadline import within
from .agent_config import AgentDeps
from .turn_state import AgentState

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
    headers = {**model_request.headers(deps.version, betas_of(agent.model)), "accept": "application/json"}

    async def ask() -> object:
        async with deps.transport.request(new_uuid(), "POST", _PATH, headers, pieces) as response:
            body = b""
            async for data in response.body():
                body += data[: _MAX_BYTES - len(body)]
            answer = json.loads(body) if response.status == 200 else {}
            return None if answer.get(ESTIMATED) else answer.get("input_tokens")

    try:
        counted = await within(_SECONDS, ask())
    except (ModelLinkError, asyncio.TimeoutError, ValueError, RecursionError, AttributeError) as error:
        _log.info("the provider did not count the tokens: %r", error)
        return None
    return counted if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0 else None


Json = dict[str, Any]

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
    limits: ContextLimits
    auto: bool
    used: int
    parts: dict[str, int]
    exact: bool = False

    @property
    def percentage(self) -> int:
        return round(100 * self.used / self.limits.window)

    def public(self) -> Json:
        shown = [
            {"name": name, "tokens": tokens, "color": _LOOKS[name][1]} for name, tokens in self.parts.items() if tokens
        ]
        cells = [{"categoryName": name, "color": _LOOKS[name][1], "isFilled": True} for name in self._cells()]
        return {
            "categories": shown,
            "totalTokens": self.used,
            "maxTokens": self.limits.window,
            "rawMaxTokens": self.limits.window,
            "percentage": self.percentage,
            "gridRows": [cells[row : row + _COLUMNS] for row in range(0, _CELLS, _COLUMNS)],
            "model": self.model,
            "memoryFiles": [],
            "mcpTools": [],
            "agents": [],
            "isAutoCompactEnabled": self.auto,
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
        compacts = f"compacted at {_short(self.limits.auto)} tokens" if self.auto else "compacted by /compact only"
        return "\n".join([*lines, "", f"The conversation is {compacts}."])

    def _cells(self) -> list[str]:
        """Return the category of each cell. What is there has at least one."""
        found: list[str] = []
        for name, tokens in self.parts.items():
            if name in ("Free space", "Kept free for compaction"):
                break
            found += [name] * max(int(tokens > 0), round(_CELLS * tokens / self.limits.window))
        kept = round(_CELLS * self.parts["Kept free for compaction"] / self.limits.window)
        free = max(0, _CELLS - len(found) - kept)
        return [*found, *["Free space"] * free, *["Kept free for compaction"] * kept][:_CELLS]


def context_report(
    agent: AgentState,
    prefix: RequestPrefix,
    window: WindowSettings,
    counted: int | None = None,
    coming: Sequence[Json] = (),
) -> ContextReport:
    """Return what fills the window. The sum is counted or known from the last answer; the parts are estimates. `coming`
    are blocks that go before the first prompt."""
    limits = ContextLimits.of(agent.facts, window)
    system, tools = text_tokens(prefix.system_size), text_tokens(prefix.tools_size)
    notes = results = rest = 0
    for block in chain(coming, *(message.blocks for message in agent.conversation.messages)):
        tokens = block_tokens(block)
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


def _short(count: int) -> str:
    return str(count) if count < 1_000 else f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"
