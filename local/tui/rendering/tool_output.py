"""Calls of tools and errors: what is drawn of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import View, traits_of

from ...terminal.keymap import DEFAULT_KEYMAP
from ...transcript.blocks import ToolBlock, ToolState
from ...transcript.notices import path_in
from ...transcript.tool_calls import agent_label
from .themes import Palette

FIX = "→ "  # what the line begins with that says what to do
BAR = "▌ "
_TOO_LONG = re.compile(r"(API Error: the (?:conversation|prompt) is too long for .*\)\.) (.*)", re.DOTALL)
_API_FIX = " · "  # between what the worker says of a model call, and what helps
_FIXES = (
    (re.compile(r"API Error: 429\b"), "The provider limits how much you may ask: wait a little, then send it again."),
    (
        re.compile(r"API Error: 5\d\d\b"),
        "The provider has trouble of its own: send it again later, or choose another model with /model.",
    ),
    (re.compile(r"API Error: 40[02]\b"), "Choose another model with /model, or begin anew with /new."),
    (
        re.compile(r"the budget of .{1,200} is used up"),
        "Raise it under `budgets` in the settings (/config edit) and come back; `ccb usage` shows what was used.",
    ),
    (re.compile(r"the person has revoked that on the laptop"), "Leave, and resume the session, to grant it again."),
    (
        re.compile(r"the time that the laptop's settings give it is over"),
        "Leave, and resume the session; `expiresHours` of `modelCalls` in the settings sets the time.",
    ),
    (re.compile(r"the laptop's settings (do not )?allow"), "`modelCalls` in the settings sets this (/config edit)."),
    (re.compile(r"API Error: (?!\d)"), "Send it again; /doctor examines the way to the model."),
)
"""What helps where the error does not say it."""


def error_lines(text: str) -> list[str]:
    lines = text.splitlines() or [""]
    if any(line.startswith(FIX) for line in lines):
        return lines
    if lines[0].startswith("API Error: ") and _API_FIX in lines[0]:
        lines[0], _, fix = lines[0].partition(_API_FIX)
        if lines[0].startswith("API Error: 401"):
            return ["The API refused the key (401).", *lines, f"{FIX}/login asks for another key. Then send it again."]
        return [*lines, f"{FIX}{fix[:1].upper()}{fix[1:]}."]
    if says := _TOO_LONG.fullmatch(text):
        return [says[1], FIX + says[2]]
    fix = next((fix for pattern, fix in _FIXES if pattern.search(text)), "")
    return [*lines, FIX + fix] if fix else lines


@dataclass(frozen=True)
class ErrorCard:
    """The card of an error. `bare`: without its bar, for a drawing to copy from."""

    text: str
    palette: Palette
    bare: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        what, *others = error_lines(self.text)
        text = Text.assemble((what, f"bold {self.palette.bad}"))
        for line in others:
            text.append(f"\n{line}", style="" if line.startswith(FIX) else self.palette.dim)
        bar = Segment("" if self.bare else BAR, Style.parse(self.palette.bad))
        width = max(10, options.max_width - len(BAR))
        for drawn in console.render_lines(text, options.update(width=width), pad=False):
            yield bar
            yield from drawn
            yield Segment.line()


MAX_DETAIL_LINES = 1_600
"""The most lines of one block that are drawn when details are shown; of a longer one, half from each end."""

MORE_KEY = DEFAULT_KEYMAP.name("details")

_MAX_LIVE_LINES = 8
_MAX_SUMMARY_LINES = 4
_MAX_HEADLINE = 4_000
_NUMBERED = re.compile(r"\d+\t")  # a line of a file in the result of Read
_GAP = "  "
_SUBJECTS = ("command", "file_path", "pattern", "path", "bash_id", "shell_id", "skill", "url", "query")


def headline(name: str, tool_input: Mapping[str, Any], cwd: str = "", *, whole: bool = False) -> str:
    """Return what a call does in one line: the command, the file, or what is sought where. `whole`: all its lines."""
    view = traits_of(name).view
    if view.shows_todos or view is View.PLAN:
        return ""
    if view is View.QUESTIONS:
        return _headers(tool_input.get("questions"))
    if view is View.AGENT:
        return agent_label(tool_input)[:_MAX_HEADLINE]
    key = next((each for each in _SUBJECTS if isinstance(tool_input.get(each), str) and tool_input[each]), "")
    if not key:
        return one_line(json.dumps(tool_input, ensure_ascii=False)[:_MAX_HEADLINE]) if tool_input else ""
    first, *more = _subject(tool_input, key, cwd)
    return "\n    ".join([first, *more]) if whole else first + " …" * bool(more)


def _subject(tool_input: Mapping[str, Any], key: str, cwd: str) -> list[str]:
    """Return the lines of what a call is about, of which `key` is the input."""
    value, path = tool_input[key], tool_input.get("path")
    first, *more = neutralise(path_in(cwd, value) if key.endswith("path") else value).splitlines() or [""]
    if key == "pattern" and isinstance(path, str) and path not in ("", cwd):
        first += f" in {path_in(cwd, path)}"
    return [first, *more]


def _headers(questions: object) -> str:
    listed = questions if isinstance(questions, list) else []
    return ", ".join(one_line(str(each.get("header") or "?")) for each in listed if isinstance(each, dict))


def tool_output(block: ToolBlock, palette: Palette, *, details: bool, key: str = MORE_KEY) -> Text | None:
    """Draw what a tool has printed, folded without `details`; None if there is nothing. `key` shows all of it."""
    if block.state in (ToolState.RUNNING, ToolState.UNKNOWN):
        tail = _lines(block, block.output)[-_MAX_LIVE_LINES:]
        return _gutter(tail, palette.dim) if tail else None
    if block.state is ToolState.WAITING or not block.result:
        return None
    lines = _lines(block, block.result)
    style = palette.bad if block.state is ToolState.FAILED else palette.dim
    return _gutter(both_ends(lines), style, wrap=True) if details else _folded(block, lines, style, key)


def tool_summary(block: ToolBlock) -> str | None:
    """Return in one line what a call that ended well printed, None if that takes more than a line."""
    view = traits_of(block.name).view
    if block.state is not ToolState.DONE or not block.is_one_line:
        return None
    lines = _lines(block, block.result)
    if view is View.FILE_LINES and (count := sum(_NUMBERED.match(line) is not None for line in lines)):
        return counted(count, "line")
    filled = [line.strip() for line in lines if line.strip()]
    if not filled:
        return ""
    line = filled[-1] if view is View.COMMAND else filled[0]
    if line.endswith(":") and view is not View.COMMAND and len(filled) > 1:  # it only says what comes
        return counted(len(lines), "line")
    return line if len(lines) == 1 else f"{line} · {counted(len(lines), 'line')}"


@dataclass(frozen=True)
class SummedUpHeadline:
    """A headline and what came of the call, in one line, of which the headline may take half, or what is left."""

    head: Text
    summary: Text

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        line = self.head.copy()
        line.truncate(max(width - self.summary.cell_len - len(_GAP), width // 2), overflow="ellipsis")
        line.append(_GAP).append_text(self.summary)
        line.no_wrap, line.overflow = True, "ellipsis"
        yield line


def both_ends(lines: list[str]) -> list[str]:
    left_out = len(lines) - MAX_DETAIL_LINES
    if left_out <= 0:
        return lines
    half = MAX_DETAIL_LINES // 2
    return [*lines[:half], f"… {counted(left_out, 'line')} in the middle not shown", *lines[-half:]]


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 line`, `2 lines`."""
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def _lines(block: ToolBlock, text: str) -> list[str]:
    if traits_of(block.name).view is View.COMMAND:
        text = last_state(text)
    return neutralise(block.unmarked(text)).rstrip().splitlines()


