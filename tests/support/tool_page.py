"""The page docs/reference/tools.md, made from the declarations of the tools (see `reference_pages`)."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ccb.remote.tools.tool_contract import Tool
from ccb.remote.tools.toolset import default_tools
from ccb.tunnel.wire.tool_traits import BUILT_IN, Effect, RuleKind

_EFFECTS = {
    Effect.NONE: "changes nothing outside the session; needs no permission",
    Effect.READ: "reads files; needs no permission inside the working directories",
    Effect.WRITE: "writes files",
    Effect.EXECUTE: "runs programs; read-only commands need no permission",
    Effect.NETWORK: "uses the network",
}
_PATTERNS = {RuleKind.COMMAND: "git *", RuleKind.PATH: "src/**"}


def tool_blocks() -> Iterator[str]:
    yield "The worker runs these tools on the host. The model is given their names, inputs and descriptions."
    for tool in default_tools():
        yield f"## {tool.name}"
        yield "\n".join(_facts(tool))
        yield "What the model is told:"
        yield "\n".join(_quoted(tool.description))


def _facts(tool: Tool) -> Iterator[str]:
    yield f"- Effect: {_EFFECTS[tool.traits.effect]}."
    yield f"- Permission rules: {', '.join(_rules(tool))}."
    yield f"- Parallel: {_parallel(tool)}."
    yield f"- Longest result: {tool.declaration.max_output_chars:,} characters."
    yield "- Input:" if tool.input_schema["properties"] else "- Input: none."
    required = tool.input_schema.get("required", [])
    for name, schema in tool.input_schema["properties"].items():
        optional = "" if name in required else ", optional"
        yield f"  - `{name}` ({schema['type']}{optional}): {schema['description']}."


def _quoted(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        indent = "  " if line.startswith("- ") else ""
        yield from (f"> {part}" for part in textwrap.wrap(line, 118, subsequent_indent=indent))


def _rules(tool: Tool) -> Iterator[str]:
    traits = tool.traits
    pattern = _PATTERNS.get(traits.rules)
    for name in traits.rule_names:
        yield f"`{name}`"
        if pattern:
            yield f"`{name}({pattern})`"
    covered = [f"`{other.name}`" for other in BUILT_IN.values() if other.covered_by == tool.name]
    if covered:
        yield f"which also cover {', '.join(covered)}"


def _parallel(tool: Tool) -> str:
    if tool.traits.parallel:
        return "calls run beside others"
    if tool.traits.rules is RuleKind.COMMAND:
        return "calls that only read run beside others, all others alone"
    return "calls run alone"
