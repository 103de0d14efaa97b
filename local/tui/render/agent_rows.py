"""Draw what a sub-agent does, under the call that started it."""

from __future__ import annotations

from rich.text import Text

from ccb.tunnel.plain_text import neutralise, one_line

from ..model.agents.agent_run import AgentRow, AgentRun, RowState
from ..model.blocks import ToolBlock, ToolState
from ..model.status.totals import tokens
from ..theme.palette import Palette
from .tool_output import MORE_KEY, counted, headline

_MAX_LIVE_ROWS = 4
_MAX_PROMPT = 4_000  # characters


def agent_rows(block: ToolBlock, palette: Palette, *, details: bool, cwd: str, key: str = MORE_KEY) -> Text | None:
    """Draw one line with what the agent has used; below it the newest of its calls while it works, or all that are
    kept with `details`."""
    run = block.agent
    if run is None:
        return None
    text = Text(style=palette.dim, no_wrap=not details, overflow="fold" if details else "ellipsis")
    text.append(f"└ {_summary(block, run)}")
    if details and isinstance(block.tool_input.get("prompt"), str):
        text.append(_indented("Asked: " + block.tool_input["prompt"][:_MAX_PROMPT]))
    rows = list(run.rows) if details else [] if run.ended else list(run.rows)[-_MAX_LIVE_ROWS:]
    left_out = run.tool_uses - len(rows)
    if rows and left_out > 0:
        text.append(f"\n  … {counted(left_out, 'earlier call')}{'' if details else f' ({key})'}")
    for row in rows:
        text.append("\n  ")
        _row(text, row, palette, cwd)
    if details and block.result:
        text.append(_indented("Answer: " + block.result))
    return text


def _summary(block: ToolBlock, run: AgentRun) -> str:
    parts = _place(block, run)
    if run.note and not run.ended:
        parts.append(one_line(run.note))
    if run.tool_uses or run.ended:
        parts.append(counted(run.tool_uses, "tool use"))
    if run.tokens:
        parts.append(f"{tokens(run.tokens)} tokens")
    if run.seconds >= 1 and (run.ended or block.state is not ToolState.RUNNING):
        parts.append(f"{run.seconds:.0f} s")
    if run.cost_usd:
        parts.append(f"${run.cost_usd:.4f}")
    return " · ".join(parts) or "starting"


def _place(block: ToolBlock, run: AgentRun) -> list[str]:
    parts = ["in the background"] if run.in_background and not run.ended else []
    if run.branch:
        parts.append(f"worktree on {run.branch}")
    elif block.tool_input.get("isolation") and not run.ended:
        parts.append("in a worktree")
    return parts


def _row(text: Text, row: AgentRow, palette: Palette, cwd: str) -> None:
    mark, style = {
        RowState.WAITING: ("○", palette.dim),
        RowState.RUNNING: ("◐", palette.accent),
        RowState.ASKS: ("?", f"bold {palette.warn}"),
        RowState.DONE: ("●", palette.good),
        RowState.FAILED: ("✗", palette.bad),
    }[row.state]
    text.append(f"{mark} ", style=style)
    text.append(f"{one_line(row.name)} {headline(row.name, row.tool_input, cwd)}".rstrip())
    if row.state is RowState.ASKS:
        text.append("  waits for your answer", style=palette.warn)


def _indented(value: str) -> str:
    return "".join(f"\n  {line}" for line in neutralise(value).rstrip().splitlines())
