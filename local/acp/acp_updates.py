"""What a session says, as `session/update`s. The state behind them is that of the transcript which the REPL shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakSet

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import JsonRpcPeer
from ccb.tunnel.wire.prompt_content import image_type

from ..session.newest import Newest
from ..session.session_client import EventGap, SessionEvent, parse_snapshot
from ..slash_commands.session_api import ReplInfo
from ..transcript.blocks import Block, Level, NoticeBlock, PictureData, PromptBlock, ToolBlock, ToolState
from ..transcript.session_facts import mode_in_force
from . import acp_tool_calls as calls
from .acp_paths import PathMap

_MAX_CALLS = 2_000  # of which later updates hold only what has changed
_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
_OVER = (ToolState.DONE, ToolState.FAILED, ToolState.UNKNOWN)
_TODO_STATUS = {"in_progress": "in_progress", "completed": "completed"}
_AGAIN = "\n\n*The model begins this answer again: the text above does not count.*\n\n"


@dataclass(frozen=True)
class ClientAbilities:
    """What the client of the connection can do beyond the baseline."""

    terminal_output: bool = False
    notices: bool = False
    compaction: bool = False
    forms: bool = False
    links: bool = False

    @staticmethod
    def of(capabilities: Json) -> ClientAbilities:
        session, asks = (messages.as_dict(capabilities.get(name)) for name in ("session", "elicitation"))
        return ClientAbilities(
            messages.as_dict(capabilities.get("_meta")).get("terminal_output") is True,
            isinstance(session.get("notices"), dict),
            isinstance(session.get("compaction"), dict),
            isinstance(asks.get("form"), dict),
            isinstance(asks.get("url"), dict),
        )


@dataclass(frozen=True)
class Editor:
    """The other end of the connection. `roots` are its folders."""

    peer: JsonRpcPeer
    abilities: ClientAbilities
    paths: PathMap
    roots: tuple[str, ...] = ()


def chunk(kind: str, text: str, message_id: str = "") -> Json:
    update: Json = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return {**update, "messageId": message_id} if message_id else update


class AnswerText:
    """Passes each character of an answer on once: as it is streamed, then what the finished blocks have beyond that.
    After a reconnect the host sends the answer again from its start."""

    def __init__(self) -> None:
        self._message_id = ""
        self._passed: dict[int, int] = {}  # characters, by the number of the block
        self._again: dict[int, int] = {}  # the same since the message was begun last
        self._finished = 0

    @property
    def begun(self) -> bool:
        return bool(self._passed)

    def streamed(self, event: messages.ApiStreamEvent | None) -> Iterator[Json]:
        if isinstance(event, messages.MessageStart):
            self._begin(event.message_id)
            self._again.clear()
        elif isinstance(event, messages.ContentBlockDelta) and event.field in _CHUNKS:
            self._again[event.index] = size = self._again.get(event.index, 0) + len(event.text)
            new = size - self._passed.get(event.index, 0)
            if new > 0:
                self._passed[event.index] = size
                yield chunk(_CHUNKS[event.field], event.text[-new:], self._message_id)

    def finished(self, message: messages.AssistantMessage) -> Iterator[Json]:
        self._begin(message.message_id)
        for block in message.blocks:
            index, self._finished = self._finished, self._finished + 1
            kind = messages.as_text(block.get("type"))
            text = messages.as_text(block.get(kind)) if kind in _CHUNKS else ""
            rest = text[self._passed.get(index, 0) :]
            self._passed[index] = max(self._passed.get(index, 0), len(text))
            if rest and not message.is_api_error:  # the transcript shows that as an error
                yield chunk(_CHUNKS[kind], rest, self._message_id)

    def withdrawn(self) -> None:
        self._message_id = ""
        self._begin("")

    def _begin(self, message_id: str) -> None:
        if message_id != self._message_id or not message_id:
            self._message_id, self._finished = message_id, 0
            self._passed.clear()
            self._again.clear()


class AcpUpdates:
    """Makes updates of the events of one session. As the container of its transcript it sees what appears and changes;
    it keeps only the calls that are not over."""

    def __init__(self, info: ReplInfo, abilities: ClientAbilities, paths: PathMap) -> None:
        self.reducer = info.transcript(self)
        self.cwd = self.reducer.notices.cwd
        self.own_turn = False  # a prompt of the client runs, whose answer says what went wrong
        self._abilities = abilities
        self._paths = paths
        self._answer = AnswerText()
        self._out: list[Json] = []
        self._sent_calls: Newest[str, Json] = Newest(_MAX_CALLS)  # as they were told last; {} once they are over
        self._asked: Newest[str, None] = Newest(_MAX_CALLS)  # calls of sub-agents that wait for an answer, or run
        self._printed: Newest[str, str] = Newest(_MAX_CALLS)  # in terminals, by the id of the call
        self._seen: WeakSet[Block] = WeakSet()
        self._open: Newest[int, ToolBlock] = Newest(_MAX_CALLS)  # the transcript does not keep them
        self._is_live = False  # an event of a stream is being applied
        self._compaction = ""
        self._told = self.state  # what the client knows of it

    def prompt_sent(self, text: str, uuid: str) -> None:
        """The client has sent a prompt, so it knows it."""
        self.reducer.prompt_sent(text, uuid)
        self._out.clear()

    def take(self, event: SessionEvent) -> list[Json]:
        """Apply an event, and return the updates about it."""
        content = event.record.content
        public = event.public if event.kind == "progress" else getattr(content, "public", None)
        is_main = event.record.agent_id == records.MAIN_AGENT
        self._is_live = isinstance(public, messages.StreamEventMessage)
        if is_main and isinstance(public, messages.StreamEventMessage):
            if records.agent_of_message(event.body) == records.MAIN_AGENT:
                self._out += self._answer.streamed(messages.parse_stream_event(public.event))
        elif is_main and event.kind == "message" and isinstance(public, messages.AssistantMessage):
            self._out += self._answer.finished(public)
        elif is_main and isinstance(content, records.WithdrawnRecord) and self._answer.begun:
            self._answer.withdrawn()
            self._out.append(chunk("agent_message_chunk", _AGAIN))
        elif is_main and event.kind == "message":
            self._out += self._compacted(public)
        self._note_asked(public)
        self.reducer.take(event)
        return self._taken()

    def _note_asked(self, public: object) -> None:
        """Announce and end the calls that the editor would know by a question only."""
        if isinstance(public, messages.ControlRequest):
            number = public.text("tool_use_id")
            if number and number not in self._sent_calls and number not in self._asked:
                self._asked[number] = None
                call = calls.subject_of(public.request, self._paths, self.cwd)
                self._out.append({"sessionUpdate": "tool_call", **call})
        for block in public.blocks if isinstance(public, messages.UserMessage) and self._asked else ():
            number = messages.as_text(block.get("tool_use_id"))
            if block.get("type") == "tool_result" and self._asked.pop(number, self) is None:
                status = "failed" if block.get("is_error") else "completed"
                self._out.append({"sessionUpdate": "tool_call_update", "toolCallId": number, "status": status})

    def skipped(self, gap: EventGap, asks: Iterable[object], *, running: bool) -> list[Json]:
        """Take over the state after events that are not loaded. What was said in them is not repeated, but the calls
        that `asks` are about are announced."""
        self.reducer.skipped(parse_snapshot(gap.body), running=running)
        self._out.clear()
        for each in asks:
            self._note_asked(each)
        return self._taken()

    def link_lost(self) -> None:
        self.reducer.link_lost()

    def notice(self, severity: str, text: str) -> list[Json]:
        """Return what tells the person something: as a notice, or a warning also as a line of the conversation."""
        title, _, more = text.strip().partition("\n")
        if not title:
            return []
        if self._abilities.notices:
            notice: Json = {"sessionUpdate": "notice", "severity": severity, "title": title}
            return [{**notice, "description": more} if more else notice]
        return [] if severity == "info" else [chunk("agent_message_chunk", f"\n\n*ccb: {title}*\n\n{more}", new_uuid())]

    @property
    def state(self) -> dict[str, Any]:
        """What changes of its own accord, and has updates of its own."""
        reducer, totals = self.reducer, self.reducer.totals
        return {
            "mode": mode_in_force(reducer.facts.mode, reducer.facts.sandbox),
            "options": (reducer.facts.model, reducer.facts.effort),
            "title": reducer.facts.title,
            "todos": reducer.todos,
            "usage": (totals.context_tokens, totals.window, totals.cost_usd),
        }

    def settled(self) -> None:
        """The client was just told mode and options in an answer."""
        state = self.state
        self._told |= {name: state[name] for name in ("mode", "options")}

    def _taken(self) -> list[Json]:
        self._is_live = False
        state = self.state
        for name, value in state.items():
            if self._told.get(name) != value:
                self._told[name] = value
                self._out += self._changed(name)
        out, self._out = self._out, []
        return out

    def _changed(self, name: str) -> list[Json]:
        reducer, totals = self.reducer, self.reducer.totals
        if name == "mode":
            return [{"sessionUpdate": "current_mode_update", "currentModeId": self._told["mode"]}, CONFIG_CHANGED]
        if name == "options":
            return [CONFIG_CHANGED]
        if name == "title":
            title = reducer.facts.title
            return [{"sessionUpdate": "session_info_update", "title": title}] if title else []
        if name == "todos":
            entries = [
                {"content": each.subject, "priority": "medium", "status": _TODO_STATUS.get(each.status, "pending")}
                for each in reducer.todos.items
            ]
            return [{"sessionUpdate": "plan", "entries": entries}]
        if not (totals.window and totals.context_tokens):
            return []
        cost = {"amount": round(totals.cost_usd, 6), "currency": "USD"}
        used = totals.context_tokens
        return [{"sessionUpdate": "usage_update", "used": used, "size": totals.window, "cost": cost}]

    def _compacted(self, public: object) -> list[Json]:
        if not self._abilities.compaction:
            return []
        status = public.body.get("status") if isinstance(public, messages.SystemMessage) else None
        update: Json = {"sessionUpdate": "compaction_update"}
        if status == "compacting":
            self._compaction = new_uuid()
            return [{**update, "compactionId": self._compaction, "status": "in_progress"}]
        number = self._compaction or new_uuid()
        if isinstance(public, messages.CompactMessage) and not public.is_micro:
            self._compaction = ""
            return [{**update, "compactionId": number, "status": "completed"}]
        failed = isinstance(public, messages.SystemMessage) and public.body.get("compact_result") == "failed"
        if self._compaction and failed:
            self._compaction = ""
            return [{**update, "compactionId": number, "status": "failed"}]
        return []

    # The container of the transcript.

    def add(self, block: Block, *, before: Block | None = None) -> None:
        if isinstance(block, ToolBlock):
            self._open[id(block)] = block
            self._call(block)
        elif block not in self._seen:
            self._seen.add(block)
            if isinstance(block, PromptBlock):
                self._out += _prompt(block)
            elif isinstance(block, NoticeBlock):
                self._notice(block)

    def update_block(self, block: Block) -> None:
        if isinstance(block, ToolBlock):
            self._call(block)

    def take_away(self, block: Block) -> None:
        if isinstance(block, ToolBlock):
            self._open.pop(id(block), None)
        if isinstance(block, ToolBlock) and block.tool_id in self._sent_calls:
            block.state = ToolState.DONE if block.state is ToolState.RUNNING else block.state
            self._call(block)

    def cut(self, first: Block, before: Block | None) -> list[Block]:
        return []  # what an editor shows stays

    def _notice(self, block: NoticeBlock) -> None:
        if block.level is Level.INFO:  # a command has printed it
            self._out.append(chunk("agent_message_chunk", block.text, new_uuid()))
        elif block.level is Level.WARNING or (block.level is Level.ERROR and not self.own_turn):
            self._out += self.notice(block.level.value, block.text)

    def _call(self, block: ToolBlock) -> None:
        if self._is_live or not block.tool_id:  # a call that the model still writes may get another id
            return
        before = self._sent_calls.get(block.tool_id)
        if before == {}:
            return
        terminal = self._abilities.terminal_output
        call = calls.shown(block, self._paths, self.cwd, terminal=terminal)
        changed = call if before is None else {k: v for k, v in call.items() if before.get(k) != v}
        self._sent_calls[block.tool_id] = call
        meta = self._terminal_meta(block, new=before is None) if terminal and calls.is_command(block) else {}
        if block.state in _OVER:
            self._sent_calls[block.tool_id] = {}
            self._open.pop(id(block), None)
            self._printed.pop(block.tool_id, None)
        if before is None:
            meta = {"claudeCode": {"toolName": block.name}, **meta}
        if not changed and not meta:
            return
        kind = "tool_call" if before is None else "tool_call_update"
        update = {"sessionUpdate": kind, "toolCallId": block.tool_id, **changed}
        self._out.append({**update, "_meta": meta} if meta else update)

    def _terminal_meta(self, block: ToolBlock, *, new: bool) -> Json:
        number = block.tool_id
        meta: Json = {"terminal_info": {"terminal_id": number, "cwd": self.cwd}} if new else {}
        before, now = self._printed.get(number, ""), calls.output_of(block)
        if now and now != before and (more := calls.more_output(before, now)):
            self._printed[number] = now
            meta["terminal_output"] = {"terminal_id": number, "data": more}
        if block.state in _OVER:
            code = int(block.state is ToolState.FAILED)
            meta["terminal_exit"] = {"terminal_id": number, "exit_code": code, "signal": None}
        return meta


CONFIG_CHANGED: Json = {"sessionUpdate": "config_option_update"}
"""In place of an update whose options the session fills in: they come from more than the transcript."""


def _prompt(block: PromptBlock) -> list[Json]:
    """Return a prompt that another client has sent, or this one in an earlier run."""
    text = [chunk("user_message_chunk", block.text)] if block.text else []
    return text + [
        {"sessionUpdate": "user_message_chunk", "content": {"type": "image", "data": each.data, "mimeType": kind}}
        for each in block.pictures
        if (kind := _kind(each)) is not None
    ]


def _kind(picture: PictureData) -> str | None:
    return image_type(picture.head[:16])
