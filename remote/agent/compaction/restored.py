"""What the model gets again after a compaction: instruction files, the files it works on, its todo list, reminders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.tool_traits import READ, traits_of

from ...context.reminders import Occasion, reminder_block
from ..deps import AgentConfig, AgentDeps
from ..history.history_message import HistoryMessage
from ..mentions.reading import cut, run_unasked
from ..state import AgentState

Json = dict[str, Any]

_MAX_FILES = 5
_MAX_FILE_TOKENS = 5_000


async def restored_blocks(config: AgentConfig, deps: AgentDeps, agent: AgentState, room: int) -> list[Json]:
    """Return the blocks that follow the summary. Files take at most `room` tokens."""
    paths = recent_files(agent.conversation.messages)
    blocks = list(await config.prompts.first_user_blocks())
    config.context.files.forget_views()
    texts = []
    for path in paths:
        result = await run_unasked(config, agent, READ.name, {"file_path": path})
        if result is not None and isinstance(result.content, str):
            text = cut(result.content, 4 * min(_MAX_FILE_TOKENS, room // _MAX_FILES))
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