def _folded(block: ToolBlock, lines: list[str], style: str, key: str) -> Text:
    """Draw the last lines of a command, the first ones of another result. Blank lines take no room, but count."""
    filled = [number for number, line in enumerate(lines) if line.strip()]
    before, after = [], []
    if len(filled) > _MAX_SUMMARY_LINES and traits_of(block.name).view is View.COMMAND:
        filled = filled[1 - _MAX_SUMMARY_LINES :]
        before = [f"… {counted(filled[0], 'earlier line')} ({key})"]
    elif len(filled) > _MAX_SUMMARY_LINES:
        filled = filled[:_MAX_SUMMARY_LINES]
        after = [f"… {counted(len(lines) - filled[-1] - 1, 'more line')} ({key})"]
    return _gutter([*before, *(lines[number] for number in filled), *after], style)


def _gutter(lines: list[str], style: str, *, wrap: bool = False) -> Text:
    text = Text(style=style, no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
    for number, line in enumerate(lines):
        text.append(("└ " if number == 0 else "\n  ") + line)
    return text


TODO_MARKS = {"completed": "☒", "in_progress": "◐", "deleted": "✗"}


def todo_row(status: str, text: str, palette: Palette) -> Text:
    gone = f"strike {palette.dim}"
    style = {"completed": gone, "deleted": gone, "in_progress": "bold"}.get(status, "")
    return Text.assemble((f"{TODO_MARKS.get(status, '☐')} ", palette.accent), (one_line(text), style))


def todo_list(tool_input: Mapping[str, Any], palette: Palette) -> Text:
    items = tool_input.get("todos")
    todos = [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
    rows = (todo_row(str(each.get("status")), str(each.get("content", "")), palette) for each in todos)
    return Text("\n").join(rows)


_MOVES = re.compile(r"(\r|\x08+|\x1b\[[0-2]?K)")
_TO_END, _TO_START, _ALL = "\x1b[K", "\x1b[1K", "\x1b[2K"


def last_state(text: str) -> str:
    """Return `text` with each line as a terminal shows it at the end: a progress bar is there once."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(_last_state_of_line(line) if _MOVES.search(line) else line for line in lines)


def _last_state_of_line(line: str) -> str:
    cells: list[str] = []
    column = 0
    for part in _MOVES.split(line):
        if part == "\r":
            column = 0
        elif part.startswith("\x08"):
            column = max(0, column - len(part))
        elif _MOVES.fullmatch(part):
            if part == _ALL:
                cells.clear()
            elif part == _TO_START:
                cells[: column + 1] = " " * min(column + 1, len(cells))
            else:
                del cells[column:]
        elif part:
            cells.extend(" " * (column - len(cells)))
            cells[column : column + len(part)] = part
            column += len(part)
    return "".join(cells)
