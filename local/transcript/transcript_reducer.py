"""The transcript as a projection of a session: journal records and public messages become blocks."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ccb.tunnel.plain_text import HostText, neutralise, one_line
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages, outside_messages
from ccb.tunnel.wire.client_requests import SHELL_COMMAND
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.model_facts import EFFORTS
from ccb.tunnel.wire.prompt_content import is_attached_file
from ccb.tunnel.wire.session_options import cage_of
from ccb.tunnel.wire.todo_list import TodoList
from ccb.tunnel.wire.tool_traits import READ

from ..session.session_client import SessionEvent, SkippedState, input_ids
from .blocks import (
    MAX_BLOCK_CHARS,
    BlockContainer,
    Level,
    NoticeBlock,
    PromptBlock,
    PromptFacts,
    ToolBlock,
    ToolState,
    pictures_of,
)
from .live_answer import AgentMessages
from .notices import Notices, path_in
from .prompt_tracker import NO_FACTS, PromptTracker
from .questions import is_for_person
from .session_facts import BackgroundTasks, FileChanges, TurnFacts, UsageTotals
from .tool_calls import EarlyData, ToolCalls, in_words

_MAX_CAGE = 300  # characters
_MAX_TITLE = 200
_LEAST_COST = 0.005  # dollars of a turn that are shown
_NAMED = re.compile(
    r"<system-reminder>\nThe user names the (file|directory|resource) ([^\n]+?)(?::\n|\. It follows\.)(.*)", re.DOTALL
)
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_PRINTED = re.compile(r"<local-command-stdout>(.*)</local-command-stdout>", re.DOTALL)  # of a worker's command


@dataclass
class SessionFacts:
    """How the agent works now. `effort` "" is the model's own. `title` is what somebody, or the small model, has called
    the session. `foreign_agent` is the agent of others that works in it."""

    model: str = ""
    mode: str = "default"
    sandbox: str = ""
    effort: str = ""
    branch: str = ""
    tools: tuple[str, ...] = ()
    title: str = ""
    foreign_agent: str = ""

    def skipped(self, state: SkippedState) -> None:
        """Take over what holds after events that are not loaded."""
        self.model = state.model or self.model
        self.mode = state.permission_mode or self.mode
        self.sandbox = state.sandbox or self.sandbox
        self.effort = self.effort if state.effort is None else _level(state.effort)
        self.title = _shown_title(state.title) or self.title
        self.foreign_agent = state.foreign_agent or self.foreign_agent

    def changed(self, by: records.ModelRecord | records.ReasoningRecord | records.OptionsRecord) -> None:
        match by:
            case records.ModelRecord():
                self.model = by.model or self.model
            case records.ReasoningRecord():
                self.effort = _level(by.effort)
            case records.OptionsRecord():
                self.model = by.model or self.model
                self.effort = _level(by.effort) or self.effort
                self.mode = by.permission_mode or self.mode
                self.foreign_agent = by.foreign_agent
                # A worker without a sandbox names the cage of none of its commands.
                if self.sandbox and not self.foreign_agent:
                    self.sandbox = cage_of(by.sandbox, self.mode) or self.sandbox

    def begun(self, init: messages.SystemMessage) -> None:
        """A turn begins: its first message names the facts."""
        tools = init.body.get("tools")
        self.model = init.model or self.model
        self.tools = tuple(map(messages.as_text, tools)) if isinstance(tools, list) else ()
        self.branch = one_line(messages.as_text(init.body.get("git_branch")))
        self.told(init)

    def told(self, message: messages.SystemMessage) -> None:
        self.mode = message.permission_mode or self.mode
        self.sandbox = messages.as_text(message.body.get("sandbox")) or self.sandbox


def _shown_title(told: str) -> str:
    return one_line(told)[:_MAX_TITLE]


def _level(told: str) -> str:
    return told if told in EFFORTS else ""


class TranscriptReducer:
    """Applies what a session says to a container of blocks. `orphans` is shared with the reducer of later events.
    `agent_id`: the agent whose conversation it is. That of the main agent has those of the others as rows."""

    def __init__(
        self,
        container: BlockContainer,
        *,
        facts: SessionFacts | None = None,
        own_name: str = "",
        cwd: str = "",
        orphans: EarlyData | None = None,
        agent_id: str = records.MAIN_AGENT,
    ) -> None:
        self.agent_id = agent_id
        self.orphans = orphans = orphans if orphans is not None else EarlyData()
        self.prompts = PromptTracker(container, lambda: not self.facts.foreign_agent)
        self.notices = Notices(self.prompts, own_name, cwd)
        self.tasks = BackgroundTasks()
        self._tools = ToolCalls(self.prompts, orphans)
        self._messages = AgentMessages(self.prompts, self._tools, orphans)
        self.answers: Sequence[str] = self._messages.answers
        self.facts = facts or SessionFacts()
        self.totals = UsageTotals()
        self.turns = 0
        self.running = False
        self.catching_up = False  # the worker still reads its journal, and takes a prompt afterwards
        self._in_turn = False
        self._turn = TurnFacts()

    @property
    def agent_calls(self) -> list[ToolBlock]:
        return self._tools.agents.calls

    @property
    def waits_for_model(self) -> bool:
        """Whether the model has been asked: a turn runs in which no tool works and no answer comes."""
        idle = not self._tools.any_open and not self._messages.streams
        return self.running and idle and not self.prompts.command_line

    @property
    def todos(self) -> TodoList:
        return self._tools.todos

    def notice(self, said: str | list[str], level: Level = Level.INFO) -> NoticeBlock:
        return self.notices.add(said, level)

    # What the person and the connection do.

    def prompt_sent(self, text: str, uuid: str, *, connected: bool = True, facts: PromptFacts = NO_FACTS) -> None:
        """The person sent a prompt. It stays at the bottom while a turn runs or there is no connection."""
        self.prompts.sent(text, uuid, running=self.running or self.catching_up, connected=connected, facts=facts)
        self.running = self.running or connected

    def prompt_failed(self, uuid: str) -> None:
        if not self.prompts.failed(uuid):
            self.running = self._in_turn

    def prompt_refused(self, uuid: str) -> None:
        self.prompts.refused(uuid)
        self.running = self._in_turn

    def tick(self, now: float) -> None:
        self._tools.tick(now)

    def link_lost(self) -> None:
        if self.prompts.link_lost():
            self.running = self._in_turn

    def all_sent(self) -> None:
        self.prompts.all_sent(running=self.running)

    def session_ended(self) -> None:
        """Nothing more comes. How open tool calls ended is unknown; text of an unfinished answer stays."""
        self.running = self._in_turn = False
        self._messages.end_session()
        self._tools.close(ToolState.UNKNOWN)

    # Events that are not loaded, and earlier events that are loaded later.

    def skipped(self, state: SkippedState, *, running: bool) -> None:
        """Events are not loaded. `state` holds after them; `running`: whether the worker is in a turn."""
        self._messages.drop_live()
        self._tools.close(ToolState.UNKNOWN, forget=False)
        self.facts.skipped(state)
        if state.result is not None:
            self.totals.set_from_result(state.result)
        self.running = self._in_turn = running
        self._turn.changes = None
        if state.prompts is not None:
            self.prompts.snapshot(state.prompts)
        if state.tasks is not None:
            self.tasks.snapshot(state.tasks)
        if state.todos:
            self._tools.show_todos(state.todos)

    def adopt(self, earlier: TranscriptReducer) -> None:
        self._tools.adopt(earlier._tools, running=self.running)
        earlier.prompts.settle()

    # What the session says.

    def take(self, event: SessionEvent) -> messages.PublicMessage | None:
        """Apply an event. Return what else it means to a REPL: a question, its answer by a client, a result."""
        if event.kind == "progress":
            if records.agent_of_message(event.body) == self.agent_id:
                self.apply_progress(event.public)
            return event.public  # such as a question that no journal holds
        self.apply_event(event.record, replayed=event.replayed)
        content = event.record.content
        if not isinstance(content, records.InputRecord | records.MessageRecord):
            return None
        of_client, is_answer = (
            isinstance(content, records.InputRecord),
            isinstance(content.public, messages.ControlResponse),
        )
        return content.public if of_client is is_answer else None

    def apply_event(self, record: records.Record, *, replayed: bool) -> None:
        self.notices.only_past = self.notices.only_past and replayed
        self.apply(record)

    def apply(self, record: records.Record) -> None:
        """Apply a record. What a sub-agent does is shown under the call that started it."""
        if self.agent_id not in (records.MAIN_AGENT, record.agent_id):
            return
        content = record.content
        if isinstance(content, records.MessageRecord) and self._turn.changes is not None:
            self._turn.changes.note(content.body.get("tool_use_result"))
        if isinstance(content, records.MessageRecord | records.InputRecord):
            self._note_waiting(content.public)
        if record.agent_id != self.agent_id:
            self._tools.agents.apply(record)
            if isinstance(content, records.MessageRecord) and isinstance(content.public, messages.TaskMessage):
                self.tasks.told(content.public)
        else:
            self._prompt_news(content)
            self._agent_news(content)
            self._noticed(content)
            self._tools.note_todos(record.seq)

    def _note_waiting(self, message: messages.PublicMessage) -> None:
        match message:
            case messages.ControlRequest() if is_for_person(message):
                self._turn.waited.asked(message.request_id)
            case messages.ControlResponse() | messages.ControlCancel():
                self._turn.waited.settled(message.request_id)

    def apply_progress(self, message: messages.PublicMessage) -> None:
        self.notices.only_past = False
        self._message(message)

    def _prompt_news(self, content: object) -> None:
        match content:
            case records.InputRecord(public=messages.UserMessage() as sent) if (text := sent.text("\n")).strip():
                ids = input_ids(content.id, sent.uuid)
                taken = ids[0] in self.orphans.taken
                if self.prompts.arrived(text, ids, running=self.running, taken=taken, facts=_facts_of(sent)):
                    self.running = True
            case records.PromptRecord():
                self._take(content.input_ids)
                if self.agent_id != records.MAIN_AGENT:
                    self._set_to_work(content)
                self._named(content.context)
            case records.TakenRecord():
                self._take([content.input_id])
            case records.QueuedRecord(origin={"kind": outside_messages.ORIGIN}):
                self.notices.from_outside(content)
            case records.UnqueuedRecord():
                self.prompts.taken_back(content.id)
                self.running = self._in_turn or self.prompts.queued
            case records.MovedRecord():
                self.prompts.moved(content.id, [content.before], steers=content.steers)
            case records.ForkedRecord():  # a turn that ran in the original has no result here
                self.prompts.forked()
                self._turn_over(ToolState.UNKNOWN)

    def _set_to_work(self, content: records.PromptRecord) -> None:
        """Show the prompt of a sub-agent, which nobody has sent from a terminal."""
        for item in content.items:
            if item.content:
                text = neutralise("\n".join(messages.as_text(each.get("text")) for each in item.content))
                self.prompts.add(PromptBlock(text=text.rstrip()[:MAX_BLOCK_CHARS]))
                self.running = self._in_turn = True
                self._turn.changes = FileChanges()

    def _named(self, context: list[Json]) -> None:
        """Say what the agent was given because a prompt names it with @."""
        for block in messages.as_blocks(context):
            if found := _NAMED.match(messages.as_text(block.get("text"))):
                kind, name, text = found.groups()
                lines = len(_NUMBERED.findall(text))
                size = f" ({lines} line{'s' if lines != 1 else ''})" if lines else ""
                does = "Listed" if kind == "directory" else READ.name
                self.notice(f"{does} {path_in(self.notices.cwd, name)}{size}", Level.DIM)

    def _take(self, input_ids: list[str]) -> None:
        for input_id in input_ids:
            if not self.prompts.taken(input_id):
                self.orphans.taken[input_id] = None

    def _agent_news(self, content: object) -> None:
        match content:
            case records.MessageRecord():
                self._message(content.public)
            case records.TurnStartRecord():
                self.running = self._in_turn = True
                self._turn = TurnFacts(FileChanges())
                self._tools.line_begins()
                self.turns += 1
            case records.ToolStartRecord():
                movable = not self.facts.foreign_agent
                self._tools.start(content.tool_use_id, now=not self.notices.only_past, movable=movable)
            case records.TodoRecord():
                self._tools.todo_changed(content)
            case records.WithdrawnRecord():
                self._messages.withdraw(content.message_id)
            case records.AgentResultRecord():
                self._message(content.public)
            case records.ModelEndRecord():
                self.totals.set_context(content.usage, whole=True)
            case records.ModelRecord() | records.ReasoningRecord() | records.OptionsRecord():
                self.facts.changed(content)

    def _noticed(self, content: object) -> None:
        match content:
            case records.DriverRecord():
                self.notices.driver(content.by)
            case records.RewindRecord():
                self.notices.rewind(content, self.prompts.gone_back(content.message) if content.to else [])
                if content.to:
                    self._tools.go_back(content.to)
            case records.RewoundRecord():
                self.notices.rewound(content)
            case records.LateAnswerRecord():
                late = "An answer came too late and was dropped: the question was settled before."
                self.notice(late, Level.WARNING)
            case records.DamagedRecord() if content.what:  # else the worker has reported it already
                self.notice(f"The session's journal is damaged: {HostText(content.what)}", Level.WARNING)

    def _message(self, message: messages.PublicMessage) -> None:
        match message:
            case messages.StreamEventMessage():
                self._messages.stream(messages.parse_stream_event(message.event))
            case messages.AssistantMessage():
                self.notices.model_call_over()
                self.totals.set_context(messages.as_dict(messages.as_dict(message.body.get("message")).get("usage")))
                self._messages.finished(message)
            case messages.UserMessage():
                self._user(message)
            case messages.ToolProgressMessage():
                self._tools.progress(message, self.prompts.command_line)
            case messages.ResultMessage():
                self._turn_over(ToolState.FAILED)
                self._result(message)
            case messages.SystemMessage():
                self._system(message)
            case messages.CompactMessage(is_micro=False):
                self.totals.compacted(message.post_tokens)
                self.notices.compacted(message)
            case messages.TaskMessage() if message.subtype != "task_updated":
                self._tools.told(message)
                if self.tasks.told(message) and message.summary:
                    self.notice(message.summary, Level.DIM)
            case _:  # questions and answers are the event router's
                pass

    def _system(self, message: messages.SystemMessage) -> None:
        match message.subtype:
            case "init":
                self._init(message)
            case "session_title_changed":
                self.facts.title = _shown_title(messages.as_text(message.body.get("title")))
            case _:
                self.facts.told(message)
                self.notices.system(message)

    def _result(self, message: messages.ResultMessage) -> None:
        before, past = self.totals.cost_usd, self.notices.only_past
        self.totals.add(message)
        self.notices.errors(message)
        dollars = 0.0 if past else self.totals.cost_usd - before  # of the past, only the sum is known
        cost = f"{'~' if self.totals.estimated else ''}${dollars:.2f}" if dollars >= _LEAST_COST else ""
        at, tasks = ("", 0) if past else (time.strftime("%H:%M"), len(self.tasks.running))
        if told := self._turn.text(message, cost, tasks, at):
            self.notice(told, Level.DIM)

    def _init(self, message: messages.SystemMessage) -> None:
        facts, cage_before = self.facts, self.facts.sandbox
        facts.begun(message)
        self.totals.model = facts.model
        self.running = self._in_turn = True
        if facts.sandbox.startswith("no cage") and facts.sandbox != cage_before and facts.mode != "bypassPermissions":
            self.notice(f"On the host: {HostText(facts.sandbox[:_MAX_CAGE])}", Level.WARNING)

    def _user(self, message: messages.UserMessage) -> None:
        is_note = not message.is_replay and not message.body.get("isSynthetic")
        content = messages.as_dict(message.body.get("message")).get("content")
        if isinstance(content, str):
            if is_note:
                self.notice(in_words(content).split("\n"), Level.DIM)
            return
        for block in message.blocks:
            kind, text = block.get("type"), messages.as_text(block.get("text"))
            if kind == "tool_result":
                self._tools.result(block, message.body.get("tool_use_result"))
            elif kind != "text":
                continue
            elif printed := _PRINTED.fullmatch(text):
                self._tools.line_over()
                self.notice(in_words(printed[1]).split("\n"))
            elif is_note:
                self.notice(in_words(text).split("\n"), Level.DIM)

    def _turn_over(self, tools: ToolState) -> None:
        self.notices.model_call_over()
        self._messages.end_turn()
        self._tools.close(tools)
        self._in_turn = False
        self.running = self.prompts.queued


def _facts_of(sent: messages.UserMessage) -> PromptFacts:
    before = sent.body.get(records.BEFORE)
    return PromptFacts(
        pictures=pictures_of(sent.blocks),
        files=sum(each.get("type") != "text" or is_attached_file(each) for each in sent.blocks),
        command_line=sent.body.get(SHELL_COMMAND) is True,
        before=tuple(str(each) for each in before) if isinstance(before, list) else (),
        steers=sent.body.get(records.PRIORITY) != records.LATER,
    )
