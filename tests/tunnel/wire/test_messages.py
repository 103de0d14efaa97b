"""Public messages as typed lines: what each holds, and that a broken one is read as far as it can be.

- Streaming events of the Messages API are read into typed values, whatever their shape.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from tests.support.broken_messages import broken_messages

from ccb.tunnel.wire import messages
from ccb.tunnel.wire.frames import Json

BLOCKS = [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "b"}]
CALL = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make"}, "agent": "Explore"}
TASK = {"type": "system", "task_id": "t1", "tool_use_id": "u1", "description": "Find it"}

LINES: list[tuple[str, Json, Json]] = [
    (
        "AssistantMessage",
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "text"}, 7]}},
        {"message_id": "m", "blocks": [{"type": "text"}], "is_api_error": False},
    ),
    ("AssistantMessage", {"type": "assistant", "is_api_error_message": True}, {"is_api_error": True}),
    (
        "UserMessage",
        {"type": "user", "isReplay": True, "uuid": "u", "message": {"content": BLOCKS}},
        {"blocks": BLOCKS, "uuid": "u", "is_replay": True, "is_summary": False},
    ),
    ("UserMessage", {"type": "user", "message": {"content": "hi"}}, {"blocks": [{"type": "text", "text": "hi"}]}),
    (
        "ResultMessage",
        {"type": "result", "subtype": "error", "is_error": True, "errors": ["x"], "total_cost_usd": 2},
        {"subtype": "error", "is_error": True, "errors": ["x"], "total_cost_usd": 2, "model_usage": {}},
    ),
    (
        "SystemMessage",
        {"type": "system", "subtype": "init", "model": "m", "cwd": "/srv", "permissionMode": "plan"},
        {"subtype": "init", "model": "m", "cwd": "/srv", "permission_mode": "plan"},
    ),
    ("SystemMessage", {"type": "system", "subtype": "api_retry", "attempt": 2}, {"attempt": 2}),
    (
        "CompactMessage",
        {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9, "post_tokens": 2}},
        {"is_micro": False, "pre_tokens": 9, "post_tokens": 2},
    ),
    ("CompactMessage", {"type": "system", "subtype": "microcompact_boundary"}, {"is_micro": True, "cleared": []}),
    (
        "TaskMessage",
        {**TASK, "subtype": "task_started", "is_backgrounded": True},
        {"task_id": "t1", "in_background": True},
    ),
    ("TaskMessage", {**TASK, "subtype": "task_progress"}, {"tool_use_id": "u1", "in_background": False}),
    ("TaskMessage", {**TASK, "subtype": "task_updated", "patch": {"is_backgrounded": True}}, {"in_background": True}),
    ("TaskMessage", {**TASK, "subtype": "task_notification", "status": "failed"}, {"status": "failed", "summary": ""}),
    (
        "ControlRequest",
        {"type": "control_request", "request_id": "r", "request": CALL},
        {"request_id": "r", "subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make"}},
    ),
    ("ControlCancel", {"type": "control_cancel_request", "request_id": "r"}, {"request_id": "r"}),
    (
        "ControlResponse",
        {"type": "control_response", "response": {"request_id": "r", "subtype": "success", "response": {"a": 1}}},
        {"request_id": "r", "subtype": "success", "payload": {"a": 1}, "error": ""},
    ),
    (
        "StreamEventMessage",
        {"type": "stream_event", "event": {"type": "message_stop"}},
        {"event": {"type": "message_stop"}},
    ),
    ("ToolProgressMessage", {"type": "tool_progress", "tool_use_id": "t"}, {"tool_use_id": "t"}),
    ("OtherMessage", {"type": "surprise"}, {"type": "surprise"}),
    ("OtherMessage", {}, {"type": ""}),
]

EVERY_LINE = pytest.mark.parametrize(("kind", "body", "held"), LINES)


@EVERY_LINE
def test_a_public_message_is_typed_and_kept_as_is(kind: str, body: Json, held: Json) -> None:
    line = messages.parse_message(body)
    assert type(line).__name__ == kind and line.body is body
    assert {name: getattr(line, name) for name in held} == held


@EVERY_LINE
def test_a_wrong_field_gets_a_value_of_its_own_type(kind: str, body: Json, held: Json) -> None:
    whole = messages.parse_message(body)
    names = [each.name for each in fields(whole) if each.name != "payload"]  # an answer may have none
    own = [type_of(getattr(whole, name)) for name in names]
    for broken in broken_messages(body):
        line = messages.parse_message(broken)
        if type(line).__name__ == kind:  # with another subtype it may be another message
            assert [type_of(getattr(line, name)) for name in names] == own, broken


def type_of(value: object) -> type[object]:
    """The type of a field's value; all numbers are one."""
    return float if isinstance(value, (int, float)) else type(value)


def test_lines_tell_their_texts_and_tool_results() -> None:
    line = messages.parse_message({"type": "user", "message": {"content": BLOCKS}})
    assert isinstance(line, messages.UserMessage)
    assert (line.text("|"), line.done_tool_uses()) == ("|b", {"t"})
    line = messages.parse_message({"type": "control_request", "request": {**CALL, "input": [], "url": 7}})
    assert isinstance(line, messages.ControlRequest)
    assert (line.input, line.text("agent"), line.text("url"), line.text("sandbox")) == ({}, "Explore", "7", "")


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3.0), (0.5, 0.5), (-1, 0.0), (10**400, 1e12), ("3", 0.0), (None, 0.0), ([], 0.0)]
)
def test_a_number_of_a_host_is_one_that_can_be_shown(value: object, number: float) -> None:
    assert messages.as_number(value) == number


def delta(**fields: Any) -> Json:
    return {"type": "content_block_delta", "index": 1, "delta": fields}


@pytest.mark.parametrize(
    ("event", "parsed"),
    [
        ({"type": "message_start", "message": {"id": "m1"}}, messages.MessageStart("m1")),
        ({"type": "message_start", "message": None}, messages.MessageStart("")),
        ({"type": "message_stop"}, messages.MessageStop()),
        ({"type": "content_block_stop", "index": 2}, messages.ContentBlockStop(2)),
        (
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "LS"}},
            messages.ContentBlockStart(0, "tool_use", "t", "LS"),
        ),
        ({"type": "content_block_start", "index": 0, "content_block": 7}, messages.ContentBlockStart(0, "", None, "")),
        (delta(type="text_delta", text="hi"), messages.ContentBlockDelta(1, "text", "hi")),
        (delta(type="thinking_delta", thinking="hm"), messages.ContentBlockDelta(1, "thinking", "hm")),
        (delta(type="input_json_delta", partial_json="{"), messages.ContentBlockDelta(1, "partial_json", "{")),
        (delta(type="signature_delta", signature="c2ln"), messages.ContentBlockDelta(1, "", "")),
        (delta(type="text_delta", text=7), messages.ContentBlockDelta(1, "", "")),
        ({"type": "content_block_delta", "index": "1", "delta": {}}, None),
        ({"type": "ping"}, None),
        ({}, None),
    ],
)
def test_events_are_typed(event: Json, parsed: object) -> None:
    assert messages.parse_stream_event(event) == parsed
