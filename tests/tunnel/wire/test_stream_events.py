"""Streaming events of the Messages API are read into typed values, whatever their shape."""

from __future__ import annotations

from typing import Any

import pytest

from ccb.tunnel.wire.messages import (
    ContentBlockDelta,
    ContentBlockStart,
    ContentBlockStop,
    MessageStart,
    MessageStop,
    parse_stream_event,
    with_text,
)

Json = dict[str, Any]


def delta(**fields: Any) -> Json:
    return {"type": "content_block_delta", "index": 1, "delta": fields}


@pytest.mark.parametrize(
    ("event", "parsed"),
    [
        ({"type": "message_start", "message": {"id": "m1"}}, MessageStart("m1")),
        ({"type": "message_start", "message": None}, MessageStart("")),
        ({"type": "message_stop"}, MessageStop()),
        ({"type": "content_block_stop", "index": 2}, ContentBlockStop(2)),
        (
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "id": "t", "name": "Bash"},
            },
            ContentBlockStart(0, "tool_use", "t", "Bash"),
        ),
        ({"type": "content_block_start", "index": 0, "content_block": 7}, ContentBlockStart(0, "", None, "")),
        (delta(type="text_delta", text="hi"), ContentBlockDelta(1, "text", "hi")),
        (delta(type="thinking_delta", thinking="hm"), ContentBlockDelta(1, "thinking", "hm")),
        (delta(type="input_json_delta", partial_json="{"), ContentBlockDelta(1, "partial_json", "{")),
        (delta(type="signature_delta", signature="c2ln"), ContentBlockDelta(1, "", "")),
        (delta(type="text_delta", text=7), ContentBlockDelta(1, "", "")),
        ({"type": "content_block_delta", "index": "1", "delta": {}}, None),
        ({"type": "ping"}, None),
        ({}, None),
    ],
)
def test_events_are_typed(event: Json, parsed: object) -> None:
    assert parse_stream_event(event) == parsed


def test_a_delta_can_be_cut_without_touching_the_original() -> None:
    message: Json = {"type": "stream_event", "event": delta(type="text_delta", text="hello"), "uuid": "u"}
    parsed = parse_stream_event(message["event"])
    assert isinstance(parsed, ContentBlockDelta)
    cut = with_text(message, parsed, "lo")
    assert cut == {"type": "stream_event", "event": delta(type="text_delta", text="lo"), "uuid": "u"}
    assert message["event"]["delta"]["text"] == "hello"
