"""Prompts, answers, calls, notices; pictures."""

from __future__ import annotations

import base64
import re
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from sys import getsizeof
from typing import Protocol

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict
from ccb.tunnel.wire.prompt_content import image_size, image_type
from ccb.tunnel.wire.tool_traits import View, traits_of

from .pieces import NOTHING_OPEN, OpenBlock

_HEAD_CHARS = 128 * 1024  # characters of base64: a JPEG names its pixels behind its notes


@dataclass(frozen=True, eq=False)
class PictureData:
    """An image of a result, in base64. It is not trusted and not unpacked."""

    data: str = field(repr=False)

    @property
    def head(self) -> bytes:
        try:
            return base64.b64decode(self.data[:_HEAD_CHARS])
        except ValueError:
            return b""


def picture_data(block: Json) -> PictureData | None:
    data = as_dict(block.get("source")).get("data")
    return PictureData(data) if isinstance(data, str) else None


def pictures_of(blocks: Iterable[Json]) -> tuple[PictureData, ...]:
    return tuple(filter(None, (picture_data(each) for each in blocks if each.get("type") == "image")))


def result_text(result: Json) -> str:
    """Return the text of a `tool_result` block, with an image in words and other blocks as `[document]`."""
    return "\n".join(map(_block_text, as_blocks(result.get("content"))))


def _block_text(block: Json) -> str:
    kind = block.get("type", "block")
    if kind == "image":
        return image_words(block)
    return str(block.get("text", "")) if kind == "text" else f"[{kind}]"


def image_words(block: Json) -> str:
    picture = picture_data(block)
    head = picture.head if picture else b""
    media_type, pixels = image_type(head[:16]), image_size(head)
    if picture is None or media_type is None:
        return "[image]"
    kind = {"image/jpeg": "JPEG", "image/webp": "WebP"}.get(media_type, media_type.rpartition("/")[2].upper())
    shown = f" {pixels[0]}x{pixels[1]}" if pixels else ""
    size = len(picture.data) * 3 // 4
    return f"{kind}{shown} · {f'{size / 1e6:.1f} MB' if size >= 1e6 else f'{max(1, round(size / 1000))} KB'}"


MAX_ROWS = 200  # the newest tool calls of a sub-agent that are kept for the screen


class ToolState(Enum):
    """The progress of a tool call. ASKS: the person is asked. UNKNOWN: its result was lost, or is not loaded."""

    WAITING = "waiting"
    RUNNING = "running"
    ASKS = "asks"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(eq=False)
class AgentRow:
    """One call of a sub-agent."""

    name: str
    tool_input: Json
    state: ToolState = ToolState.WAITING


@dataclass(eq=False)
class AgentRun:
    """What a sub-agent has done. `note` is what it waits for, `branch` that of the git worktree that it has left.
    `since` is monotonic, `last_seq` the number of the event with which it has ended, as far as that is known. `marked`:
    the person is about to open it."""

    rows: deque[AgentRow] = field(default_factory=lambda: deque(maxlen=MAX_ROWS))
    tool_uses: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost_usd: float | None = None
    note: str = ""
    ended: bool = False
    in_background: bool = False
    branch: str = ""
    agent_id: str = ""
    since: float = field(default_factory=time.monotonic)
    last_seq: int = 0
    marked: bool = False

    @property
    def asks(self) -> bool:
        return any(row.state is ToolState.ASKS for row in self.rows)


MAX_BLOCK_CHARS = 400_000  # of one block on the screen; the journal has all
_MAX_PICTURES = 8  # of one block
_MAX_PICTURED = 200  # blocks with images
_MAX_PICTURE_CHARS = 48_000_000  # most characters of base64 of all images that are kept to be drawn
_MARKED_ERROR = re.compile(r"\s*<tool_use_error>(.*)</tool_use_error>\s*", re.DOTALL)
_ONE_LINE_VIEWS = (View.COMMAND, View.FILE_LINES, View.TODO, View.PLAIN, View.OTHER_CALL)


