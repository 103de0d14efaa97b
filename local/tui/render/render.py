"""How blocks look: each one to rich renderables, with the colours of the theme."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..model.blocks import (
    Block,
    Level,
    NoticeBlock,
    PromptBlock,
    PromptState,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    ToolState,
)
from ..model.markdown import prose
from ..theme.palette import Look
from .diffs import diff_text

Json = dict[str, Any]

_LIVE_LINES = 8
_SUMMARY_LINES = 4
_NUMBERED = re.compile(r"\d+\t")  # a line of a file, as Read gives it
_DETAIL_LINES = 400
_PROMPT_LINES = 30
_MAX_HEADLINE = 4_000
_DIFF_LINES = 24
_PLAIN_OVER = 6_000  # a live block that is longer than this is shown as plain text until it is complete
_ALWAYS_PLAIN_OVER = 100_000  # and one that is longer than this stays so
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def render(block: Block, look: Look) -> list[RenderableType]:
    """The renderables of one block, top to bottom."""
    if isinstance(block, PromptBlock):
        return [_prompt(block, look)]
    if isinstance(block, TextBlock):
        return [_markdown(block, look)]
    if isinstance(block, ThinkingBlock):
        return [_thinking(block, look)]
    if isinstance(block, ToolBlock):
        return list(_tool(block, look))
    if isinstance(block, NoticeBlock):
        return [_notice(block, look)]
    return []


def is_animated(block: Block) -> bool:
    """Whether the look of a block depends on the spinner."""
    return isinstance(block, ToolBlock) and block.state is ToolState.RUNNING


def _prompt(block: PromptBlock, look: Look) -> Text:
    text = Text()
    lines = block.text.splitlines() or [""]
    limit = _DETAIL_LINES if look.details else _PROMPT_LINES
    for number, line in enumerate(lines[:limit]):
        text.append("❯ " if number == 0 else "\n  ", style=f"bold {look.accent}")
        text.append(line, style="bold" if block.state is PromptState.TAKEN else look.dim)
    if len(lines) > limit:
        text.append(f"\n  … {len(lines) - limit} more lines (Ctrl+O)", style=look.dim)
    if block.state is PromptState.QUEUED:
        text.append("  (queued)", style=look.dim)
    elif block.state is PromptState.UNSENT:
        text.append("  (waiting to be sent)", style=look.warn)
    elif block.state is PromptState.FAILED:
        text.append("  (not sent)", style=look.bad)
    return text


def _markdown(block: TextBlock, look: Look) -> RenderableType:
    if len(block.text) > (_PLAIN_OVER if block.live else _ALWAYS_PLAIN_OVER):
        return Text(block.text)
    return prose(block.text, look)


def _thinking(block: ThinkingBlock, look: Look) -> Text:
    style = f"italic {look.dim}"
    if look.details:
        return Text("✻ " + block.text.strip(), style=style)
    if block.live:
        return Text("✻ Thinking…", style=style)
    return Text(f"✻ Thought, {len(block.text.split())} words", style=style)


def _notice(block: NoticeBlock, look: Look) -> Text:
    styles = {Level.INFO: "", Level.DIM: look.dim, Level.WARNING: look.warn, Level.ERROR: f"bold {look.bad}"}
    first, _, rest = block.text.partition("\n")
    text = Text()
    text.append(first, style=styles[block.level])
    if rest:
        text.append("\n" + rest, style=look.dim if block.level is not Level.INFO else "")
    return text


def headline(name: str, tool_input: Mapping[str, Any], cwd: str = "", *, whole: bool = False) -> str:
    """What a call does in one line: the command, the file (relative to `cwd` when it is there), the pattern. With `whole`,
    all lines of it."""
    if traits_of(name).view is View.CHECKLIST:
        return ""
    for key in ("command", "file_path", "pattern", "path", "bash_id", "shell_id"):
        value = tool_input.get(key)
        if isinstance(value, str) and value:
            if cwd and key.endswith("path") and value.startswith(cwd + "/"):
                value = value[len(cwd) + 1 :]
            first, *more = neutralise(value).splitlines() or [""]
            return "\n    ".join([first, *more]) if whole else first + (" …" if more else "")
    return one_line(json.dumps(tool_input, ensure_ascii=False)[:_MAX_HEADLINE]) if tool_input else ""


def _tool(block: ToolBlock, look: Look) -> Iterator[RenderableType]:
    mark, style = {
        ToolState.WAITING: ("○", look.dim),
        ToolState.RUNNING: (_SPINNER[look.frame % len(_SPINNER)], look.accent),
        ToolState.DONE: ("●", look.good),
        ToolState.FAILED: ("✗", look.bad),
        ToolState.UNKNOWN: ("?", look.warn),
    }[block.state]
    head = Text(no_wrap=not look.details, overflow="fold" if look.details else "ellipsis")
    head.append(f"{mark} ", style=style)
    head.append(one_line(block.name), style="bold")
    said = headline(block.name, block.tool_input, look.cwd, whole=look.details)
    if said:
        head.append(f" {said}")
    if block.state is ToolState.UNKNOWN:
        head.append("  how it ended is not known here", style=look.dim)
    elif block.state is ToolState.RUNNING and block.elapsed_s >= 1:
        head.append(f"  {block.elapsed_s:.0f} s", style=look.dim)
    yield head
    view = traits_of(block.name).view
    if view is View.CHECKLIST:
        yield Padding(todos(block.tool_input, look), (0, 0, 0, 2))
    elif view.is_diff and block.state is not ToolState.FAILED:
        if block.state is ToolState.DONE:
            lines = _DETAIL_LINES if look.details else _DIFF_LINES
            yield Padding(
                diff_text(block.name, block.tool_input, block.patch, look, lines, wrap=look.details), (0, 0, 0, 2)
            )
    else:
        body = _tool_body(block, look)
        if body is not None:
            yield Padding(body, (0, 0, 0, 2))


def _tool_body(block: ToolBlock, look: Look) -> Text | None:
    if block.state in (ToolState.RUNNING, ToolState.UNKNOWN):
        tail = neutralise(block.output).splitlines()[-_LIVE_LINES:]
        return _gutter(tail, 0, look.dim) if tail else None
    if block.state is ToolState.WAITING or not block.result:
        return None
    lines = neutralise(block.result).splitlines()
    view = traits_of(block.name).view
    if view is View.FILE_LINES and block.state is ToolState.DONE and not look.details:
        read = sum(_NUMBERED.match(line) is not None for line in lines)
        if read:
            return _gutter([f"{read} line{'s' if read != 1 else ''}"], 0, look.dim)
    limit = _DETAIL_LINES if look.details else _SUMMARY_LINES
    if not look.details:
        lines = [line for line in lines if line.strip()]
    style = look.bad if block.state is ToolState.FAILED else look.dim
    if view is View.COMMAND and len(lines) > limit and not look.details:
        return _gutter([f"… {len(lines) - limit + 1} earlier lines (Ctrl+O)", *lines[1 - limit :]], 0, style)
    return _gutter(lines[:limit], max(0, len(lines) - limit), style, wrap=look.details)


def _gutter(lines: list[str], more: int, style: str, *, wrap: bool = False) -> Text:
    text = Text(style=style, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    for number, line in enumerate(lines):
        text.append(("└ " if number == 0 else "\n  ") + line)
    if more:
        text.append(f"\n  … {more} more line{'s' if more != 1 else ''} (Ctrl+O)")
    return text


def todos(tool_input: Mapping[str, Any], look: Look) -> Text:
    """A todo list as a checklist."""
    text = Text()
    items = tool_input.get("todos")
    for number, item in enumerate(items if isinstance(items, list) else []):
        if not isinstance(item, dict):
            continue
        status = item.get("status")
        mark, style = {"completed": ("☒", f"strike {look.dim}"), "in_progress": ("◐", "bold")}.get(
            str(status), ("☐", "")
        )
        text.append(("\n" if number else "") + mark + " ", style=look.accent)
        text.append(neutralise(str(item.get("content", ""))), style=style)
    return text
