"""The conversation of an agent as the model gets it: a projection of the journal, by the same code live and after a
restart. Assistant lines of one message id are one message until `model_end`: some providers repeat ids."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Callable

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, MessageRecord, Projection, Record, on, record_of, replay
from ccb.tunnel.wire.messages import AssistantMessage, CompactMessage, UserMessage, as_dict
from ccb.tunnel.wire.model_facts import SEALED, is_same_model, provider_of
from ccb.tunnel.wire.tool_traits import traits_of

from ..model.model_request import THINKING, ContextSize, HistoryMessage

FROM, UP_TO = "from", "up_to"  # the parts of a conversation that a summary may replace, seen from a prompt
MAX_FAILURES = 3  # in a row, of unasked compactions
_MAX_WORKED_FILES = 10
_MAX_TEXT = 4_000  # characters of one prompt
_MAX_FIRST = 8_000  # of the first prompts
_MAX_LATEST = 16_000  # of the latest


class CompactionFailed(Exception):
    pass


class Compactions(Projection):
    """`unfinished` was begun by a dead worker; `failures` counts those in a row that nobody has asked for. `part`: what
    the newest summary replaces, and the number of the record of its prompt."""

    def __init__(self) -> None:
        self.part = ("", 0)
        self.unfinished: records.CompactStartRecord | None = None
        self.failures = 0
        self._counted = False

    @property
    def given_up(self) -> bool:
        return self.failures >= MAX_FAILURES

    @on(records.CompactStartRecord)
    def _start(self, record: records.CompactStartRecord, _: Record) -> None:
        self.unfinished = record
        self._counted = record.trigger != "manual"
        self.failures += self._counted  # until it succeeds: one that kills its worker must not go on for ever

    @on(records.CompactEndRecord)
    def _end(self, record: records.CompactEndRecord, _: Record) -> None:
        self.unfinished = None
        if record.outcome == "interrupted":
            self.failures -= self._counted

    @on(CompactMessage)
    def _boundary(self, line: CompactMessage, _: Record) -> None:
        if not line.is_micro:
            self.unfinished, self.part = None, (line.part, line.at)
            if line.post_tokens * 4 <= line.pre_tokens * 3:
                self.failures = 0

    @on(records.ForkedRecord)
    def _forked(self, _: records.ForkedRecord, __: Record) -> None:
        self.unfinished = None  # the original goes on with it


class KeptPrompts:
    """The first prompts of the person and the latest ones, literally: a summary may lose a word that counts. `begins`
    are the first blocks of the prompts that no summary has replaced, by the numbers of their records."""

    def __init__(self) -> None:
        self.begins: dict[int, Json] = {}
        self._first: list[tuple[int, str]] = []
        self._latest: deque[tuple[int, str]] = deque()
        self._left_out = 0

    def add(self, text: str, at: int = 0) -> None:
        """Add the text of a prompt, whose record has the number `at`."""
        text = text.strip()
        if not text or text.startswith("<"):  # nobody, or the worker itself
            return
        text = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " […]"
        if not self._latest and _size(self._first) + len(text) <= _MAX_FIRST:
            self._first.append((at, text))
            return
        self._latest.append((at, text))
        while _size(self._latest) > _MAX_LATEST:
            self._latest.popleft()
            self._left_out += 1

    def texts(self, wanted: range = range(sys.maxsize)) -> list[str]:
        """Return the texts of prompts with the `wanted` numbers of records."""
        gap = [f"({self._left_out} prompts between are left out)"] if self._left_out else []
        first, latest = ([text for at, text in kept if at in wanted] for kept in (self._first, self._latest))
        return [*first, *gap, *latest]


def _size(kept: Iterable[tuple[int, str]]) -> int:
    return sum(len(text) for _, text in kept)


_log = logging.getLogger(__name__)


@dataclass
class _Answer:
    message_id: str
    message: HistoryMessage
    blocks: list[Json] = field(default_factory=list)


class Conversation(Projection):
    """The history of one agent, until a summary replaces it. `files` are those that calls were about, the newest last;
    `started` the open tool uses whose tool was about to run; `copied` those that a fork took over."""

    def __init__(self, agent_id: str = MAIN_AGENT, rewound: Sequence[tuple[int, int]] = ()) -> None:
        self.agent_id = agent_id
        self.messages: list[HistoryMessage] = []
        self.model: str | None = None
        self.started: set[str] = set()
        self.copied: set[str] = set()
        self.size = ContextSize()
        self.compactions = Compactions()
        self.prompts = KeptPrompts()
        self.files: list[str] = []
        self._open: dict[str, HistoryMessage] = {}  # tool_use id -> the assistant message that holds it
        self.used_ids: set[str] = set()
        self._inputs: dict[str, list[Json]] = {}
        self._answer: _Answer | None = None
        self._makers: dict[int, str] = {}  # the models that were asked for thinking, by its hash
        self._rewound = rewound  # grows with the journal

    @staticmethod
    def from_records(
        records: Iterable[Record], agent_id: str = MAIN_AGENT, rewound: Sequence[tuple[int, int]] = ()
    ) -> Conversation:
        conversation = Conversation(agent_id, rewound)
        replay(records, conversation)
        return conversation

    @property
    def open_tool_uses(self) -> list[str]:
        return list(self._open)

    @property
    def last_words(self) -> str:
        for message in reversed(self.messages):
            if message.role == "assistant":
                texts = [str(block.get("text")) for block in message.blocks if block.get("type") == "text"]
                if texts:
                    return texts[-1]
        return ""

    @property
    def may_think(self) -> bool:
        """Whether an answer may begin with thinking: after tool results only if the one that called did."""
        first: HistoryMessage | None = None
        for message in reversed(self.messages):
            if message.role == "assistant":
                first = message
            elif not message.begins_with("tool_result"):
                break
        return first is None or any(first.begins_with(each) for each in THINKING)

    def apply(self, record: Record) -> None:
        """Take a record of this agent, unless a rewind has taken it back."""
        if record.agent_id != self.agent_id and not isinstance(record.content, records.ForkedRecord):
            return
        if self._rewound and any(first <= record.seq < end for first, end in self._rewound):
            # It still says which model is used, and what the inputs are that later prompts name.
            if isinstance(record.content, (records.ModelRecord, records.InputRecord)):
                super().apply(record)
            elif isinstance(record.content, records.PromptRecord):
                for input_id in record.content.input_ids:
                    self._inputs.pop(input_id, None)
        else:
            super().apply(record)
            self.compactions.apply(record)

    def use(self, model: str) -> None:
        """Show the next model its own thinking only: providers refuse what others have made."""
        self.model = model
        for message in self.messages:
            message.show(self._is_own)
        self._drop_empty()

    def _is_own(self, block: Json) -> bool:
        """Return whether the present model may see a block of thinking. The laptop looks into what ccb has sealed."""
        if self.model is None:
            return True
        maker = self._makers.get(_hash(block), "")
        sealed = str(block.get("signature") or block.get("data") or "").startswith(SEALED)
        return provider_of(maker) == provider_of(self.model) and (sealed or is_same_model(maker, self.model))

    def know_input(self, input_id: str, blocks: list[Json]) -> None:
        self._inputs[input_id] = blocks

    def keep_newest(self, count: int) -> None:
        """Forget older messages than the newest, except those of open tool uses."""
        owners = {id(each) for each in self._open.values()}
        self.messages = [*(each for each in self.messages[:-count] if id(each) in owners), *self.messages[-count:]]

    def split(self, at: int) -> tuple[list[HistoryMessage], list[HistoryMessage]] | None:
        """Return the messages before the prompt of record `at`, and the others; None if it is not among them."""
        first = self.prompts.begins.get(at, {})
        for place, message in enumerate(self.messages):
            halves = message.cut_before(first)
            if halves is not None:
                before = [*self.messages[:place], *([halves[0]] if halves[0].blocks else [])]
                return before, [halves[1], *self.messages[place + 1 :]]
        return None

    def seal(self) -> None:
        """Make the history ready to be sent: the API refuses an assistant message that ends in thinking."""
        for message in self.messages:
            if message.role == "assistant":
                message.end_before(THINKING)
        self._drop_empty()

    @on(records.InputRecord)
    def _input(self, record: records.InputRecord, _: Record) -> None:
        if isinstance(record.public, UserMessage):
            self.know_input(record.id, record.public.blocks)

    @on(records.QueuedRecord)
    def _queued(self, record: records.QueuedRecord, _: Record) -> None:
        self.know_input(record.id, record.content)

    @on(records.UnqueuedRecord)
    def _unqueued(self, record: records.UnqueuedRecord, _: Record) -> None:
        self._inputs.pop(record.id, None)

    @on(records.ToolStartRecord)
    def _tool_start(self, record: records.ToolStartRecord, _: Record) -> None:
        if record.tool_use_id in self._open:
            self.started.add(record.tool_use_id)

    @on(records.ForkedRecord)
    def _forked(self, record: records.ForkedRecord, _: Record) -> None:
        self.copied = set(self._open)

    @on(records.ModelEndRecord)
    def _model_end(self, record: records.ModelEndRecord, _: Record) -> None:
        self._answer = None
        self.size.ended(record.usage)

    @on(records.ModelRecord)
    def _model(self, record: records.ModelRecord, _: Record) -> None:
        self.use(record.model)

    @on(AssistantMessage)
    def _assistant(self, line: AssistantMessage, _: Record) -> None:
        if line.is_api_error:
            return
        for block in filter(_is_sendable, line.blocks):
            tool_use_id = str(block.get("id")) if block.get("type") == "tool_use" else ""
            if tool_use_id in self.used_ids:
                continue
            answer = self._answer_of(line.message_id)
            answer.message.put(block)
            answer.blocks.append(block)
            if block.get("type") in THINKING:
                # Older journals name only the model that answered, not the one that was asked.
                maker = line.body.get("requested_model") or self.model or as_dict(line.body.get("message")).get("model")
                self._makers[_hash(block)] = maker if isinstance(maker, str) else ""
                answer.message.show(self._is_own)
            self.size.answered(line.message_id, block)
            if tool_use_id:
                self._open[tool_use_id] = answer.message
                self.used_ids.add(tool_use_id)
                given = block.get("input")
                path = traits_of(str(block.get("name"))).file_in(given) if isinstance(given, dict) else ""
                if path:
                    self.files = [*(each for each in self.files if each != path), path][-_MAX_WORKED_FILES:]

    def _answer_of(self, message_id: str) -> _Answer:
        """Return the answer that a fragment belongs to. The result of an early tool may already follow its message."""
        if self._answer is None or self._answer.message_id != message_id:
            if not self.messages:
                self._user_message().put({"type": "text", "text": "(earlier messages are not available)"})
            if self.messages[-1].role != "assistant":
                self.messages.append(HistoryMessage("assistant"))
            self._answer = _Answer(message_id, self.messages[-1])
        return self._answer

    def _user_message(self) -> HistoryMessage:
        if self.messages and self.messages[-1].role == "user":
            return self.messages[-1]
        self.messages.append(HistoryMessage("user"))
        return self.messages[-1]

    @on(UserMessage)
    def _user_line(self, line: UserMessage, _: Record) -> None:
        follow = self._left_after_summary() if line.is_summary else []
        if line.is_summary and not any(block.get("text") for block in line.blocks):  # the person wants nothing kept
            self.prompts, self.files = KeptPrompts(), []
        if not line.is_replay:
            self._user(line.blocks)
        if follow:
            self.messages += follow
            self._drop_empty()

    def _left_after_summary(self) -> list[HistoryMessage]:
        """Leave out what a summary replaces. Return the messages that follow it. No tool use is open now."""
        (part, at), self._answer = self.compactions.part, None
        halves = self.split(at) if part else None
        if halves is not None:
            before, after = halves
            self.messages, follow = (before, []) if part == FROM else ([], after)
            return follow
        self.messages = []
        for known in (self._open, self.used_ids, self.started, self.copied, self._makers, self.prompts.begins):
            known.clear()
        return []

    @on(CompactMessage)
    def _compact(self, line: CompactMessage, _: Record) -> None:
        if not line.is_micro:
            self.size.restarted(line.prefix_tokens)  # the summary follows
            return
        for message in self.messages:
            message.clear_results(frozenset(line.cleared))
        self.size.cleared(line.tokens_saved)

    def _user(self, blocks: list[Json]) -> None:
        for block in filter(_is_sendable, blocks):
            if block.get("type") == "tool_result":
                self._result(block)
            else:
                self._answer = None
                self._user_message().put(block)
                self.size.sent(block)

    def _result(self, block: Json) -> None:
        owner = self._open.pop(str(block.get("tool_use_id")), None)
        if owner is None:
            return
        self.started.discard(str(block.get("tool_use_id")))
        after = next(i for i in reversed(range(len(self.messages))) if self.messages[i] is owner) + 1
        if after == len(self.messages) or self.messages[after].role != "user":
            self.messages.insert(after, HistoryMessage("user"))
        user = self.messages[after]
        results = sum(1 for b in user.blocks if b.get("type") == "tool_result")  # the API wants them first
        user.put(block, at=results)
        self.size.sent(block)

    @on(records.PromptRecord)
    def _prompt(self, record: records.PromptRecord, envelope: Record) -> None:
        blocks = list(record.context)
        for item in record.items:
            known = self._inputs.pop(item.input_id, None) if item.input_id else item.content
            if known is None:
                _log.warning("a prompt names input %s, which the journal does not hold", item.input_id)
            blocks += known or []
            texts = (str(block["text"]) for block in known or () if block.get("type") == "text")
            self.prompts.add("\n".join(texts), envelope.seq)
        sendable = [block for block in blocks if _is_sendable(block)] or [{"type": "text", "text": "(empty message)"}]
        self.prompts.begins[envelope.seq] = sendable[0]
        self._user(sendable)

    @on(records.WithdrawnRecord)
    def _withdraw(self, record: records.WithdrawnRecord, _: Record) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.message_id != record.message_id:
            return
        withdrawn = {id(block) for block in answer.blocks}
        gone = {str(block["id"]) for block in answer.blocks if block.get("type") == "tool_use"}
        answer.message.keep(lambda block: id(block) not in withdrawn)
        for message in self.messages[-2:]:
            if message.role == "user":
                message.keep(lambda block: block.get("tool_use_id") not in gone)
        for tool_use_id in gone & set(self._open):
            del self._open[tool_use_id]
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Remove messages without blocks, and join neighbours that have the same role."""
        kept: list[HistoryMessage] = []
        for message in self.messages:
            if not message.blocks:
                continue
            if kept and kept[-1].role == message.role:
                kept[-1].take_over(message)
                for tool_use_id, owner in self._open.items():
                    if owner is message:
                        self._open[tool_use_id] = kept[-1]
                if self._answer is not None and self._answer.message is message:
                    self._answer.message = kept[-1]
            else:
                kept.append(message)
        self.messages = kept
        if self._answer is not None and not any(self._answer.message is message for message in kept):
            self._answer = None