def weight_of(value: object) -> int:
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = (*value, *value.values())
    elif isinstance(value, list | tuple | deque):
        inner = value
    elif hasattr(value, "__dict__") and not isinstance(value, Enum):
        inner = vars(value).values()
    return getsizeof(value) + sum(map(weight_of, inner))


def both_ends(text: str) -> str:
    """Return `text`, or both ends of one that is longer than MAX_BLOCK_CHARS with a line that says so between them."""
    left_out = len(text) - MAX_BLOCK_CHARS
    if left_out <= 0:
        return text
    half = MAX_BLOCK_CHARS // 2
    return f"{text[:half]}\n… {left_out:,} characters in the middle not kept for the screen\n{text[-half:]}"


@dataclass(eq=False)
class Block:
    """One entry of the transcript. `version` grows with every change. A `tight` block has no blank line before it."""

    version: int = 0
    tight: bool = False
    text: str = ""

    def changed(self) -> None:
        self.version += 1

    def size(self) -> int:
        return len(self.text)

    def weight(self) -> int:
        return weight_of({name: value for name, value in vars(self).items() if name != "pictures"})


@dataclass(eq=False)
class PicturedBlock(Block):
    pictures: Sequence[PictureData] = ()


class PromptState(Enum):
    """The progress of a prompt: QUEUED at the worker, UNSENT while there is no connection, TAKEN by the agent."""

    TAKEN = "taken"
    QUEUED = "queued"
    UNSENT = "unsent"
    FAILED = "failed"


@dataclass(frozen=True)
class PromptFacts:
    """What is known of a prompt. `whole`: all of its text. `steers`: it does not wait for the end of the turn; None if
    the agent cannot be steered."""

    files: int = 0
    pictures: tuple[PictureData, ...] = ()
    whole: bool = True
    command_line: bool = False
    before: tuple[str, ...] = ()
    steers: bool | None = False


@dataclass(eq=False)
class PromptBlock(PicturedBlock):
    state: PromptState = PromptState.TAKEN
    facts: PromptFacts = PromptFacts()


@dataclass(eq=False)
class MarkdownBlock(Block):
    """Text of the agent in Markdown, or a piece of it. It is `live` while the model still streams it."""

    live: bool = False
    opening: OpenBlock = NOTHING_OPEN


@dataclass(eq=False)
class ThoughtBlock(Block):
    """Thinking of the model. It is drawn as one line unless the person asked for details."""

    live: bool = False


@dataclass(eq=False)
class ToolBlock(PicturedBlock):
    """One tool call. `output` is the end of what it has printed so far; `patch` that of an edit. `since` is when it
    began, by the monotonic clock of this machine, 0 if that is not known. `movable`: a command may go on in the
    background."""

    tool_id: str = ""
    name: str = ""
    tool_input: Json = field(default_factory=dict)
    state: ToolState = ToolState.WAITING
    output: str = ""
    elapsed_s: float = 0.0
    since: float = 0.0
    result: str = ""
    patch: list[Json] = field(default_factory=list)
    agent: AgentRun | None = None
    movable: bool = True

    def size(self) -> int:
        given = sum(len(value) if isinstance(value, str) else len(str(value)) for value in self.tool_input.values())
        return given + len(self.output) + len(self.result) + len(str(self.patch))

    def unmarked(self, text: str) -> str:
        """Return a text of the tool without the marks of an error, which are for the model."""
        marked = _MARKED_ERROR.fullmatch(text) if self.state is ToolState.FAILED else None
        return text if marked is None else marked[1]

    @property
    def shown_name(self) -> str:
        """The name for people: a model calls the tool that starts an agent Task, too."""
        return "Agent" if traits_of(self.name).view is View.AGENT else self.name

    @property
    def is_one_line(self) -> bool:
        return self.agent is None and traits_of(self.name).view in _ONE_LINE_VIEWS


