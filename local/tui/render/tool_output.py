"""Draw tool calls: the headline, the folded output, and lists of todos."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..model.blocks import ToolBlock, ToolState
from ..theme.palette import Palette

MAX_DETAIL_LINES = 400
"""The most lines of one block that are drawn when details are shown."""

_MAX_LIVE_LINES = 8
_MAX_SUMMARY_LINES = 4
_MAX_HEADLINE = 4_000
_NUMBERED = re.compile(r"\d+\t")  # a line of a file in the result of Read
_SUBJECTS = ("command", "file_path", "pattern", "path", "bash_id", "shell_id")


def headline(name: str, tool_input: Mapping[str, Any], cwd: str = "", *, whole: bool = False) -> str:
    """Return what a call does in one line: the command, the file (relative to `cwd` if it is in there), or the pattern.
    With `whole` return all lines of it."""
    if traits_of(name).view is View.CHECKLIST:
        return ""
    for key in _SUBJECTS:
        value = tool_input.get(key)
        if isinstance(value, str) and value:
            if cwd and key.endswith("path") and value.startswith(cwd + "/"):
                value = value[len(cwd) + 1 :]
            first, *more = neutralise(value).splitlines() or [""]
            return "\n    ".join([first, *more]) if whole else first + (" …" if more else "")
    return one_line(json.dumps(tool_input, ensure_ascii=False)[:_MAX_HEADLINE]) if tool_input else ""


def tool_output(block: ToolBlock, palette: Palette, *, details: bool) -> Text | None:
    """Draw what a tool has printed so far, or its result; None if there is nothing. Without `details` it is folded."""
    if block.state in (ToolState.RUNNING, ToolState.UNKNOWN):
        tail = neutralise(block.output).splitlines()[-_MAX_LIVE_LINES:]
        return _gutter(tail, 0, palette.dim) if tail else None
    if block.state is ToolState.WAITING or not block.result:
        return None
    lines = neutralise(block.result).splitlines()
    style = palette.bad if block.state is ToolState.FAILED else palette.dim
    if details:
        more = max(0, len(lines) - MAX_DETAIL_LINES)
        return _gutter(lines[:MAX_DETAIL_LINES], more, style, wrap=True)
    return _folded(block, lines, style)


def _folded(block: ToolBlock, lines: list[str], style: str) -> Text:
    """Draw a few lines of a result: for a file only the number of lines, for a command the last lines, else the
    first."""
    view = traits_of(block.name).view
    if view is View.FILE_LINES and block.state is ToolState.DONE:
        count = sum(_NUMBERED.match(line) is not None for line in lines)
        if count:
            return _gutter([f"{count} line{'s' if count != 1 else ''}"], 0, style)
    lines = [line for line in lines if line.strip()]
    hidden = len(lines) - _MAX_SUMMARY_LINES
    if view is View.COMMAND and hidden > 0:
        return _gutter([f"… {hidden + 1} earlier lines (Ctrl+O)", *lines[1 - _MAX_SUMMARY_LINES :]], 0, style)
    return _gutter(lines[:_MAX_SUMMARY_LINES], max(0, hidden), style)


def _gutter(lines: list[str], more: int, style: str, *, wrap: bool = False) -> Text:
    """Draw lines under a headline; `more` is the number of lines left out after them."""
    text = Text(style=style, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    for number, line in enumerate(lines):
        text.append(("└ " if number == 0 else "\n  ") + line)
    if more:
        text.append(f"\n  … {more} more line{'s' if more != 1 else ''} (Ctrl+O)")
    return text


def todo_list(tool_input: Mapping[str, Any], palette: Palette) -> Text:
    """Draw a list of todos as a checklist."""
    text = Text()
    items = tool_input.get("todos")
    styles = {"completed": ("☒", f"strike {palette.dim}"), "in_progress": ("◐", "bold")}
    for number, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict):
            mark, style = styles.get(str(item.get("status")), ("☐", ""))
            text.append(("\n" if number else "") + mark + " ", style=palette.accent)
            text.append(neutralise(str(item.get("content", ""))), style=style)
    return text
