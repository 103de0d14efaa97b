"""What the model gets again after a compaction: instruction files, the files it works on, its todo list, reminders."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.tool_traits import READ, traits_of

from ...context.reminders import Occasion, reminder_block
from ...model.tokens import text_tokens
from ...permissions.decision import Behavior
from ..conversation import HistoryMessage
from ..deps import AgentConfig, AgentDeps
from ..pipeline import ParsedCall, decide
from ..state import AgentState

Json = dict[str, Any]

_log = logging.getLogger(__name__)

_MAX_FILES = 5
_MAX_FILE_TOKENS = 5_000


async def restored_blocks(config: AgentConfig, deps: AgentDeps, agent: AgentState, room: int) -> list[Json]:
    """Return the blocks that follow the summary. Files take at most `room` tokens."""
    paths = recent_files(agent.conversation.messages)
    blocks = list(await config.prompts.first_user_blocks())
    config.context.files.forget_views()
    texts = []
    for path in paths:
        text = await _file_text(config, agent, path, min(_MAX_FILE_TOKENS, room // _MAX_FILES))
        if text:
            texts.append(f"{path}:\n{text}")
    if texts:
        config.context.files.forget_views()  # what was cut here can be read in full
        blocks.append(reminder_block(["Files that you worked with last, as they are now.", *texts]))
    todos = config.context.todos.items
    if todos:
        lines = [f"- [{item['status']}] {item['content']}" for item in todos]
        blocks.append(reminder_block(["Your todo list:\n" + "\n".join(lines)]))
    return blocks + deps.reminders.take(Occasion.COMPACTED)


def recent_files(messages: Sequence[HistoryMessage]) -> list[str]:
    """Return the files that were read or written last, the oldest of them first."""
    found: list[str] = []
    for message in reversed(messages):
        if message.role != "assistant":
            continue
        for block in reversed(message.blocks):
            is_call = block.get("type") == "tool_use"
            path = traits_of(str(block.get("name"))).file_in(block["input"]) if is_call else ""
            if path and path not in found:
                found.append(path)
                if len(found) == _MAX_FILES:
                    return found[::-1]
    return found[::-1]


async def _file_text(config: AgentConfig, agent: AgentState, path: str, tokens: int) -> str:
    """Return what Read shows of a file that may be read without asking, cut to its share; "" if there is nothing."""
    tool, given = agent.tools.get(READ.name), {"file_path": path}
    if tool is None or tokens <= 0:
        return ""
    try:
        decision = decide(config, ParsedCall("", tool, given), can_ask=False)
        if decision.behavior is not Behavior.ALLOW:
            return ""
        context = dataclasses.replace(config.context, cage=decision.cage, pinned=decision.pinned)
        result = await tool.run(given, context)
    except Exception:  # noqa: BLE001 - without this file the agent goes on as well
        _log.exception("%s could not be read again", path)
        return ""
    if result.is_error or not isinstance(result.content, str):
        return ""
    if text_tokens(len(result.content)) <= tokens:
        return result.content
    return result.content[: tokens * 4].rpartition("\n")[0] + "\n(cut here)"
