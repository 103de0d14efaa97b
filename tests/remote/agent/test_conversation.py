"""The history is valid whatever the journal holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.agent_kit import Json, assert_valid

from ccb.remote.agent.conversation import Conversation, close_open_tool_uses, tool_result_message
from ccb.remote.model.model_request import HistoryMessage
from ccb.tunnel.wire import journal_records as kinds
from ccb.tunnel.wire.journal_records import Record, record_of, to_line


def _record(content: kinds.Content, agent_id: str = kinds.MAIN_AGENT) -> Record:
    """As a journal gives it back."""
    record = kinds.parse_line(to_line(record_of(content, 1, agent_id=agent_id)))
    assert record is not None
    return record


def _message(body: Json) -> Record:
    return _record(kinds.MessageRecord(body))


def _assistant(message_id: str, block: Json, answered: str = "", asked: str = "") -> Record:
    message = {"id": message_id, "role": "assistant", "model": answered, "content": [block]}
    return _message({"type": "assistant", "message": message, **({"requested_model": asked} if asked else {})})


def _text(message_id: str, text: str) -> Record:
    return _assistant(message_id, {"type": "text", "text": text})


def _thinking(message_id: str, answered: str = "", asked: str = "", signature: str = "s") -> Record:
    return _assistant(message_id, {"type": "thinking", "thinking": "hm", "signature": signature}, answered, asked)


def _call(message_id: str, tool_use_id: str) -> Record:
    return _assistant(message_id, {"type": "tool_use", "id": tool_use_id, "name": "Look", "input": {}})


def _result(tool_use_id: str) -> Record:
    return _message(tool_result_message(tool_use_id, "done", is_error=False))


def _prompt(text: str) -> Record:
    return _record(kinds.PromptRecord([], [kinds.PromptItem(content=[{"type": "text", "text": text}])]))


def _note(text: str) -> Record:
    return _message({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}})


def _withdrawn(message_id: str) -> Record:
    return _record(kinds.WithdrawnRecord(message_id))


def _shape(conversation: Conversation) -> list[tuple[str, list[str]]]:
    return [
        (m.role, [str(b.get("text") or b.get("id") or b.get("tool_use_id") or b["type"]) for b in m.blocks])
        for m in conversation.messages
    ]


_ERROR: Json = {"type": "assistant", "is_api_error_message": True}
_ERROR["message"] = {"id": "x", "content": [{"type": "text", "text": "API Error"}]}
_NO_PART = [
    _message({"type": "system", "subtype": "init"}),
    _record(kinds.InputRecord("1", {"type": "user", "message": {"role": "user", "content": "never used"}})),
    _prompt("go"),
    _message({"type": "user", "isReplay": True, "message": {"content": "echo"}}),
    _message(_ERROR),
    _message({"type": "result", "result": "x"}),
    _record(kinds.TurnStartRecord()),
    _assistant("m1", {"type": "text", "text": " \n"}),
    _assistant("m1", {"type": "thinking", "thinking": "unsigned", "signature": ""}),
]
_GO = _prompt("go")
_END = _record(kinds.ModelEndRecord("", None, {}))
_OTHER = _record(kinds.ModelRecord("other"))


_HISTORIES: dict[str, tuple[list[Record], list[list[str]]]] = {
    "what is no part of it is left out": (_NO_PART, [["go"]]),
    "an empty prompt is a message": ([_prompt("  ")], [["(empty message)"]]),
    "an early result comes before the rest of its message": (
        [
            *(_GO, _thinking("m1"), _call("m1", "a"), _result("a"), _text("m1", "and"), _call("m1", "b"), _result("b")),
            *(_prompt("also"), _text("m2", "done")),
        ],
        [["go"], ["thinking", "a", "and", "b"], ["a", "b", "also"], ["done"]],
    ),
    "a message that ends in thinking is made sendable": (
        [_GO, _thinking("m1"), _note("cut"), _prompt("again")],
        [["go", "cut", "again"]],
    ),
    "some providers give every answer the same id": (
        [
            *(_GO, _call("m", "a"), _END, _result("a"), _call("m", "b"), _result("b"), _text("m", "x"), _END),
            *(_prompt("more"), _text("m", "done"), _END),
        ],
        [["go"], ["a"], ["a"], ["b", "x"], ["b", "more"], ["done"]],
    ),
    "a prompt ends an answer without an end": (
        [_GO, _text("m", "one"), _prompt("more"), _text("m", "two")],
        [["go"], ["one"], ["more"], ["two"]],
    ),
    "a withdrawn answer takes no earlier one of its id with it": (
        [_GO, _call("m", "a"), _END, _result("a"), _text("m", "x"), _withdrawn("m"), _withdrawn("m")],
        [["go"], ["a"], ["a"]],
    ),
    "an answer goes on after its thinking was dropped for another model": (
        [_GO, _thinking("m"), _OTHER, _text("m", "x"), _call("m", "a"), _result("a"), _text("m", "y")],
        [["go"], ["x", "a", "y"], ["a"]],
    ),
    "an answer that only has thinking of another model is no empty message": (
        [_GO, _record(kinds.ModelRecord("b")), _thinking("m", "a", "a")],
        [["go"]],
    ),
}


@pytest.mark.parametrize(("records", "shape"), _HISTORIES.values(), ids=_HISTORIES)
def test_the_history_of_records(records: list[Record], shape: list[list[str]]) -> None:
    conversation = Conversation.from_records(records)
    conversation.seal()
    assert [texts for _, texts in _shape(conversation)] == shape
    assert [role for role, _ in _shape(conversation)] == [("user", "assistant")[at % 2] for at in range(len(shape))]


def test_open_tool_uses_are_closed_where_they_belong() -> None:
    conversation = Conversation.from_records([_GO, _call("m1", "a"), _call("m1", "b"), _result("b"), _prompt("hm")])
    assert conversation.open_tool_uses == ["a"]
    (closed,) = close_open_tool_uses(conversation, lambda tool_use_id: f"{tool_use_id} was lost in a crash")
    result = {"type": "tool_result", "tool_use_id": "a", "content": "a was lost in a crash", "is_error": True}
    assert closed.body["message"]["content"] == [result]
    assert _shape(conversation)[-1] == ("user", ["b", "a", "hm"])
    assert close_open_tool_uses(conversation, "again") == []


_MESSAGE_IDS = st.sampled_from(["m1", "m2", "m3"])
_TOOL_IDS = st.sampled_from(["a", "b", "c", "d"])
_RECORDS = st.one_of(
    st.builds(_prompt, st.sampled_from(["p", "q", ""])),
    st.builds(_note, st.sampled_from(["n", ""])),
    st.builds(_text, _MESSAGE_IDS, st.sampled_from(["t", ""])),
    st.builds(_thinking, _MESSAGE_IDS),
    st.builds(_call, _MESSAGE_IDS, _TOOL_IDS),
    st.builds(_result, _TOOL_IDS),
    st.builds(_withdrawn, _MESSAGE_IDS),
    st.just(_record(kinds.ModelRecord("other"))),
)


@given(st.lists(_RECORDS, max_size=30))
def test_any_journal_gives_a_valid_history(records: list[Record]) -> None:
    conversation = Conversation.from_records(records)
    close_open_tool_uses(conversation, "lost")
    conversation.seal()
    history = [message.api() for message in conversation.messages]
    assert_valid(history)
    assert not conversation.open_tool_uses


@given(st.lists(_RECORDS, max_size=30), st.data())
def test_a_crash_anywhere_and_the_repair_give_what_a_reload_gives(records: list[Record], data: st.DataObject) -> None:
    """What a repair emits makes the journal whole: reading it again leaves nothing open and gives the same history."""
    cut = data.draw(st.integers(0, len(records)))
    before = records[:cut]
    live = Conversation.from_records(before)
    repair = [_record(closed) for closed in close_open_tool_uses(live, "crashed")]
    reloaded = Conversation.from_records([*before, *repair])
    assert not reloaded.open_tool_uses
    assert [m.api() for m in reloaded.messages] == [m.api() for m in live.messages]


@given(st.lists(_RECORDS, max_size=30))
def test_the_kept_bytes_are_the_bytes(records: list[Record]) -> None:
    conversation = Conversation()
    for record in records:
        conversation.apply(record)
        for message in conversation.messages:
            message.encoded()
    fresh = Conversation.from_records(records)
    assert [m.encoded() for m in conversation.messages] == [m.encoded() for m in fresh.messages]


def test_thinking_belongs_to_the_model_that_was_asked_for_it() -> None:
    """Also when another one was chosen while it thought, and in the history that a restarted worker reads."""
    records = [
        *(_prompt("go"), _record(kinds.ModelRecord("b")), _thinking("m", "a-20250101", "a"), _text("m", "x"), _END),
        *(_prompt("on"), _thinking("n", "b", "b", "t"), _text("n", "y"), _END),
    ]
    for end, shown in (
        ([], ["y"]),
        ([_record(kinds.ModelRecord("a"))], ["x"]),
        ([_record(kinds.ModelRecord("c"))], []),
    ):
        conversation = Conversation.from_records([*records, *end])
        conversation.seal()
        thinking = [texts for _, texts in _shape(conversation) if "thinking" in texts]
        assert thinking == [["thinking", each] for each in shown]


def test_thinking_in_older_journals_belongs_to_the_model_that_answered() -> None:
    for answered, model, shown in (
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5", True),
        ("claude-sonnet-4-5-20250929", "claude-opus-4-5", False),
        ("claude-sonnet-4-5-20250929", "gateway/claude-sonnet-4-5", False),
    ):
        conversation = Conversation.from_records([_prompt("go"), _thinking("m", answered), _text("m", "x"), _END])
        conversation.use(model)
        assert ("thinking" in str(_shape(conversation))) is shown


def test_thinking_that_is_hidden_stays_so_when_its_message_joins_another() -> None:
    one, other = HistoryMessage("assistant"), HistoryMessage("assistant")
    one.put({"type": "text", "text": "a"})
    other.put({"type": "thinking", "thinking": "hm", "signature": "s"})
    other.put({"type": "text", "text": "b"})
    other.show(lambda block: False)
    one.take_over(other)
    assert [block["type"] for block in one.blocks] == ["text", "text"]
    one.show(lambda block: True)
    assert [block["type"] for block in one.blocks] == ["text", "thinking", "text"]


def test_thinking_of_any_shape_is_kept() -> None:
    odd = {"type": "redacted_thinking", "data": {"not": ["a text"]}}
    conversation = Conversation.from_records([_prompt("go"), _assistant("m", odd, "a", "a"), _text("m", "x"), _END])
    conversation.use("b")
    assert _shape(conversation)[-1] == ("assistant", ["x"])
    conversation.use("a")
    assert _shape(conversation)[-1] == ("assistant", ["redacted_thinking", "x"])


@given(st.lists(st.tuples(st.sampled_from([kinds.MAIN_AGENT, "toolu_a", "toolu_b"]), _RECORDS), max_size=40))
def test_each_agent_has_a_conversation_of_its_own(records: list[tuple[str, Record]]) -> None:
    """The records of several agents in one journal give each agent what its own records alone give."""
    journal = [_record(record.content, agent_id) for agent_id, record in records]
    for agent_id in {agent_id for agent_id, _ in records}:
        alone = Conversation.from_records(record for owner, record in records if owner == agent_id)
        among_others = Conversation.from_records(journal, agent_id)
        assert [m.encoded() for m in among_others.messages] == [m.encoded() for m in alone.messages]
        assert among_others.open_tool_uses == alone.open_tool_uses
        journal += [_record(closed, agent_id) for closed in close_open_tool_uses(among_others, "lost")]
        assert not Conversation.from_records(journal, agent_id).open_tool_uses