class Level(Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    DIM = "dim"


@dataclass(eq=False)
class NoticeBlock(Block):
    level: Level = Level.INFO


@dataclass(eq=False)
class OfferBlock(NoticeBlock):
    """A port of the host that a key takes once the line is `marked`."""

    port: int = 0
    marked: bool = False


@dataclass(eq=False)
class FileDiffBlock(Block):
    """A file that the agent has changed. `sign`: ~ changed, + new, - gone. `problem`: why its patch is unknown."""

    path: str = ""
    sign: str = "~"
    added: int = 0
    removed: int = 0
    note: str = ""
    unfolded: bool = False
    marked: bool = False
    patch: list[Json] | None = None
    problem: str = ""

    def size(self) -> int:
        return len(self.path) + (len(str(self.patch)) if self.unfolded else 0)


@dataclass(eq=False)
class TipsBlock(Block):
    """Keys or characters, each with what it is for. They make room for the conversation."""

    tips: tuple[tuple[str, str], ...] = ()


@dataclass(eq=False)
class HoleBlock(NoticeBlock):
    """A line in place of the events between the numbers `after` and `before`, which are not loaded."""

    after: int = 0
    before: int = 0


@dataclass(eq=False)
class FoldBlock(NoticeBlock):
    """One line in place of blocks that are not in the conversation any more. They are drawn with the details."""

    folded: list[Block] = field(default_factory=list)

    def size(self) -> int:
        return super().size() + sum(each.size() for each in self.folded)


class BlockContainer(Protocol):
    """An ordered collection of blocks: the transcript widget, or a list that is inserted into it later."""

    def add(self, block: Block, *, before: Block | None = None) -> None: ...  # at the end, or in front of `before`

    def update_block(self, block: Block) -> None: ...

    def take_away(self, block: Block) -> None: ...  # nothing if it is not here

    def cut(self, first: Block, before: Block | None) -> list[Block]: ...  # take away from `first` on, up to `before`


class KeptPictures:
    """Images of the blocks of a container that are kept to be drawn: those of the oldest block are let go first."""

    def __init__(self, container: BlockContainer) -> None:
        self._container = container
        self._blocks: deque[PicturedBlock] = deque()

    def keep(self, block: PicturedBlock, pictures: Sequence[PictureData]) -> None:
        block.pictures = pictures[:_MAX_PICTURES]
        if not block.pictures:
            return
        self._blocks.append(block)
        chars = sum(len(each.data) for kept in self._blocks for each in kept.pictures)
        while (chars > _MAX_PICTURE_CHARS and len(self._blocks) > 1) or len(self._blocks) > _MAX_PICTURED:
            oldest = self._blocks.popleft()
            chars -= sum(len(each.data) for each in oldest.pictures)
            oldest.pictures = ()
            self._container.update_block(oldest)


def stack(above: Block | None, block: Block) -> None:
    """Make a call tight that follows another one: calls of one line each read as a list."""
    if isinstance(block, ToolBlock) and isinstance(above, ToolBlock) and block.is_one_line and above.is_one_line:
        block.tight = True


def cut_of(blocks: Sequence[Block], first: Block, before: Block | None) -> list[Block]:
    start = blocks.index(first) if first in blocks else len(blocks)
    return list(blocks[start : blocks.index(before) if before in blocks else len(blocks)])


class BlockList:
    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, block: Block, *, before: Block | None = None) -> None:
        place = self.blocks.index(before) if before in self.blocks else len(self.blocks)
        stack(self.blocks[place - 1] if place else None, block)
        self.blocks.insert(place, block)

    def update_block(self, block: Block) -> None:
        block.changed()

    def take_away(self, block: Block) -> None:
        if block in self.blocks:
            self.blocks.remove(block)

    def cut(self, first: Block, before: Block | None) -> list[Block]:
        gone, start = cut_of(self.blocks, first, before), self.blocks.index(first) if first in self.blocks else 0
        del self.blocks[start : start + len(gone)]
        return gone
