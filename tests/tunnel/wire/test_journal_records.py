"""Journal records and public messages: whatever JSON comes in, it is typed, nothing of it is lost, and nothing
raises."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire import journal_records as journal
from ccb.tunnel.wire.frames import Event, Json
from ccb.tunnel.wire.journal_records import Projection, on, replay
from ccb.tunnel.wire.messages import ResultMessage
from ccb.tunnel.wire.ndjson import FrameDecoder, dump, encode_frame

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(st.none() | st.booleans() | st.integers() | text, partial(st.lists, max_size=3), max_leaves=5)
objects = st.dictionaries(text, values, max_size=4)
numbers = st.integers(min_value=0, max_value=2**53 - 1)
names = text.filter(bool)

KINDS = [
    "message", "input", "queued", "unqueued", "moved", "options", "turn_start", "turn_end", "prompt", "tool_start",
    "model_end", "withdrawn", "model", "agent_result", "late_answer", "damaged", "driver", "worker", "forked",
    "taken", "hook", "file_change", "rewind", "rewound", "compact_start", "compact_end", "reasoning",
    "worktree", "todo", "agent_session",
]  # fmt: skip
CLASSES = [each for each in get_args(journal.Content) if each is not journal.UnknownRecord]
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": text,
    "str | None": st.none() | text,
    "bool": st.booleans(),
    "int": numbers,
    "float": st.floats(0, 1e10),
    "Json": objects,
    "Json | None": st.none() | objects,
    "list[Json]": st.lists(objects, max_size=2),
    "list[str]": st.lists(text, max_size=2),
    "list[PromptItem]": st.lists(
        st.builds(journal.PromptItem, names) | st.builds(journal.PromptItem, content=st.lists(objects, max_size=2)),
        max_size=3,
    ),
}
FIELDS = sorted({each.name for kind in CLASSES for each in fields(kind)} | {"from", "type", "message", "agent_id"})
bodies = st.dictionaries(st.sampled_from(FIELDS) | text, values | objects | st.lists(objects, max_size=2), max_size=6)
contents: st.SearchStrategy[journal.Content] = st.one_of(
    *(st.builds(kind, *(OF_TYPE[str(each.type)] for each in fields(kind))) for kind in CLASSES),
    st.builds(journal.UnknownRecord, text.map("x-".__add__), objects),
)


def test_every_kind_has_its_class() -> None:
    assert [each.kind for each in CLASSES] == KINDS


@given(contents, numbers)
def test_what_is_written_is_what_is_read(content: journal.Content, seq: int) -> None:
    record = journal.record_of(content, seq, 12.5)
    again = journal.parse_line(journal.to_line(record))
    assert again is not None
    assert again == record
    assert again.content == record.content == content
    frame = next(iter(FrameDecoder().feed(b"".join(encode_frame(Event(seq, 1, record.kind, record.body))))))
    assert isinstance(frame, Event)
    assert journal.Record(frame.seq, 0.0, frame.kind, frame.body).content == content


@given(st.sampled_from(KINDS) | text, bodies)
def test_any_body_is_typed_and_kept_as_it_is(kind: str, body: Json) -> None:
    before = json.dumps(body)
    record = journal.parse_line(dump({"seq": 7, "time": 1, "kind": kind, "body": body, "later": True}).encode())
    assert record is not None and (record.kind, record.body) == (kind, body)
    assert json.loads(journal.to_line(record)) == {"seq": 7, "time": 1.0, "kind": kind, "body": body}
    assert json.dumps(record.body) == before
    if isinstance(record.content, (journal.MessageRecord, journal.InputRecord)):
        assert record.content.public.body == record.content.body
        before = json.dumps(record.content.body)
        repr(record.content.public)
        assert json.dumps(record.content.body) == before


@given(values | objects | st.fixed_dictionaries({"seq": values, "time": values, "kind": values, "body": values}))
def test_what_is_no_record_is_refused(data: object) -> None:
    record = journal.parse_line(json.dumps(data).encode())
    assert record is None or (isinstance(record.seq, int) and isinstance(record.body, dict))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0\0\0\n",
        b"[" * 100_000,
        b'{"seq":1,"time":1,"kind":"mess',
        b"\xff\n",
        b"7\n",
        b'{"seq":1,"time":NaN,"kind":"message","body":{}}\n',
        b'{"seq":1,"time":1,"kind":"message","body":{"a":1e999}}\n',
        b'{"seq":1,"time":1,"kind":"message","body":{"a":-Infinity}}\n',
        b'{"seq":1,"time":1%s,"kind":"message","body":{}}\n' % (b"0" * 400),
    ],
)
def test_a_damaged_line_is_no_record(line: bytes) -> None:
    assert journal.parse_line(line) is None


def test_the_bodies_are_those_that_older_versions_read_and_write() -> None:
    written: list[tuple[journal.Content, Json]] = [
        (journal.OptionsRecord({"model": "m"}), {"options": {"model": "m"}}),
        (journal.TurnStartRecord(), {}),
        (journal.DamagedRecord(), {}),
        (journal.DamagedRecord("line 3"), {"what": "line 3"}),
        (journal.ForkedRecord("0f"), {"from": "0f"}),
        (journal.WorkerRecord(7, "b", None), {"pid": 7, "bundle": "b", "mark": None}),
        (
            journal.ModelEndRecord("m", None, {"input_tokens": 3}),
            {"message_id": "m", "stop_reason": None, "usage": {"input_tokens": 3}},
        ),
        (
            journal.PromptRecord([], [journal.PromptItem("1"), journal.PromptItem(content=[{"type": "text"}])]),
            {"context": [], "items": [{"input": "1"}, {"content": [{"type": "text"}]}]},
        ),
    ]  # fmt: skip
    for content, body in written:
        assert journal.record_of(content).body == body
        assert journal.Record(1, 0.0, content.kind, body).content == content


@given(contents, names)
def test_every_record_tells_its_agent_and_the_main_agent_is_not_written(content: journal.Content, agent: str) -> None:
    body = journal.record_of(content).body
    known = body.keys() & {"agent_id", "parent_tool_use_id"}
    plain = journal.record_of(content)
    assert plain.agent_id == journal.MAIN_AGENT
    assert body.keys() & {"agent_id", "parent_tool_use_id"} == known
    of_sub_agent = journal.record_of(content, 1, 0.0, agent)
    again = journal.parse_line(journal.to_line(of_sub_agent))
    assert again is not None and again.agent_id == of_sub_agent.agent_id == agent
    name = "parent_tool_use_id" if content.kind == "message" else "agent_id"
    assert again.body == {**body, name: agent}


@given(st.lists(st.builds(journal.record_of, contents, numbers), max_size=4))
def test_a_page_holds_its_records(records: list[journal.Record]) -> None:
    page = json.loads(json.dumps(journal.to_page(records)))
    assert [(each.seq, each.kind, each.body) for each in journal.parse_page(page)] == [
        (each.seq, each.kind, each.body) for each in records
    ]
    page["records"] += [{"seq": "1", "kind": "message", "body": {}}, 5, {"seq": 1, "kind": "message"}]
    assert len(journal.parse_page(page)) == len(records)
    assert journal.parse_page({"records": 7}) == []


def test_a_record_is_moved_to_another_session() -> None:
    message = journal.record_of(journal.MessageRecord({"type": "result", "session_id": "old", "text": "old"}), 3, 1.5)
    assert journal.in_session(message, "old", "new").body == {"type": "result", "session_id": "new", "text": "old"}
    assert message.body["session_id"] == "old"
    said = journal.record_of(journal.InputRecord("1", {"type": "user", "session_id": "old"}))
    assert journal.in_session(said, "old", "new").content == journal.InputRecord(
        "1", {"type": "user", "session_id": "new"}
    )
    begun = journal.record_of(journal.OptionsRecord({}, "old"))
    assert journal.in_session(begun, "old", "new").content == journal.OptionsRecord({}, "new")
    assert journal.in_session(begun, "other", "new") == begun


class _Counted(Projection):
    def __init__(self) -> None:
        self.seen: list[tuple[int, object]] = []

    @on(journal.TurnStartRecord, journal.TurnEndRecord)
    def _turn(self, content: object, record: journal.Record) -> None:
        self.seen.append((record.seq, content))

    @on(ResultMessage)
    def _result(self, line: ResultMessage, record: journal.Record) -> None:
        self.seen.append((record.seq, line.subtype))


class _Whole(_Counted):
    @on(journal.MessageRecord)
    def _message(self, message: journal.MessageRecord, record: journal.Record) -> None:
        self.seen.append((record.seq, message.body["type"]))


def test_a_projection_is_told_what_it_handles_and_skips_the_rest() -> None:
    facts: list[journal.Content] = [
        journal.TurnStartRecord(),
        journal.UnknownRecord("later", {}),
        journal.MessageRecord({"type": "assistant"}),
        journal.MessageRecord({"type": "result", "subtype": "success"}),
        journal.DamagedRecord(),
        journal.TurnEndRecord(),
    ]
    counted, whole = _Counted(), _Whole()
    replay([journal.record_of(content, seq) for seq, content in enumerate(facts, 1)], counted, whole)
    assert counted.seen == [(1, journal.TurnStartRecord()), (4, "success"), (6, journal.TurnEndRecord())]
    assert whole.seen == [(1, journal.TurnStartRecord()), (3, "assistant"), (4, "result"), (6, journal.TurnEndRecord())]
