"""What a turn gives the model besides the conversation: the request prefix, and the files that prompts name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...context.instructions import NestedInstructions
from ...context.style import style_text
from ...model.request import RequestPrefix
from ...tools.contract import Tool
from ..deps import AgentConfig, Prompt
from ..state import AgentState

Json = dict[str, Any]


async def make_prefix(config: AgentConfig, agent: AgentState, home: str) -> None:
    """Build the request prefix of an agent that has none. `home` is the home directory on the host."""
    if agent.prefix is None:
        agent.prefix = await new_prefix(config, agent.listed, home)


async def new_prefix(config: AgentConfig, listed: Sequence[Tool], home: str) -> RequestPrefix:
    """Return the request prefix of an agent that declares the tools `listed`."""
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in listed]
    system = await config.prompts.system()
    style = style_text(config.settings, home)
    if style:
        system = [*system[:1], {"type": "text", "text": style}, *system[1:]]
    return RequestPrefix(system, tools)


async def named_files(
    config: AgentConfig, agent: AgentState, prompts: Sequence[Prompt], nested: NestedInstructions | None
) -> list[Json]:
    """Return the files that prompts name with `@`, as content blocks. `nested` learns of them."""
    prompts = [prompt for prompt in prompts if not prompt.verbatim]
    if not any("@" in str(block.get("text", "")) for prompt in prompts for block in prompt.blocks):
        return []
    from ..mentions.mentions import mentioned_blocks  # few prompts name files

    return await mentioned_blocks(config, agent, prompts, nested)
