"""Server-sent events come out the same however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccb.remote.model.answer_stream import SseEvent, SseParser
from ccb.remote.model.retry import ModelError

STREAM = (
    b": a comment\r\n\r\n"
    b'event: first\r\ndata: {"a":\r\ndata:  1}\r\n\r\n'
    b"data:no space\n\n"
    b"event: without data\n\n"
    b"id: 7\nretry: 10\r\ndata: \xc3\xa9\xf0\x9f\x98\x80\n\n"
    b"data\n\n"
    b"data: unfinished"
)
EVENTS = [SseEvent("first", '{"a":\n 1}'), SseEvent("", "no space"), SseEvent("", "é😀"), SseEvent("", "")]


def _feed(chunks: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@settings(deadline=None, max_examples=500)
@example([])
@example(list(range(len(STREAM))))
@given(st.lists(st.integers(0, len(STREAM))))
def test_any_chunking_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert _feed([STREAM[a:b] for a, b in zip(edges, edges[1:])]) == EVENTS


def test_an_event_over_the_limit_is_refused_before_it_is_whole() -> None:
    parser = SseParser(limit=100)
    parser.feed(b"data: " + b"x" * 80 + b"\n")
    with pytest.raises(ModelError, match="longer than 100 bytes"):
        parser.feed(b"data: " + b"x" * 20)


def test_the_limit_counts_one_event_not_the_stream() -> None:
    parser = SseParser(limit=100)
    for _ in range(50):
        assert len(parser.feed(b": keep-alive comment\n\ndata: " + b"x" * 60 + b"\n\n")) == 1
    for _ in range(50):
        parser.feed(b": nothing but comments\n")
