"""The events that tell something are found however the stream is cut, and are those that a worker reads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ccb.remote.model.answer_stream import SseParser
from ccb.tunnel.proxy.answer_reader import TellingEvents

WORDS = (b"data: usage 1", b"data: words", b"usage", b"data:usage", b"data", b"event: x", b": usage", b"", b"x" * 30)
ENDS = st.sampled_from((b"\n", b"\r", b"\r\n"))
LINES = st.lists(st.tuples(st.sampled_from(WORDS), ENDS), max_size=20)


@given(LINES, st.lists(st.integers(1, 9), min_size=1))
def test_worker_and_proxy_read_the_same_events_however_cut(lines: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines) + b"\n\ndata: usage of an event that has no end"
    found, reader, at = [], TellingEvents((b"usage",)), 0
    for number in range(len(stream)):
        size = sizes[number % len(sizes)]
        found += list(reader.take(stream[at : at + size]))
        at += size
    told = [event.data.encode() for event in SseParser().feed(stream)]
    assert [each.split() for each in found if b"usage" in each] == [each.split() for each in told if b"usage" in each]
    assert reader.rest.lstrip(b"\n") == b"data: usage of an event that has no end"


def test_an_event_without_an_end_is_dropped_and_the_next_one_counts() -> None:
    reader = TellingEvents((b"usage",), 100)
    for _ in range(50):
        assert list(reader.take(b"data: usage" * 10)) == []
    assert len(reader.rest) <= 1
    assert list(reader.take(b" usage\n\ndata: usage 2\n\ndata: us")) == [b" usage 2"]
    assert list(reader.take(b"age 3\n\n")) == [b" usage 3"]


def test_words_that_begin_to_matter_in_a_chunk_count_from_there_on() -> None:
    reader = TellingEvents((b"open",), 100)
    found = []
    for data in reader.take(b"data: more 1\n\ndata: open\n\ndata: more 2\n\ndata: more 3\n\n"):
        found.append(data)
        reader.words = (b"open", b"more")
    assert found == [b" open", b" more 2", b" more 3"]
