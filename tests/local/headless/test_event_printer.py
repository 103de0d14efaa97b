"""The raw events of a message are printed once, wherever the connection was lost and whatever the host repeats."""

from __future__ import annotations

import pytest

from ccb.local.session.partial_events import PartialEvents
from ccb.remote.session_store.session_log import UnfinishedWork
from ccb.tunnel.wire.frames import Json


def stream(message_id: str = "msg_1") -> list[Json]:
    """A message with a thought, a text and a call, as the worker shows it."""

    def delta(index: int, kind: str, name: str, text: str) -> Json:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}}

    events: list[Json] = [{"type": "message_start", "message": {"id": message_id}}]
    for index, kind in enumerate(("thinking", "text", "tool_use")):
        events.append({"type": "content_block_start", "index": index, "content_block": {"type": kind}})
        if kind == "thinking":
            events += [delta(index, "thinking_delta", "thinking", part) for part in ("Hm, ", "so")]
            events.append(delta(index, "signature_delta", "signature", "c2ln"))
        elif kind == "text":
            events += [delta(index, "text_delta", "text", part) for part in ("I ", "look", " at it.")]
        else:
            events += [delta(index, "input_json_delta", "partial_json", part) for part in ("", '{"a"', ": 1}")]
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    return [{"type": "stream_event", "event": event, "uuid": str(number)} for number, event in enumerate(events)]


def what_it_says(bodies: list[Json]) -> list[Json]:
    """The events with the deltas of a block joined where they follow each other."""
    said: list[Json] = []
    for event in (body["event"] for body in bodies):
        last = said[-1] if said else {}
        if (
            event["type"] == last.get("type") == "content_block_delta"
            and event["delta"]["type"] == last["delta"]["type"]
        ):
            joined = {name: last["delta"][name] + text for name, text in event["delta"].items() if name != "type"}
            said[-1] = {**last, "delta": {**last["delta"], **joined}}
        else:
            said.append(event)
    return said


@pytest.mark.parametrize("got", range(len(stream())))
@pytest.mark.parametrize("missed", [0, 1, 4])
def test_what_is_told_again_after_a_reconnect_is_not_passed_on_again(got: int, missed: int) -> None:
    whole = stream()
    if got + missed >= len(whole) - 1:
        return  # its end was told, or nobody ever hears of it
    host, laptop, out = UnfinishedWork(), PartialEvents(), []
    for body in whole[:got]:
        host.take("", body)
        out.append(laptop.new_part(body))
    for body in whole[got : got + missed]:
        host.take("", body)
    again = [body for _, body in host.bodies()]
    out += [laptop.new_part(body) for body in [*again, *whole[got + missed :]]]
    assert what_it_says([body for body in out if body is not None]) == what_it_says(whole)


def test_without_a_reconnect_everything_passes_as_it_came() -> None:
    laptop = PartialEvents()
    for body in [*stream(), *stream("msg_2"), {"type": "tool_progress", "tool_use_id": "x"}]:
        assert laptop.new_part(body) is body


def test_a_message_that_begins_anew_under_another_id_is_another_one() -> None:
    laptop = PartialEvents()
    cut, new = stream("msg_1")[:6], stream("msg_2")
    assert [laptop.new_part(body) for body in [*cut, *new]] == [*cut, *new]


def test_a_message_of_endless_blocks_takes_a_limited_amount_of_memory() -> None:
    partial = PartialEvents()
    partial.new_part({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}})
    for index in range(20_050):
        start = {"type": "content_block_start", "index": index, "content_block": {"type": "text"}}
        assert partial.new_part({"type": "stream_event", "event": start}) is not None
    assert len(partial._passed) == 20_000
