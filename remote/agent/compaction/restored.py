"""What the model gets again after a compaction: instruction files, the files it works on, its todo list, reminders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.spelling import spelled, unspelled
from ccb.tunnel.wire.tool_traits import READ

from ...context.reminders import Occasion, reminder_block
from ..deps import AgentConfig, AgentDeps
from ..mentions.reading import cut, run_unasked
from ..state import AgentState

Json = dict[str, Any]

_MAX_FILES = 5
_MAX_FILE_TOKENS = 5_000


async def restored_blocks(config: AgentConfig, deps: AgentDeps, agent: AgentState, room: int) -> list[Json]:
    """Return the blocks that follow the summary. Files take at most `room` tokens."""
    paths = recent_files(agent.conversation.files.paths, config.context.cwd)
    blocks = list(await config.prompts.first_user_blocks())
    config.context.files.forget_views()
    texts = []
    for path in paths:
        result = await run_unasked(config, agent, READ.name, {"file_path": path})
        if result is not None and isinstance(result.content, str):
            text = cut(result.content, 4 * min(_MAX_FILE_TOKENS, room // _MAX_FILES))
            texts.append(f"{path}:\n{text}")
            if deps.nested is not None:  # a new worker has not seen the calls that were about these files
                await deps.nested.work_on(unspelled(path))
    if texts:
        config.context.files.forget_views()  # what was cut here can be read in full
        blocks.append(reminder_block(["Files that you worked with last, as they are now.", *texts]))
    todos = config.context.todos.items
    if todos:
        lines = [f"- [{item['status']}] {item['content']}" for item in todos]
        blocks.append(reminder_block(["Your todo list:\n" + "\n".join(lines)]))
    return blocks + deps.reminders.take(Occasion.COMPACTED)


def recent_files(named: Sequence[str], cwd: str) -> list[str]:
    """Return the files among those with these names that were used last, the oldest of them first."""
    found = dict.fromkeys(os.path.normpath(os.path.join(spelled(cwd), name)) for name in reversed(named))
    return list(found)[:_MAX_FILES][::-1]
