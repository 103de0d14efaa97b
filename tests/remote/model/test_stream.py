"""The event state machine: blocks from deltas, and what fits no answer."""

from __future__ import annotations

import pytest
from tests.remote import agent_kit as kit

from ccb.remote.model.answer_stream import BlockDone, MessageAssembler, SseParser, decode_event
from ccb.remote.model.retry import ModelError
from ccb.tunnel.wire.frames import Json


def _assemble(data: bytes) -> tuple[MessageAssembler, list[BlockDone]]:
    assembler = MessageAssembler()
    steps = [assembler.feed(decode_event(event.data)) for event in SseParser().feed(data)]
    return assembler, [step for step in steps if isinstance(step, BlockDone)]


def test_a_whole_answer() -> None:
    tool_input = {"key": 'a "quoted" ☃ value', "count": 3}
    assembler, blocks = _assemble(
        kit.opening()
        + kit.sse({"type": "ping"})
        + kit.thinking_block(0, "hm", "sig-1")
        + kit.text_block(1, "Hello")
        + kit.sse({"type": "something_new", "index": 9})
        + kit.tool_block(2, "toolu_1", "Look", tool_input)
        + kit.closing("tool_use", 42)
    )
    assert [done.block for done in blocks] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig-1"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "toolu_1", "name": "Look", "input": tool_input},
    ]
    assert assembler.stop_reason == "tool_use" and assembler.finished
    assert (assembler.usage["input_tokens"], assembler.usage["output_tokens"]) == (100, 42)


def _start(block: Json) -> bytes:
    return kit.opening() + kit.sse({"type": "content_block_start", "index": 0, "content_block": block})


def _delta(kind: str, field: str, text: str) -> bytes:
    return kit.sse({"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: text}})


_CALL: Json = {"type": "tool_use", "id": "t", "name": "Look", "input": {"key": "v"}}
_OPAQUE: Json = {"type": "redacted_thinking", "data": "opaque"}
_THINKING: Json = {"type": "thinking", "thinking": ""}
_SIGNED = _delta("signature_delta", "signature", "one") + _delta("signature_delta", "signature", "two")


@pytest.mark.parametrize(
    ("events", "block"),
    [
        (_start({"type": "text", "text": "Hel"}) + _delta("text_delta", "text", "Hi"), {"type": "text", "text": "Hi"}),
        (_start(_THINKING) + _SIGNED, {**_THINKING, "signature": "two"}),
        (_start(_CALL), _CALL),
        (_start(_OPAQUE), _OPAQUE),
    ],
    ids=["text in the start counts once", "a signature is set", "a call without deltas", "an unknown type"],
)
def test_what_the_start_of_a_block_says(events: bytes, block: Json) -> None:
    assert [done.block for done in _assemble(events + kit.block_stop(0))[1]] == [block]


@pytest.mark.parametrize(
    "text", ['{"key": ', "[1]", '{"n": NaN}', '{"n": 1e999}', "null", "[" * 100_000, '{"a":' * 160 + "1" + "}" * 160]
)
def test_a_broken_tool_input_is_told_not_raised(text: str) -> None:
    _, blocks = _assemble(kit.opening() + kit.tool_block(0, "toolu_1", "Look", text))
    assert blocks[0].block["input"] == {}
    assert "JSON" in blocks[0].broken


@pytest.mark.parametrize(
    "events",
    [
        kit.text_block(0, "no start"),
        kit.opening() + kit.opening(),
        kit.opening() + kit.block_stop(0),
        kit.opening() + kit.tool_start(0, "a", "b") + kit.tool_start(0, "a", "b"),
        kit.opening() + kit.tool_start(0, "a", "b") + kit.closing(),
        kit.opening() + kit.tool_start(0, "a", "b") + kit.sse({"type": "message_stop"}),
        kit.opening() + kit.sse({"type": "content_block_start", "index": "0", "content_block": {}}),
        kit.opening() + kit.sse({"type": "content_block_start", "index": 0}),
        b"data: {broken\n\n",
        b"data: []\n\n",
        b'data: {"type": NaN}\n\n',
        b'data: {"type": 1e999}\n\n',
    ],
)
def test_events_that_fit_no_answer_are_a_model_error(events: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        _assemble(events)
    assert caught.value.status is None


def test_an_error_event_stands_for_a_status() -> None:
    for kind, status in (("overloaded_error", 529), ("rate_limit_error", 429), ("new_error", 500)):
        with pytest.raises(ModelError, match="busy") as caught:
            _assemble(kit.opening() + kit.sse({"type": "error", "error": {"type": kind, "message": "busy"}}))
        assert caught.value.status == status
