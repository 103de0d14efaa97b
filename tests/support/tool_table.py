"""docs/tools.md, made from the declarations of the tools. `python -m tests.support.tool_table` writes the file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from ccb.remote.tools.contract import Tool
from ccb.remote.tools.registry import default_tools
from ccb.tunnel.wire.tool_traits import BUILT_IN, Effect, RuleKind

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "tools.md"

_HEAD = """\
# Tools

Made from the code by `python -m tests.support.tool_table`; do not edit. The worker runs these tools on the host. The
model is given their names, inputs and descriptions.

"""
_EFFECTS = {
    Effect.NONE: "changes nothing outside the session; needs no permission",
    Effect.READ: "reads files; needs no permission inside the working directories",
    Effect.WRITE: "writes files",
    Effect.EXECUTE: "runs programs; read-only commands need no permission",
    Effect.NETWORK: "uses the network",
}
_PATTERNS = {RuleKind.COMMAND: "git *", RuleKind.PATH: "src/**"}


def document() -> str:
    """Return the text of docs/tools.md."""
    return _HEAD + "\n".join("\n".join(_section(tool)) for tool in default_tools())


def _section(tool: Tool) -> Iterator[str]:
    traits = tool.traits
    yield f"## {tool.name}\n"
    yield f"- Effect: {_EFFECTS[traits.effect]}."
    yield f"- Permission rules: {', '.join(_rules(tool))}."
    yield f"- Parallel: {_parallel(tool)}."
    yield f"- Longest result: {tool.declaration.max_output_chars:,} characters."
    yield "- Input:"
    required = tool.input_schema.get("required", [])
    for name, schema in tool.input_schema["properties"].items():
        optional = "" if name in required else ", optional"
        yield f"  - `{name}` ({schema['type']}{optional}): {schema['description']}."
    yield "\nWhat the model is told:\n"
    for line in tool.description.split("\n"):
        indent = "  " if line.startswith("- ") else ""
        yield from (f"> {part}" for part in textwrap.wrap(line, 118, subsequent_indent=indent))
    yield ""


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


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
