"""From what a session says to blocks of the transcript.

Deltas grow live blocks; the finished line of a block replaces what the deltas had made of it, so that nothing is shown twice
and a lost delta does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.tool_traits import TODO_WRITE

from ...session.client import shown_name
from ...session.messages import (
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
from ...session.messages import TextBlock as TextContent
from ...session.messages import ThinkingBlock as ThinkingContent
from ...session.retry_text import retry_text
from .block_container import Page
from .blocks import (
    MAX_BLOCK_CHARS,
    Block,
    Level,
    NoticeBlock,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    ToolState,
)
from .markdown import safe_pieces, safe_split
from .orphans import Strays
from .prompt_tracker import Asked, prompt_text
from .totals import Totals

Json = dict[str, Any]

_SPLIT_OVER = 1_500  # a live text is split at a safe place once it is longer
_WITHDRAWABLE = 4  # the newest messages of the model, which may still be withdrawn


@dataclass
class Story:
    """Applies messages to a page. `model`, `mode`, `running` and `totals` are for the status line."""

    page: Page
    model: str = ""
    mode: str = "default"
    me: str = ""  # this client's name
    fresh: bool = True  # all that was told so far had happened before this client came
    running: bool = False
    turns: int = 0
    totals: Totals = field(default_factory=Totals)
    last_answer: str = ""
    _live: dict[int, Block] = field(default_factory=dict)  # content index -> block of the message that streams
    _pieces: dict[int, list[TextBlock]] = field(default_factory=dict)  # parts of a live text that are complete
    _split_over: int = _SPLIT_OVER
    _message_id: str = ""
    _tools: dict[str, ToolBlock] = field(default_factory=dict)
    _by_message: dict[str, list[Block]] = field(default_factory=dict)
    _finished: dict[str, int] = field(default_factory=dict)  # message -> how many of its blocks are complete
    _skip: int = 0  # blocks of the message that streams which are shown already
    _in_turn: bool = False
    _driver: str | None = None
    _others: bool = False  # somebody else was said to drive
    _carried: ToolBlock | None = None  # the last list of todos, of events that are not loaded
    _retry: NoticeBlock | None = None
    strays: Strays = field(default_factory=Strays)

    def __post_init__(self) -> None:
        self.asked = Asked(self.page)

    def prompt_sent(self, text: str, uuid: str, *, connected: bool = True) -> None:
        """The person sent a prompt; below everything else while a turn runs or the connection is lost."""
        self.asked.sent(text, uuid, running=self.running, connected=connected)
        self.running = self.running or connected

    def prompt_failed(self, uuid: str) -> None:
        """The prompt did not leave the laptop."""
        if not self.asked.failed(uuid):
            self.running = self._in_turn

    def prompt_refused(self, uuid: str) -> None:
        """The prompt was not sent, and the person has it again."""
        self.asked.refused(uuid)
        self.running = self._in_turn

    def link_lost(self) -> None:
        """What the host has not confirmed waits."""
        if self.asked.link_lost():
            self.running = self._in_turn

    def all_sent(self) -> None:
        """The host has confirmed everything."""
        self.asked.all_sent(running=self.running)

    def skipped(self, body: Json, *, running: bool) -> None:
        """Events are not loaded; `body` is what has to be known of them."""
        self._drop_live()
        self._close_tools(ToolState.UNKNOWN, forget=False)
        self.model = str(body.get("model") or self.model)
        self.mode = str(body.get("permission_mode") or self.mode)
        result, todos = body.get("result"), body.get("todos")
        if isinstance(result, dict):
            self.totals.take_all(result)
        self.running = self._in_turn = running
        self.asked.skipped(body.get("prompts"))
        if isinstance(todos, list) and todos:
            self._carried = ToolBlock(name=TODO_WRITE.name, tool_input={"todos": todos}, state=ToolState.DONE)
            self._add(self._carried)

    def adopt(self, earlier: Story) -> None:
        """What `earlier` events left open goes on here."""
        for tool_id, tool in earlier._tools.items():
            if self.running:
                self._tools.setdefault(tool_id, tool)
            else:
                tool.state = ToolState.UNKNOWN
        earlier.asked.settle()

    def notice(self, text: str, level: Level = Level.INFO) -> NoticeBlock:
        """A word of ccb itself."""
        block = NoticeBlock(text=text, level=level)
        self._add(block)
        return block

    def ended(self) -> None:
        """Nothing more comes; what was under way has an end that nobody here knows. What was read of an answer stays."""
        self.running = self._in_turn = False
        for index, block in list(self._live.items()):
            if isinstance(block, (TextBlock, ThinkingBlock)) and (block.text or index in self._pieces):
                block.live = False
                self.page.update_block(block)
                del self._live[index]
                self._pieces.pop(index, None)
        self._drop_live()
        self._close_tools(ToolState.UNKNOWN)

    def fact(self, kind: str, body: Json) -> None:
        """A record of the journal that is not a message."""
        if kind == "turn_start":
            self.running = self._in_turn = True
            self.turns += 1
        elif kind == "input":
            self._input(body)
        elif kind == "prompt":
            items = body.get("items")
            for item in items if isinstance(items, list) else []:
                if isinstance(item, dict) and not self.asked.taken(str(item.get("input"))):
                    self.strays.note_taken(str(item.get("input")))
        elif kind == "tool_start":
            tool = self._tools.get(str(body.get("tool_use_id")))
            if tool is not None and tool.state is ToolState.WAITING:
                tool.state = ToolState.RUNNING
                self.page.update_block(tool)
        elif kind == "withdrawn":
            self._withdrawn(str(body.get("message_id")))
        elif kind == "model":
            self.model = str(body.get("model") or self.model)
        elif kind == "options":
            self._options(body.get("options"))
        elif kind == "driver":
            self._drives(str(body.get("by") or ""))
        elif kind == "forked":
            self._forked()
        elif kind == "late_answer":
            self.notice("An answer came too late and was dropped: the question was settled before.", Level.WARNING)
        elif kind == "damaged" and body.get("what"):  # the worker that found what cannot be read says so once
            self.notice(f"The session's journal is damaged: {one_line(str(body.get('what', '')))}", Level.WARNING)

    def _add(self, block: Block) -> None:
        """Show a block above what waits."""
        self.page.add(block, before=self.asked.first_waiting())

    def _options(self, options: object) -> None:
        """The session begins, or goes on with other options."""
        if isinstance(options, dict):
            self.model = str(options.get("model") or self.model)
            self.mode = str(options.get("permission_mode") or self.mode)

    def _drives(self, name: str) -> None:
        """Say who drives when it is somebody else than before; oneself only after others. Every reconnect says it, and
        who drove before this terminal came matters to nobody."""
        mine, changed = name == self.me, name not in ("", self._driver)
        if changed and self._driver is not None and (not mine or self._others) and not self.fresh:
            who = "You drive" if mine else f"{one_line(shown_name(name))} drives"
            self.notice(f"{who} this session now.", Level.DIM)
            self._others = not mine
        self._driver = name or self._driver

    def _forked(self) -> None:
        """The session is a copy from here on. The turn that was copied goes on in the original only: it has no result here."""
        self.asked.forked()
        self._turn_over(ToolState.UNKNOWN)

    def _withdrawn(self, message_id: str) -> None:
        if self._message_id == message_id:
            self._drop_live()
        if message_id not in self._by_message:
            self.strays.note_withdrawn(message_id)
        for block in self._by_message.pop(message_id, []):
            self.page.take_away(block)

    def _input(self, body: Json) -> None:
        """Something was sent to the session; a prompt that is not from here is shown as one."""
        sent = body.get("body")
        text = prompt_text(sent)
        if not isinstance(sent, dict) or sent.get("type") != "user" or not text:
            return
        ids = tuple(dict.fromkeys((str(body.get("id")), str(sent.get("uuid") or ""))))
        if self.asked.arrived(text, ids, running=self.running, taken=ids[0] in self.strays.taken):
            self.running = True

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
            self.model, self.mode, self.running, self._in_turn = message.model, message.permissionMode, True, True
        elif isinstance(message, SystemNote):
            self._note(message)

    def _event(self, event: Json) -> None:
        kind = event.get("type")
        index = event.get("index")
        if kind == "message_start":
            self._drop_live()
            message = event.get("message")
            self._message_id = str(message.get("id", "")) if isinstance(message, dict) else ""
            self._skip = self._finished.get(self._message_id, 0)
        elif kind == "content_block_start" and isinstance(index, int) and index >= self._skip:
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
            block = ToolBlock(tool_id=str(start["id"]), name=str(start.get("name", "")))
            self._tools[block.tool_id] = block
        if block is not None:
            self._live[index] = block
            if not isinstance(block, TextBlock):  # an empty text shows nothing yet
                self._add(block)

    def _grow(self, index: int, block: TextBlock | ThinkingBlock, more: str) -> None:
        if not more:
            return
        new = not block.text and isinstance(block, TextBlock) and not self._pieces.get(index)
        block.text = (block.text + neutralise(more))[-MAX_BLOCK_CHARS:]
        if new:
            self._split_over = _SPLIT_OVER
            self._add(block)
            return
        if isinstance(block, TextBlock) and len(block.text) > self._split_over:
            self._split(index, block)
        self.page.update_block(block)

    def _split(self, index: int, block: TextBlock) -> None:
        """Put what can no longer change into a block of its own, so that only the rest is drawn again with every delta."""
        place = safe_split(block.text)
        if not place:
            self._split_over = len(block.text) * 5 // 4
            return
        piece = TextBlock(text=block.text[:place], message_id=block.message_id, tight=block.tight)
        block.tight = not piece.text.endswith("\n\n")  # in the middle of a list
        block.text = block.text[place:]
        self._split_over = max(_SPLIT_OVER, len(block.text) * 5 // 4)
        self._pieces.setdefault(index, []).append(piece)
        self.page.add(piece, before=block)

    def _drop_live(self) -> None:
        """Take away what was never confirmed: its message was cut off."""
        for index, block in self._live.items():
            for piece in self._pieces.get(index, ()):
                self.page.take_away(piece)
            self.page.take_away(block)
            if isinstance(block, ToolBlock):
                self._tools.pop(block.tool_id, None)
        self._live.clear()
        self._pieces.clear()

    def _claim(self, kind: type[Block]) -> tuple[Block | None, list[TextBlock]]:
        """The first live block of a kind, which a finished line now replaces, and its finished parts."""
        for index, block in list(self._live.items()):
            if isinstance(block, kind):
                del self._live[index]
                return block, self._pieces.pop(index, [])
        return None, []

    def _assistant(self, message: Assistant) -> None:
        self._retry = None
        usage = message.message.usage or {}
        fresh = [
            usage.get(name, 0) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        ]
        self.totals.context_tokens = sum(n for n in fresh if isinstance(n, int)) or self.totals.context_tokens
        identity = message.message.id
        if identity in self.strays.withdrawn:
            return
        shown = self._by_message.setdefault(identity, [])
        self._finished[identity] = self._finished.get(identity, 0) + len(message.message.content)
        while len(self._by_message) > _WITHDRAWABLE:
            oldest = next(iter(self._by_message))
            del self._by_message[oldest]
            self._finished.pop(oldest, None)
        for content in message.message.content:
            if isinstance(content, TextContent):
                shown.extend(self._text(content, message))
            elif isinstance(content, ThinkingContent):
                block, _ = self._claim(ThinkingBlock)
                if not isinstance(block, ThinkingBlock):
                    block = ThinkingBlock()
                    self._add(block)
                block.text, block.live = neutralise(content.thinking)[:MAX_BLOCK_CHARS], False
                self.page.update_block(block)
                shown.append(block)
            elif isinstance(content, ToolUseBlock):
                shown.append(self._tool_use(content))

    def _tool_use(self, content: ToolUseBlock) -> ToolBlock:
        """A finished call; the worker may have given it another id than the stream."""
        tool, _ = self._claim(ToolBlock)
        if isinstance(tool, ToolBlock):
            self._tools.pop(tool.tool_id, None)
            tool.tool_id, tool.name, tool.tool_input = content.id, content.name, content.input
            self.page.update_block(tool)
        else:
            tool = ToolBlock(tool_id=content.id, name=content.name, tool_input=content.input)
            self._add(tool)
        if content.name == TODO_WRITE.name and self._carried is not None:
            self.page.take_away(self._carried)
            self._carried = None
        self._tools[content.id] = tool
        stray = self.strays.results.pop(content.id, None)
        if stray is not None:
            self._tool_result(*stray)
        return tool

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
            self._add(block)
        if "".join(piece.text for piece in pieces) + block.text != text:
            for piece in pieces:
                self.page.take_away(piece)
            pieces = self._set_text(block, text[:MAX_BLOCK_CHARS])
        block.live = False
        self.page.update_block(block)
        return [*pieces, block]

    def _set_text(self, block: TextBlock, text: str) -> list[TextBlock]:
        """Give a block its text, but for the parts that were put before it: only what is looked at is drawn."""
        *heads, block.text = safe_pieces(text, _SPLIT_OVER)
        pieces, block.tight = [], False
        for head in heads:
            piece = TextBlock(text=head, message_id=block.message_id, tight=block.tight)
            block.tight = not head.endswith("\n\n")
            self.page.add(piece, before=block)
            pieces.append(piece)
        return pieces

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
            self.strays.note_result(block, structured)
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
        if tool is not None and tool.state not in (ToolState.DONE, ToolState.FAILED):
            tool.state = ToolState.RUNNING
            tool.output, tool.elapsed_s = message.output[-MAX_BLOCK_CHARS:], message.elapsed_time_seconds
            self.page.update_block(tool)

    def _note(self, note: SystemNote) -> None:
        if note.permissionMode:
            self.mode = note.permissionMode
        if note.subtype == "api_retry":
            self._say_retry(retry_text(note))
        elif note.subtype == "informational" and note.content:
            self.notice(neutralise(note.content), Level.WARNING if note.level in ("warning", "error") else Level.DIM)

    def _say_retry(self, text: str) -> None:
        """One line for all tries of a call."""
        if self._retry is None:
            self._retry = self.notice(text, Level.WARNING)
        else:
            self._retry.text = text
            self.page.update_block(self._retry)

    def _result(self, result: Result) -> None:
        self._turn_over(ToolState.FAILED)
        self.totals.add(result)
        if result.is_error and result.errors and result.terminal_reason not in ("aborted_streaming", "aborted_tools"):
            self.notice("\n".join(neutralise(error) for error in result.errors), Level.ERROR)

    def _turn_over(self, tools: ToolState) -> None:
        """No more of this turn comes; what is still open is as `tools` says."""
        self._retry = None
        self._drop_live()
        self._close_tools(tools)
        self._in_turn = False
        self.running = self.asked.queued
        self._by_message.clear()
        self._finished.clear()

    def _close_tools(self, state: ToolState, *, forget: bool = True) -> None:
        for tool in self._tools.values():
            tool.state = state
            self.page.update_block(tool)
        if forget:
            self._tools.clear()
