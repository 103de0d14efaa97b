"""Files and MCP resources that a prompt names with `@`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import Any

from ccb.tunnel.wire.prompt_content import is_attached_file
from ccb.tunnel.wire.spelling import spelled, unspelled
from ccb.tunnel.wire.tool_traits import LS, READ, READ_MCP_RESOURCE

from ..context.reminders import reminder_block
from ..permissions.rules import Behavior
from ..tools.tool_contract import CallContext, ToolResult
from .agent_hooks import works_on
from .tool_call import ParsedCall, TurnContext
from .tool_permission import decide
from .turn_state import Prompt

Json = dict[str, Any]

_MENTION = re.compile(r'(?:^|(?<=[\s(\[]))@(?:"([^"\n]+)"|([^\s"]+))')
_LINES = re.compile(r"#L(\d+)(?:-L?(\d+))?\Z")
_MAX_MENTIONS = 10
_MAX_CHARS = 30_000  # of one file
_DEFAULT_LINES = 200  # behind a line that is named alone


async def mentioned_blocks(context: TurnContext, prompts: Sequence[Prompt]) -> list[Json]:
    """Return the blocks that go before the prompts. A word that names nothing readable stays a word."""
    typed = [b for prompt in prompts if not prompt.origin for b in prompt.blocks if not is_attached_file(b)]
    texts = [str(block.get("text")) for block in typed if "text" in block]
    named = dict.fromkeys(quoted or plain for text in texts for quoted, plain in _MENTION.findall(text))
    blocks: list[Json] = []
    for each in list(named)[:_MAX_MENTIONS]:
        blocks += await _blocks(context, each)
    return blocks


async def _blocks(context: TurnContext, named: str) -> list[Json]:
    for name in dict.fromkeys((named, named.rstrip(".,;:!?)]'"))):
        lines = _LINES.search(name)
        plain = unspelled(name[: lines.start()] if lines else name)
        path = os.path.join(context.config.context.cwd, os.path.expanduser(plain))
        if name and os.path.exists(path):
            found = await _shown(context, os.path.normpath(path), lines)
            if found is not None and os.path.isfile(path):
                await works_on(context, os.path.normpath(path))
        else:
            found = await _resource(context, name)
            if found is None:
                continue
        if found is None:
            return []
        said, result = found
        if isinstance(result.content, str):
            return [reminder_block([f"The user names {said}:\n{cut(result.content, _MAX_CHARS)}"])]
        return [reminder_block([f"The user names {said}. It follows."]), *result.content]
    return []


async def _resource(context: TurnContext, name: str) -> tuple[str, ToolResult] | None:
    server, _, uri = name.partition(":")
    given = {"server": server, "uri": uri}
    result = await run_unasked(context, READ_MCP_RESOURCE.name, given, wanted=True) if uri else None
    return (f"the resource {name}", result) if result is not None else None


async def _shown(context: TurnContext, path: str, lines: re.Match[str] | None) -> tuple[str, ToolResult] | None:
    shown = spelled(path)
    if os.path.isdir(path):
        result = await run_unasked(context, LS.name, {"path": shown})
        return (f"the directory {shown}", result) if result is not None else None
    given: Json = {"file_path": shown}
    if lines is not None:
        first = max(1, int(lines[1]))
        given.update(offset=first, limit=max(1, int(lines[2]) - first + 1) if lines[2] else _DEFAULT_LINES)
    result = await run_unasked(context, READ.name, given)
    return (f"the file {shown}", result) if result is not None else None


_log = logging.getLogger(__name__)


async def run_unasked(context: TurnContext, name: str, given: Json, *, wanted: bool = False) -> ToolResult | None:
    """Return what a reading tool finds, None if it may not run unasked. `wanted`: the person has named what is read."""
    config, tool = context.config, context.agent.tools.get(name)
    if tool is None:
        return None
    try:
        decision = decide(config, ParsedCall("", tool, given), can_ask=wanted)
        if decision.behavior is Behavior.DENY or (decision.behavior is Behavior.ASK and not wanted):
            return None
        lent = CallContext(cage=decision.cage, pinned=decision.pinned)
        result = await tool.run(given, config.context.for_call(lent))
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
        _log.exception("%s failed for the model", name)
        return ToolResult(f"ccb could not read it, because of a bug: {type(error).__name__}: {error}")
    return None if result.is_error else result


def cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    return text[:size].rpartition("\n")[0] + "\n(cut here)"
