"""The slash commands about what the model knows: /compact, /clear, /context, /init and /memory."""

from __future__ import annotations

import asyncio

from ...commands.registry import CommandCall, Expanded, Printed, SlashCommand
from ...context.style import style_name
from ..session import Session

_INIT = """\
Look at this project and write a CLAUDE.md in its top directory for agents that will work here. If there is one, \
improve it and keep what is right in it. Read the manifest, the build and test configuration, the README and the rules \
of other agents (AGENTS.md, .cursorrules, .github/copilot-instructions.md) first.

Write down, briefly: the commands to build, lint and test, also for a single test; the architecture that takes several \
files to understand; conventions that cannot be seen in one file. Leave out what anybody can see at once, general \
advice, and anything that you have not verified. Refer to long documents with @path instead of repeating them."""


def register_context_commands(session: Session) -> None:
    """Register the commands."""
    commands, agent = session.commands, session.agent
    agent.config.disclosure.announced.output_style = lambda: style_name(agent.config.settings)

    async def compact(call: CommandCall) -> Printed:
        return Printed(await agent.compact(call.arguments))

    async def clear(_: CommandCall) -> Printed:
        await agent.clear()
        return Printed("")

    async def context(_: CommandCall) -> Printed:
        return Printed((await agent.context_report()).text())

    async def init(call: CommandCall) -> Expanded:
        return Expanded([{"type": "text", "text": f"{_INIT}\n\n{call.arguments}".strip()}])

    async def memory(_: CommandCall) -> Printed:
        return Printed(await _memory(session))

    hint = "[what to keep]"
    commands.register(SlashCommand("compact", "Replace the conversation by a summary", compact, hint, local=True))
    commands.register(SlashCommand("clear", "Forget the conversation and begin anew", clear, local=True))
    commands.register(SlashCommand("context", "Show what fills the model's window", context, local=True))
    commands.register(SlashCommand("init", "Write a CLAUDE.md for this project", init, "[what matters]"))
    commands.register(SlashCommand("memory", "List the instruction files in force", memory, local=True))


async def _memory(session: Session) -> str:
    """Return the list of the instruction files that a new session here would read."""
    from ...context.instructions import find_instructions
    from ...context.prompt import instruction_sources

    context = session.agent.config.context
    sources = instruction_sources(session.options)
    files = await asyncio.get_running_loop().run_in_executor(
        None, find_instructions, context.cwd, context.cages.home, sources
    )
    if not files:
        return "There are no instruction files. /init writes a CLAUDE.md for this project."
    lines = [f"  {each.path}  ({each.scope}, {len(each.text):,} characters)" for each in files]
    return "\n".join(["Instruction files, the last one counts most:", *lines, "A new session reads them again."])
