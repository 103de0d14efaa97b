"""The blocks of the transcript: what was said or done, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Json = dict[str, Any]

MAX_BLOCK_CHARS = 400_000
"""Text of one block that is kept for the screen; the whole is in the session's journal."""


class ToolState(Enum):
    """Where a tool call stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(eq=False)
class Block:
    """Something in the transcript. `version` grows with every change, so that renderings can be kept."""

    version: int = 0
    tight: bool = False  # no blank line before it

    def changed(self) -> None:
        self.version += 1

    def size(self) -> int:
        """Characters held."""
        return 0


class PromptState(Enum):
    """Where a prompt stands."""

    TAKEN = "taken"
    QUEUED = "queued"
    UNSENT = "unsent"
    FAILED = "failed"


@dataclass(eq=False)
class PromptBlock(Block):
    """What the person asked."""

    text: str = ""
    state: PromptState = PromptState.TAKEN

    def size(self) -> int:
        return len(self.text)


@dataclass(eq=False)
class TextBlock(Block):
    """Markdown of the agent; `live` while it grows."""

    text: str = ""
    live: bool = False
    message_id: str = ""

    def size(self) -> int:
        return len(self.text)


@dataclass(eq=False)
class ThinkingBlock(Block):
    """Thinking of the model, collapsed unless details are shown."""

    text: str = ""
    live: bool = False
    message_id: str = ""

    def size(self) -> int:
        return len(self.text)


@dataclass(eq=False)
class ToolBlock(Block):
    """One tool call. `output` is the tail of what it prints while it runs, `result` what came of it, `patch` the public
    structuredPatch of an edit."""

    tool_id: str = ""
    name: str = ""
    tool_input: Json = field(default_factory=dict)
    state: ToolState = ToolState.WAITING
    output: str = ""
    elapsed_s: float = 0.0
    result: str = ""
    patch: list[Json] = field(default_factory=list)
    message_id: str = ""

    def size(self) -> int:
        said = sum(len(value) if isinstance(value, str) else len(str(value)) for value in self.tool_input.values())
        return said + len(self.output) + len(self.result) + len(str(self.patch))


class Level(Enum):
    """How loud a notice is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    DIM = "dim"


@dataclass(eq=False)
class NoticeBlock(Block):
    """A word of ccb itself."""

    text: str = ""
    level: Level = Level.INFO

    def size(self) -> int:
        return len(self.text)


@dataclass(eq=False)
class HoleBlock(NoticeBlock):
    """Stands for the events between the numbers `after` and `before`, which are not loaded."""

    after: int = 0
    before: int = 0
