"""From what a session says to blocks of the transcript.

Deltas grow live blocks; the finished line of a block replaces what the deltas had made of it, so that nothing is shown twice
and a lost delta does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ccb.tunnel.plain_text import neutralise

from ..messages import (
    Assistant,
    Message,
    Result,
    StreamEvent,
    SystemInit,
    SystemNote,
    ToolProgress,
    ToolResultBlock,
    ToolUseBlock,
    User,
)
from ..messages import (
    TextBlock as TextContent,
)
from ..messages import (
    ThinkingBlock as ThinkingContent,
)
from .blocks import (
    MAX_BLOCK_CHARS,
    Block,
    Level,
    NoticeBlock,
    PromptBlock,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    ToolState,
)

Json = dict[str, Any]

_SPLIT_OVER = 2_000  # a live text is split at a safe place once it is longer


class Page(Protocol):
    """Where blocks are shown."""

    def add(self, block: Block, *, before: Block | None = None) -> None: ...

    def update_block(self, block: Block) -> None: ...

    def take_away(self, block: Block) -> None: ...


@dataclass
class Totals:
    """Tokens and money of the session so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    context_tokens: int = 0


@dataclass
class Story:
    """Applies messages to a page. `model`, `mode`, `running` and `totals` are for the status line."""

    page: Page
    model: str = ""
    mode: str = "default"
    running: bool = False
    totals: Totals = field(default_factory=Totals)
    last_answer: str = ""
    _live: dict[int, Block] = field(default_factory=dict)  # content index -> block of the message that streams
    _pieces: dict[int, list[TextBlock]] = field(default_factory=dict)  # parts of a live text that are complete
    _message_id: str = ""
    _tools: dict[str, ToolBlock] = field(default_factory=dict)
    _prompts: list[PromptBlock] = field(default_factory=list)
    _by_message: dict[str, list[Block]] = field(default_factory=dict)
    _notice: NoticeBlock | None = None

    def prompt_sent(self, text: str) -> None:
        """The person sent a prompt; it is queued while a turn runs."""
        block = PromptBlock(text=neutralise(text), queued=self.running)
        self.page.add(block)
        if self.running:
            self._prompts.append(block)
        self.running = True

    def notice(self, text: str, level: Level = Level.INFO) -> NoticeBlock:
        """A word of ccb itself."""
        block = NoticeBlock(text=text, level=level)
        self.page.add(block)
        return block

    def fact(self, kind: str, body: Json) -> None:
        """A record of the journal that is not a message."""
        if kind == "turn_start":
            self.running = True
        elif kind == "prompt":
            for waiting in self._prompts[: max(1, len(body.get("items", ())))]:
                waiting.queued = False
                self.page.update_block(waiting)
                self._prompts.remove(waiting)
        elif kind == "tool_start":
            tool = self._tools.get(str(body.get("tool_use_id")))
            if tool is not None and tool.state is ToolState.WAITING:
                tool.state = ToolState.RUNNING
                self.page.update_block(tool)
        elif kind == "withdrawn":
            for block in self._by_message.pop(str(body.get("message_id")), []):
                self.page.take_away(block)
        elif kind == "model":
            self.model = str(body.get("model") or self.model)

    def message(self, message: Message) -> None:
        """Something the session said."""
        if isinstance(message, StreamEvent):
            self._event(message.event)
        elif isinstance(message, Assistant):
            self._assistant(message)
        elif isinstance(message, User):
            self._user(message)
        elif isinstance(message, ToolProgress):
            self._progress(message)
        elif isinstance(message, Result):
            self._result(message)
        elif isinstance(message, SystemInit):
            self.model, self.mode, self.running = message.model, message.permissionMode, True
        elif isinstance(message, SystemNote):
            self._note(message)

    def _event(self, event: Json) -> None:
        kind = event.get("type")
        index = event.get("index")
        if kind == "message_start":
            self._drop_live()
            message = event.get("message")
            self._message_id = str(message.get("id", "")) if isinstance(message, dict) else ""
        elif kind == "content_block_start" and isinstance(index, int):
            start = event.get("content_block")
            self._start(index, start if isinstance(start, dict) else {})
        elif kind == "content_block_delta" and isinstance(index, int):
            delta = event.get("delta")
            block = self._live.get(index)
            if isinstance(delta, dict) and isinstance(block, (TextBlock, ThinkingBlock)):
                self._grow(index, block, str(delta.get("text") or delta.get("thinking") or ""))

    def _start(self, index: int, start: Json) -> None:
        kind = start.get("type")
        block: Block | None = None
        if kind == "text":
            block = TextBlock(live=True, message_id=self._message_id)
        elif kind == "thinking":
            block = ThinkingBlock(live=True, message_id=self._message_id)
        elif kind == "tool_use" and isinstance(start.get("id"), str) and start["id"] not in self._tools:
            block = self._new_tool(str(start["id"]), str(start.get("name", "")), {})
        if block is not None:
            self._live[index] = block
            if not isinstance(block, TextBlock):  # an empty text shows nothing yet
                self.page.add(block)

    def _grow(self, index: int, block: TextBlock | ThinkingBlock, more: str) -> None:
        new = not block.text and isinstance(block, TextBlock) and not self._pieces.get(index)
        block.text = (block.text + neutralise(more))[-MAX_BLOCK_CHARS:]
        if new:
            self.page.add(block)
            return
        if isinstance(block, TextBlock) and len(block.text) > _SPLIT_OVER:
            place = safe_split(block.text)
            if place:
                piece = TextBlock(text=block.text[:place], message_id=block.message_id, tight=block.tight)
                block.text = block.text[place:]
                block.tight = False
                self._pieces.setdefault(index, []).append(piece)
                self.page.add(piece, before=block)
        self.page.update_block(block)

    def _drop_live(self) -> None:
        """Take away what was never confirmed: its message was cut off."""
        for index, block in self._live.items():
            if isinstance(block, (TextBlock, ThinkingBlock)):
                for piece in [*self._pieces.get(index, ()), block]:
                    self.page.take_away(piece)
        self._live.clear()
        self._pieces.clear()

    def _claim(self, kind: type[TextBlock] | type[ThinkingBlock]) -> tuple[Block | None, list[TextBlock]]:
        """The first live block of a kind, which a finished line now replaces, and its finished parts."""
        for index, block in list(self._live.items()):
            if isinstance(block, kind):
                del self._live[index]
                return block, self._pieces.pop(index, [])
        return None, []

    def _assistant(self, message: Assistant) -> None:
        usage = message.message.usage or {}
        fresh = [
            usage.get(name, 0) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        ]
        self.totals.context_tokens = sum(n for n in fresh if isinstance(n, int)) or self.totals.context_tokens
        shown = self._by_message.setdefault(message.message.id, [])
        for content in message.message.content:
            if isinstance(content, TextContent):
                shown.extend(self._text(content, message))
            elif isinstance(content, ThinkingContent):
                block, _ = self._claim(ThinkingBlock)
                if not isinstance(block, ThinkingBlock):
                    block = ThinkingBlock()
                    self.page.add(block)
                block.text, block.live = neutralise(content.thinking), False
                self.page.update_block(block)
                shown.append(block)
            elif isinstance(content, ToolUseBlock):
                tool = self._tools.get(content.id)
                if tool is None:
                    tool = self._new_tool(content.id, content.name, content.input)
                    self.page.add(tool)
                tool.tool_input = content.input
                self.page.update_block(tool)
                shown.append(tool)

    def _text(self, content: TextContent, message: Assistant) -> list[Block]:
        if message.is_api_error_message:
            return [self.notice(neutralise(content.text), Level.ERROR)]
        text = neutralise(content.text)
        block, pieces = self._claim(TextBlock)
        self.last_answer = text
        if not text.strip():
            if block is not None:
                self.page.take_away(block)
            return []
        if not isinstance(block, TextBlock):
            block = TextBlock()
        if not block.text and not pieces:
            self.page.add(block)
        if "".join(piece.text for piece in pieces) + block.text != text:
            for piece in pieces:
                self.page.take_away(piece)
            pieces = []
            block.text = text[:MAX_BLOCK_CHARS]
        block.live = False
        self.page.update_block(block)
        return [*pieces, block]

    def _new_tool(self, tool_id: str, name: str, tool_input: Json) -> ToolBlock:
        tool = ToolBlock(tool_id=tool_id, name=name, tool_input=tool_input, message_id=self._message_id)
        self._tools[tool_id] = tool
        return tool

    def _user(self, message: User) -> None:
        content = message.message.content
        if isinstance(content, str):
            if not message.isSynthetic and not message.isReplay:
                self.notice(neutralise(content), Level.DIM)
            return
        for block in content:
            if isinstance(block, ToolResultBlock):
                self._tool_result(block, message.tool_use_result)
            elif isinstance(block, TextContent) and not message.isReplay and not message.isSynthetic:
                self.notice(neutralise(block.text), Level.DIM)

    def _tool_result(self, block: ToolResultBlock, structured: Any) -> None:
        tool = self._tools.get(block.tool_use_id)
        if tool is None:
            return
        tool.state = ToolState.FAILED if block.is_error else ToolState.DONE
        tool.result = neutralise(block.text())[:MAX_BLOCK_CHARS]
        tool.output = ""
        patch = structured.get("structuredPatch") if isinstance(structured, dict) else None
        tool.patch = [hunk for hunk in patch if isinstance(hunk, dict)] if isinstance(patch, list) else []
        self.page.update_block(tool)
        del self._tools[block.tool_use_id]

    def _progress(self, message: ToolProgress) -> None:
        tool = self._tools.get(message.tool_use_id)
        if tool is not None and tool.state in (ToolState.WAITING, ToolState.RUNNING):
            tool.state = ToolState.RUNNING
            tool.output, tool.elapsed_s = message.output[-MAX_BLOCK_CHARS:], message.elapsed_time_seconds
            self.page.update_block(tool)

    def _note(self, note: SystemNote) -> None:
        if note.permissionMode:
            self.mode = note.permissionMode
        if note.subtype == "api_retry":
            why = f"HTTP {note.error_status}" if note.error_status else neutralise(note.error or "connection")
            delay = (note.retry_delay_ms or 0) / 1000
            self.notice(
                f"The model did not answer ({why}); try {note.attempt} of {note.max_retries} in {delay:.0f} s",
                Level.DIM,
            )
        elif note.subtype == "informational" and note.content:
            self.notice(neutralise(note.content), Level.WARNING if note.level in ("warning", "error") else Level.DIM)

    def _result(self, result: Result) -> None:
        self._drop_live()
        self.running = bool(self._prompts)
        self._by_message.clear()
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            value = result.usage.get(name)
            self.totals.input_tokens += value if isinstance(value, int) else 0
        output = result.usage.get("output_tokens")
        self.totals.output_tokens += output if isinstance(output, int) else 0
        self.totals.cost_usd = result.total_cost_usd
        if result.is_error and result.errors and result.terminal_reason not in ("aborted_streaming", "aborted_tools"):
            self.notice("\n".join(neutralise(error) for error in result.errors), Level.ERROR)


def safe_split(text: str) -> int:
    """Where a growing Markdown text can be cut so that both parts read the same as the whole: after the last blank line (or
    before the last item of a flat list) that is outside a fence; 0 when there is no such place."""
    place = 0
    fenced = False
    position = 0
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        stripped = line.lstrip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and position and number + 1 < len(lines):
            if not line.strip() and not lines[number + 1].startswith((" ", "\t")):
                place = position + len(line)
            elif line.startswith(("- ", "* ")) and position > _SPLIT_OVER // 2:
                place = position
        position += len(line)
    return place
