"""The answer that grows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar
from weakref import WeakSet

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import messages

from ..session.newest import Newest
from . import blocks
from .pieces import LIVE_PIECE_CHARS, Piece, first_cut, pieces_of
from .tool_calls import EarlyData, ToolCalls

_MAX_ANSWERS, _MAX_ANSWERS_BYTES = 50, 4_000_000
_MAX_WITHDRAWABLE = 4  # the worker withdraws only one of the newest messages


_MAX_LIVE = 64  # blocks of one message
_MAX_PIECES = 2 * blocks.MAX_BLOCK_CHARS // LIVE_PIECE_CHARS

BlockType = TypeVar("BlockType", bound=blocks.Block)


@dataclass
class _LiveBlock:
    """One content block. `pieces` are the parts of a long text that can no longer change, each a block of its own."""

    block: blocks.Block
    pieces: deque[blocks.MarkdownBlock] = field(default_factory=lambda: deque(maxlen=_MAX_PIECES))


class AgentMessages:
    """Shows the messages of the model. `answers` are the newest finished texts, the newest last."""

    def __init__(self, container: blocks.BlockContainer, tools: ToolCalls, orphans: EarlyData) -> None:
        self._container = container
        self._tools = tools
        self._orphans = orphans
        self._live: Newest[int, _LiveBlock] = Newest(_MAX_LIVE)  # by the index of the content block
        self._live_id = ""  # the message that is streamed
        self._first_new = 0  # content blocks of it before this one are on the screen already
        # Of the newest messages, by message id: their blocks that are still shown, and how many are finished.
        self._blocks: Newest[str, WeakSet[blocks.Block]] = Newest(_MAX_WITHDRAWABLE)
        self._finished: Newest[str, int] = Newest(_MAX_WITHDRAWABLE)
        self.answers: deque[str] = deque(maxlen=_MAX_ANSWERS)

    def stream(self, event: messages.ApiStreamEvent | None) -> None:
        if isinstance(event, messages.MessageStart):
            self.drop_live()
            self._live_id = event.message_id
            self._first_new = self._finished.get(event.message_id, 0)  # after a reconnect all of it comes again
        elif isinstance(event, messages.ContentBlockStart) and event.index >= self._first_new:
            self._open(event)
        elif isinstance(event, messages.ContentBlockDelta) and event.field in ("text", "thinking"):
            live = self._live.get(event.index)
            if live is not None and event.text:
                self._grow(live, event.text)

    def finished(self, message: messages.AssistantMessage) -> None:
        message_id = message.message_id
        if message_id in self._orphans.withdrawn:
            return
        shown = self._blocks.setdefault(message_id, WeakSet())
        self._finished[message_id] = self._finished.get(message_id, 0) + len(message.blocks)
        for content in message.blocks:
            kind = content.get("type")
            if kind == "text":
                shown.update(self._text(messages.as_text(content.get("text")), is_error=message.is_api_error))
            elif kind == "thinking":
                shown.add(self._thought(messages.as_text(content.get("thinking"))))
            elif kind == "tool_use":
                announced, _ = self._claim(blocks.ToolBlock)
                shown.add(self._tools.call(content, announced))

    def withdraw(self, message_id: str) -> None:
        """Remove a message that the worker withdrew, for example to ask the model again after a cut-off answer."""
        if self._live_id == message_id:
            self.drop_live()
        if message_id not in self._blocks:
            self._orphans.withdrawn[message_id] = None
        for block in list(self._blocks.pop(message_id, ())):
            self._container.take_away(block)

    @property
    def streams(self) -> bool:
        return bool(self._live)

    def drop_live(self) -> None:
        """Remove the blocks that were never finished: their message was cut off."""
        for live in self._live.values():
            for piece in live.pieces:
                self._container.take_away(piece)
            self._container.take_away(live.block)
            if isinstance(live.block, blocks.ToolBlock):
                self._tools.retract(live.block)
        self._live.clear()

    def end_turn(self) -> None:
        self.drop_live()
        self._blocks.clear()
        self._finished.clear()

    def end_session(self) -> None:
        """Keep the text and thinking that the person has read, and remove the rest: nothing more will come."""
        for index, live in list(self._live.items()):
            block = live.block
            if isinstance(block, blocks.MarkdownBlock | blocks.ThoughtBlock) and (block.text or live.pieces):
                block.live = False
                self._container.update_block(block)
                del self._live[index]
        self.drop_live()

    def _claim(self, kind: type[BlockType]) -> tuple[BlockType | None, list[blocks.MarkdownBlock]]:
        """Hand over the first live block of a kind, and the pieces split off from it, to be replaced."""
        for index, live in self._live.items():
            if isinstance(live.block, kind):
                del self._live[index]
                return live.block, list(live.pieces)
        return None, []

    def _thought(self, thinking: str) -> blocks.ThoughtBlock:
        block, _ = self._claim(blocks.ThoughtBlock)
        if block is None:
            block = blocks.ThoughtBlock()
            self._container.add(block)
        block.text, block.live = neutralise(thinking)[: blocks.MAX_BLOCK_CHARS], False
        self._container.update_block(block)
        return block

    def _text(self, content: str, *, is_error: bool) -> list[blocks.Block]:
        text = neutralise(content)[: blocks.MAX_BLOCK_CHARS]
        if is_error:
            notice = blocks.NoticeBlock(text=text, level=blocks.Level.ERROR)
            self._container.add(notice)
            return [notice]
        block, pieces = self._claim(blocks.MarkdownBlock)
        if not text.strip():
            if block is not None:
                self._container.take_away(block)
            return []
        self.answers.append(text)
        while blocks.weight_of(self.answers) > _MAX_ANSWERS_BYTES and len(self.answers) > 1:
            self.answers.popleft()
        block = block or blocks.MarkdownBlock()
        if not block.text and not pieces:
            self._container.add(block)
        if "".join(piece.text for piece in pieces) + block.text != text:
            for piece in pieces:
                self._container.take_away(piece)
            *heads, last = pieces_of(text)
            block.tight = False
            pieces = [_put_before(self._container, block, head) for head in heads]
            block.text, block.opening = last.text, last.opening
        block.live = False
        self._container.update_block(block)
        return [*pieces, block]

    def _open(self, start: messages.ContentBlockStart) -> None:
        block: blocks.Block | None = None
        if start.kind == "text":
            block = blocks.MarkdownBlock(live=True)
        elif start.kind == "thinking":
            block = blocks.ThoughtBlock(live=True)
        elif start.kind == "tool_use" and start.tool_id is not None:
            block = self._tools.announce(start.tool_id, start.tool_name)
        if block is not None:
            self._live[start.index] = _LiveBlock(block)
            if not isinstance(block, blocks.MarkdownBlock):  # a text block appears with its first delta
                self._container.add(block)

    def _grow(self, live: _LiveBlock, more: str) -> None:
        block = live.block
        if not isinstance(block, blocks.MarkdownBlock | blocks.ThoughtBlock):
            return
        first = isinstance(block, blocks.MarkdownBlock) and not block.text and not live.pieces
        block.text = (block.text + neutralise(more))[-blocks.MAX_BLOCK_CHARS :]
        if first:
            self._container.add(block)
            return
        if isinstance(block, blocks.MarkdownBlock) and "\n" in more and len(block.text) > LIVE_PIECE_CHARS:
            while (cut := first_cut(Piece(block.text, block.opening), LIVE_PIECE_CHARS)) is not None:
                live.pieces.append(_put_before(self._container, block, cut[0]))
                block.text, block.opening = cut[1].text, cut[1].opening
        self._container.update_block(block)


def _put_before(container: blocks.BlockContainer, block: blocks.MarkdownBlock, piece: Piece) -> blocks.MarkdownBlock:
    added = blocks.MarkdownBlock(text=piece.text, tight=block.tight, opening=piece.opening)
    block.tight = not piece.text.endswith("\n\n")  # in the middle of a list
    container.add(added, before=block)
    return added