def close_open_tool_uses(conversation: Conversation, why: str | Callable[[str], str]) -> list[MessageRecord]:
    """Give every open tool_use, here only, an error result `why`. It is applied; the caller emits it."""
    closed = []
    for tool_use_id in conversation.open_tool_uses:
        text = why if isinstance(why, str) else why(tool_use_id)
        message = MessageRecord(tool_result_message(tool_use_id, text, is_error=True))
        conversation.apply(record_of(message, agent_id=conversation.agent_id))
        closed.append(message)
    return closed


def tool_result_message(
    tool_use_id: str, content: str | list[Json], *, is_error: bool, structured: object = None
) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    if is_error:
        block["is_error"] = True
        if structured is None:
            structured = f"Error: {content}" if isinstance(content, str) else "Error"
    return {
        "type": "user",
        "message": {"role": "user", "content": [block]},
        "parent_tool_use_id": None,
        "tool_use_result": content if structured is None else structured,
    }


def _hash(block: Json) -> int:
    return hash("\0".join(str(block.get(name)) for name in ("signature", "data", "thinking")))


def _is_sendable(block: Json) -> bool:
    """Whether the API accepts a block: it refuses blank text, and thinking without a signature."""
    kind = block.get("type")
    if kind == "text":
        return bool(str(block.get("text") or "").strip())
    if kind == "thinking":
        return bool(block.get("signature"))
    return True
