"""The messages of the model: finished content replaces what was streamed, and a withdrawn message disappears."""

from __future__ import annotations

from collections import deque
from weakref import WeakSet

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.messages import AssistantLine, as_text
from ccb.tunnel.wire.stream_events import ApiStreamEvent

from ...session.newest import Newest
from .blocks import (
    MAX_BLOCK_CHARS,
    Block,
    BlockContainer,
    Level,
    MarkdownBlock,
    NoticeBlock,
    ThoughtBlock,
    ToolBlock,
    weight_of,
)
from .live_message import LiveMessage, set_text
from .orphans import Orphans
from .tool_calls import ToolCalls

_MAX_ANSWERS, _MAX_ANSWERS_BYTES = 50, 4_000_000
_MAX_WITHDRAWABLE = 4  # the worker withdraws only one of the newest messages


class AgentMessages:
    """Shows the messages of the model. `answers` are the newest finished texts, the newest last."""

    def __init__(self, container: BlockContainer, tools: ToolCalls, orphans: Orphans) -> None:
        self._container = container
        self._tools = tools
        self._orphans = orphans
        self._live = LiveMessage(container, tools)
        # Of the newest messages, by message id: their blocks that are still shown, and how many are finished.
        self._blocks: Newest[str, WeakSet[Block]] = Newest(_MAX_WITHDRAWABLE)
        self._finished: Newest[str, int] = Newest(_MAX_WITHDRAWABLE)
        self.answers: deque[str] = deque(maxlen=_MAX_ANSWERS)

    def stream(self, event: ApiStreamEvent | None) -> None:
        """Apply a streaming event."""
        self._live.apply(event, self._finished)

    def finished(self, message: AssistantLine) -> None:
        """Show finished content. The worker sends one content block of a message at a time."""
        message_id = message.message_id
        if message_id in self._orphans.withdrawn:
            return
        shown = self._blocks.setdefault(message_id, WeakSet())
        self._finished[message_id] = self._finished.get(message_id, 0) + len(message.blocks)
        for content in message.blocks:
            kind = content.get("type")
            if kind == "text":
                shown.update(self._text(as_text(content.get("text")), is_error=message.is_api_error))
            elif kind == "thinking":
                shown.add(self._thought(as_text(content.get("thinking"))))
            elif kind == "tool_use":
                announced, _ = self._live.claim(ToolBlock)
                shown.add(self._tools.call(content, announced))

    def withdraw(self, message_id: str) -> None:
        """Remove a message that the worker withdrew, for example to ask the model again after a cut-off answer."""
        if self._live.message_id == message_id:
            self._live.drop()
        if message_id not in self._blocks:
            self._orphans.note_withdrawn(message_id)
        for block in list(self._blocks.pop(message_id, ())):
            self._container.take_away(block)

    @property
    def streams(self) -> bool:
        """Whether a part of an answer has come that is not finished."""
        return self._live.streams

    def drop_live(self) -> None:
        """Remove streamed text that was never finished."""
        self._live.drop()

    def end_turn(self) -> None:
        """Forget the messages of the turn: it is over, so none of them will be streamed or withdrawn."""
        self._live.drop()
        self._blocks.clear()
        self._finished.clear()

    def end_session(self) -> None:
        """Keep the text of an unfinished answer that the person has read: nothing more will come."""
        self._live.keep_text_and_drop()

    def _thought(self, thinking: str) -> ThoughtBlock:
        block, _ = self._live.claim(ThoughtBlock)
        if block is None:
            block = ThoughtBlock()
            self._container.add(block)
        block.text, block.live = neutralise(thinking)[:MAX_BLOCK_CHARS], False
        self._container.update_block(block)
        return block

    def _text(self, content: str, *, is_error: bool) -> list[Block]:
        text = neutralise(content)[:MAX_BLOCK_CHARS]
        if is_error:
            notice = NoticeBlock(text=text, level=Level.ERROR)
            self._container.add(notice)
            return [notice]
        block, pieces = self._live.claim(MarkdownBlock)
        if text.strip():
            self.answers.append(text)
            while weight_of(self.answers) > _MAX_ANSWERS_BYTES and len(self.answers) > 1:
                self.answers.popleft()
        if not text.strip():
            if block is not None:
                self._container.take_away(block)
            return []
        block = block or MarkdownBlock()
        if not block.text and not pieces:
            self._container.add(block)
        if "".join(piece.text for piece in pieces) + block.text != text:
            for piece in pieces:
                self._container.take_away(piece)
            pieces = set_text(self._container, block, text)
        block.live = False
        self._container.update_block(block)
        return [*pieces, block]
