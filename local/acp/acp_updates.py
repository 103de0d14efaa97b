"""What a session says, as `session/update`s. The state behind them is that of the transcript which the REPL shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from weakref import WeakSet

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import JsonRpcPeer

from ..session.newest import Newest
from ..session.partial_events import PartialEvents
from ..session.session_client import EventGap, SessionEvent, parse_snapshot
from ..slash_commands.session_api import ReplInfo
from ..transcript.blocks import Block, Level, NoticeBlock, PromptBlock, ToolBlock, ToolState
from ..transcript.session_facts import mode_in_force
from . import acp_tool_calls as calls
from .acp_paths import PathMap

_MAX_CALLS = 2_000
_CHUNKS = {"text": "agent_message_chunk", "thinking": "agent_thought_chunk"}
_OVER = (ToolState.DONE, ToolState.FAILED, ToolState.UNKNOWN)
_TODO_STATUS = {"in_progress": "in_progress", "completed": "completed"}
_AGAIN = "\n\n*The model begins this answer again: the text above does not count.*\n\n"


@dataclass(frozen=True)
class Editor:
    """The other end of the connection. `capabilities` are what its client has said, `roots` its folders."""

    peer: JsonRpcPeer
    capabilities: Json
    paths: PathMap
    roots: tuple[str, ...] = ()

    def can(self, group: str, name: str) -> bool:
        """Return whether the client has a capability, which is true or an object."""
        found = messages.as_dict(self.capabilities.get(group)).get(name)
        return found is True or isinstance(found, dict)


def chunk(kind: str, text: str, message_id: str = "") -> Json:
    update: Json = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return {**update, "messageId": message_id} if message_id else update


class AnswerText:
    """Passes each character of an answer on once: as it is streamed, then what the finished blocks have beyond that."""

    def __init__(self) -> None:
        self.parts = PartialEvents()
        self._finished = 0  # blocks of the message

    def streamed(self, message: messages.StreamEventMessage) -> Iterator[Json]:
        new = self.parts.new_part(message.body)
        event = messages.parse_stream_event(new["event"]) if new is not None else None
        if isinstance(event, messages.MessageStart):
            self._finished = 0
        elif isinstance(event, messages.ContentBlockDelta) and event.field in _CHUNKS:
            yield chunk(_CHUNKS[event.field], event.text, self.parts.message_id)

    def finished(self, message: messages.AssistantMessage) -> Iterator[Json]:
        if message.message_id != self.parts.message_id:
            self.parts.begins_again(message.message_id)
            self._finished = 0
        for block in message.blocks:
            kind = messages.as_text(block.get("type"))
            text = messages.as_text(block.get(kind)) if kind in _CHUNKS else ""
            rest = self.parts.finished(self._finished, kind, text)
            self._finished += 1
            if rest and not message.is_api_error:  # the transcript shows that as an error
                yield chunk(_CHUNKS[kind], rest, message.message_id)


@dataclass
class ToldCall:
    """A call as it was told last: later updates hold only what has changed. `printed` is in its terminal. The
    transcript does not keep the `block` of an open call; it is None once the call is over."""

    block: ToolBlock | None
    fields: Json = field(default_factory=dict)
    printed: str = ""


class AcpUpdates:
    """Makes updates of the events of one session. As the container of its transcript it sees what appears and changes;
    it keeps only the calls that are not over."""

    def __init__(self, info: ReplInfo, editor: Editor) -> None:
        self.reducer = info.transcript(self)
        self.cwd = self.reducer.notices.cwd
        self.own_turn = False  # a prompt of the client runs, whose answer says what went wrong
        self._editor = editor
        self._paths = editor.paths
        self._answer = AnswerText()
        self._out: list[Json] = []
        self._calls: Newest[str, ToldCall] = Newest(_MAX_CALLS)
        self._asked: Newest[str, None] = Newest(_MAX_CALLS)  # calls of sub-agents that wait for an answer, or run
        self._seen: WeakSet[Block] = WeakSet()
        self._compaction = new_uuid()
        self._told = self.state  # what the client knows of it

    def prompt_sent(self, text: str, uuid: str) -> None:
        """The client has sent a prompt, so it knows it."""
        self.reducer.prompt_sent(text, uuid)
        self._out.clear()

    def take(self, event: SessionEvent) -> list[Json]:
        """Apply an event, and return the updates about it."""
        if isinstance(event.record.content, records.WithdrawnRecord) and not event.record.agent_id:
            if self._answer.parts.begun:
                self._out.append(chunk("agent_message_chunk", _AGAIN))
            self._answer.parts.begins_again("")
        elif event.kind in ("message", "progress"):
            self._said(event.public, is_main=records.agent_of_message(event.body) == records.MAIN_AGENT)
        if not isinstance(event.public, messages.StreamEventMessage):  # finished calls are enough
            self.reducer.take(event)
        return self._taken()

    def _said(self, public: messages.PublicMessage, *, is_main: bool) -> None:
        match public:
            case messages.ControlRequest():
                self._note_asked(public)
            case messages.StreamEventMessage() if is_main:
                self._out += self._answer.streamed(public)
            case messages.AssistantMessage() if is_main:
                self._out += self._answer.finished(public)
            case messages.UserMessage():
                self._note_ended(public)
            case messages.SystemMessage() | messages.CompactMessage() if is_main:
                self._out += self._compacted(public)

    def _note_asked(self, asked: messages.ControlRequest) -> None:
        """Announce a call that the editor would know by a question only."""
        number = asked.text("tool_use_id")
        if number and number not in self._calls and number not in self._asked:
            self._asked[number] = None
            call = calls.subject_of(asked.request, self._paths, self.cwd)
            self._out.append({"sessionUpdate": "tool_call", **call})

    def _note_ended(self, message: messages.UserMessage) -> None:
        for block in message.blocks:
            number = messages.as_text(block.get("tool_use_id"))
            if block.get("type") == "tool_result" and number in self._asked:
                del self._asked[number]
                status = "failed" if block.get("is_error") else "completed"
                self._out.append({"sessionUpdate": "tool_call_update", "toolCallId": number, "status": status})

    def skipped(self, gap: EventGap, *, running: bool) -> list[Json]:
        """Take over the state after events that are not loaded. What was said in them is not repeated, but the calls
        that open questions are about are announced."""
        state = parse_snapshot(gap.body)
        self.reducer.skipped(state, running=running)
        self._out.clear()
        for each in state.questions:
            self._note_asked(each)
        return self._taken()

    def notice(self, severity: str, text: str) -> list[Json]:
        """Return what tells the person something: as a notice, or a warning also as a line of the conversation."""
        title, _, more = text.strip().partition("\n")
        if not title:
            return []
        if self._editor.can("session", "notices"):
            notice: Json = {"sessionUpdate": "notice", "severity": severity, "title": title}
            return [{**notice, "description": more} if more else notice]
        return [] if severity == "info" else [chunk("agent_message_chunk", f"\n\n*ccb: {title}*\n\n{more}", new_uuid())]

    @property
    def state(self) -> dict[str, tuple[object, list[Json]]]:
        """What changes of its own accord: its value, and the updates that tell it."""
        facts, totals, todos = self.reducer.facts, self.reducer.totals, self.reducer.todos
        mode = mode_in_force(facts.mode, facts.sandbox)
        plan = [
            {"content": each.subject, "priority": "medium", "status": _TODO_STATUS.get(each.status, "pending")}
            for each in todos.items
        ]
        used, size = totals.context_tokens, totals.window
        cost = {"amount": round(totals.cost_usd, 6), "currency": "USD"}
        usage = {"sessionUpdate": "usage_update", "used": used, "size": size, "cost": cost}
        title = {"sessionUpdate": "session_info_update", "title": facts.title}
        return {
            "mode": (mode, [{"sessionUpdate": "current_mode_update", "currentModeId": mode}, CONFIG_CHANGED]),
            "options": ((facts.model, facts.effort), [CONFIG_CHANGED]),
            "title": (facts.title, [title] if facts.title else []),
            "todos": (plan, [{"sessionUpdate": "plan", "entries": plan}]),
            "usage": ((used, size, cost), [usage] if used and size else []),
        }

    def settled(self) -> None:
        """The client was just told mode and options in an answer."""
        state = self.state
        self._told |= {name: state[name] for name in ("mode", "options")}

    def _taken(self) -> list[Json]:
        state = self.state
        for name, (value, updates) in state.items():
            if self._told[name][0] != value:
                self._out += updates
        self._told = state
        out, self._out = self._out, []
        return out

    def _compacted(self, public: messages.SystemMessage | messages.CompactMessage) -> list[Json]:
        if isinstance(public, messages.CompactMessage):
            status = "" if public.is_micro else "completed"
        elif public.body.get("status") == "compacting":
            self._compaction, status = new_uuid(), "in_progress"
        else:
            status = "failed" if public.body.get("compact_result") == "failed" else ""
        update = {"sessionUpdate": "compaction_update", "compactionId": self._compaction, "status": status}
        return [update] if status and self._editor.can("session", "compaction") else []

    # The container of the transcript.

    def add(self, block: Block, *, before: Block | None = None) -> None:
        if isinstance(block, ToolBlock):
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
        if isinstance(block, ToolBlock) and block.tool_id in self._calls:
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
        told = self._calls.get(block.tool_id)
        if not block.tool_id or (told is not None and told.block is None):
            return
        is_new = told is None
        if told is None:
            self._calls[block.tool_id] = told = ToldCall(block)
        terminal = self._editor.can("_meta", "terminal_output")
        call = calls.shown(block, self._paths, self.cwd, terminal=terminal)
        changed = {name: value for name, value in call.items() if told.fields.get(name) != value}
        told.fields = call
        meta = self._terminal_meta(block, told, new=is_new) if terminal and calls.is_command(block) else {}
        if is_new:
            meta = {"claudeCode": {"toolName": block.name}, **meta}
        if block.state in _OVER:
            self._calls[block.tool_id] = ToldCall(None)
        if changed or meta:
            update = {"sessionUpdate": "tool_call" if is_new else "tool_call_update", "toolCallId": block.tool_id}
            self._out.append({**update, **changed, **({"_meta": meta} if meta else {})})

    def _terminal_meta(self, block: ToolBlock, told: ToldCall, *, new: bool) -> Json:
        number = block.tool_id
        meta: Json = {"terminal_info": {"terminal_id": number, "cwd": self.cwd}} if new else {}
        now = calls.output_of(block)
        if now and now != told.printed and (more := calls.more_output(told.printed, now)):
            told.printed = now
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
    return text + [{"sessionUpdate": "user_message_chunk", "content": each} for each in calls.pictures(block)]
