"""Prints the blocks of a conversation as lines, each once, when it is complete."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from ccb.tunnel.plain_text import as_line
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..tui.model.blocks import Block, HoleBlock, Level, MarkdownBlock, NoticeBlock, PromptBlock, ToolBlock, ToolState
from ..tui.render.error_card import error_lines
from ..tui.render.tool_output import headline

_MAX_LINES = 12
"""Lines of a tool's result; of a longer one, half from each end."""

_MAX_CALLS = 256
"""The newest tool calls, which may still get a result."""

_MAX_PROBLEMS = 20
_LEVELS = {Level.INFO: "ccb: ", Level.DIM: "ccb: ", Level.WARNING: "ccb: warning: ", Level.ERROR: "ccb: error: "}
_OURS = re.compile(r"\W*ccb\W*:")
_SIGNS = {"completed": "done", "in_progress": "in progress", "pending": "open"}


def quoted(text: str) -> list[str]:
    """Return a text of the agent or the host as lines, none of which begins as one of ccb does."""
    lines = map(as_line, text.strip().split("\n"))
    return [f"  {line}" if _OURS.match(line) else line for line in lines]


class LinePrinter:
    """A `BlockContainer` that prints with `write`, which gets whole lines without their newline. What the person has
    typed here is not printed again: `own_prompts` are those texts."""

    def __init__(self, write: Callable[[str], None], cwd: str = "") -> None:
        self.own_prompts: list[str] = []
        self.problems: deque[str] = deque(maxlen=_MAX_PROBLEMS)
        """The last warnings and errors."""
        self._write = write
        self._cwd = cwd
        self._printed: dict[int, Block] = {}  # by identity: blocks are compared so
        self._begun: set[int] = set()
        self._calls: deque[ToolBlock] = deque(maxlen=_MAX_CALLS)  # the reducer keeps calls only while a container does

    def add(self, block: Block, *, before: Block | None = None) -> None:
        """Print a block that is complete."""
        if isinstance(block, PromptBlock):
            self._prompt(block)
        elif isinstance(block, NoticeBlock):
            self._once(block, *self._notice(block))
            if block.level in (Level.WARNING, Level.ERROR):
                self.problems.append(block.text)
        else:
            if isinstance(block, ToolBlock):
                self._calls.append(block)
            self.update_block(block)

    def update_block(self, block: Block) -> None:
        """Print what has become complete."""
        if isinstance(block, MarkdownBlock) and not block.live and block.text.strip():
            self._once(block, *quoted(block.text))
        elif isinstance(block, ToolBlock):
            self._call(block)
        elif isinstance(block, NoticeBlock) and id(block) in self._printed:
            for line in self._notice(block):  # it says something else now
                self._write(line)

    def take_away(self, block: Block) -> None:
        """Say that a part that was printed does not count."""
        if self._printed.pop(id(block), None) is not None and isinstance(block, MarkdownBlock):
            self._write("ccb: the model begins this answer again; the text above does not count.")

    def _once(self, block: Block, *lines: str) -> None:
        if id(block) not in self._printed:
            self._printed[id(block)] = block
            for line in lines:
                self._write(line)

    def _prompt(self, block: PromptBlock) -> None:
        if block.text in self.own_prompts:
            self.own_prompts.remove(block.text)
        else:
            self._once(block, *quoted(f"Prompt: {block.text.strip()}"))

    def _notice(self, block: NoticeBlock) -> list[str]:
        if isinstance(block, HoleBlock):
            return ["ccb: earlier events of this session are not shown."]
        text = block.text.strip()
        first, *more = error_lines(text) if block.level is Level.ERROR else text.split("\n")
        return [f"{_LEVELS[block.level]}{first}", *(f"  {line}" for line in more)]  # no other line begins as one of ccb

    def _call(self, block: ToolBlock) -> None:
        name = block.name
        if block.state is not ToolState.WAITING and id(block) not in self._begun and block.tool_input:
            self._begun.add(id(block))
            self._write(f"{name}: {headline(block.name, block.tool_input, self._cwd)}".rstrip(": "))
            for line in _todos(block):
                self._write(line)
        if block.state in (ToolState.DONE, ToolState.FAILED):
            failed = block.state is ToolState.FAILED
            self._once(block, *_result(block, failed=failed) or [f"{name} is done."])


def _result(block: ToolBlock, *, failed: bool) -> list[str]:
    if traits_of(block.name).view is View.CHECKLIST and not failed:
        return []
    lines = block.unmarked(block.result).strip().splitlines()
    if traits_of(block.name).view is View.FILE_LINES and not failed:
        return [f"  {len(lines)} line{'s' if len(lines) != 1 else ''}"]
    left = len(lines) - _MAX_LINES
    if left > 0:
        half = _MAX_LINES // 2
        lines = [*lines[:half], f"({left} lines are not shown)", *lines[-half:]]
    head = [f"{block.name} failed:"] if failed else []
    return head + [f"  {line}" for line in lines]


def _todos(block: ToolBlock) -> list[str]:
    todos = block.tool_input.get("todos") if traits_of(block.name).view is View.CHECKLIST else None
    listed = [each for each in todos if isinstance(each, dict)] if isinstance(todos, list) else []
    return [f"  {_SIGNS.get(str(each.get('status')), 'open')}: {each.get('content')}" for each in listed]
