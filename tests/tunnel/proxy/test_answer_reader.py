"""The lines that tell something are found however the stream is cut, and what is read of them does not depend on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.proxy.calls.answer_reader import TellingLines

LINES = st.lists(
    st.sampled_from([b"data: usage 1", b"data: words", b"usage", b"data:usage", b"", b"x" * 30]), max_size=20
)


@given(LINES, st.lists(st.integers(1, 9), min_size=1))
def test_every_cut_of_a_stream_gives_the_same_lines(lines: list[bytes], sizes: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"data: usage of a line that has no end"
    found, reader, at = [], TellingLines((b"usage",), 40), 0
    for number in range(len(stream)):
        size = sizes[number % len(sizes)]
        found += list(reader.take(stream[at : at + size]))
        at += size
    assert found == [line[5:] for line in lines if line.startswith(b"data:") and b"usage" in line]
    assert reader.rest == b"data: usage of a line that has no end"


def test_a_line_without_an_end_is_dropped_and_the_next_one_counts() -> None:
    reader = TellingLines((b"usage",), 100)
    for _ in range(50):
        assert list(reader.take(b"data: usage" * 10)) == []
    assert reader.rest == b""
    assert list(reader.take(b" usage\ndata: usage 2\ndata: us")) == [b" usage 2"]
    assert list(reader.take(b"age 3\n")) == [b" usage 3"]


def test_words_that_begin_to_matter_in_a_chunk_count_from_there_on() -> None:
    reader = TellingLines((b"open",), 100)
    found = []
    for line in reader.take(b"data: more 1\ndata: open\ndata: more 2\ndata: more 3\n"):
        found.append(line)
        reader.words = (b"open", b"more")
    assert found == [b" open", b" more 2", b" more 3"]
