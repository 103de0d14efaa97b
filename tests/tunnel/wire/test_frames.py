"""The wire: every frame survives every way of cutting its bytes, and nothing else gets through."""

from __future__ import annotations

import itertools
import json
import sys
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccb.tunnel.wire.frames import (
    CHUNK,
    Attach,
    CallData,
    ChannelData,
    Event,
    Frame,
    FrameError,
    Hello,
    Input,
    Report,
    frame_from_dict,
)  # fmt: skip
from ccb.tunnel.wire.ndjson import MAX_DEPTH, MAX_FRAME, MAX_LINE, FrameDecoder, LineSplitter, encode_frame
from ccb.tunnel.wire.session_options import SessionOptions

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)
scalars = st.none() | st.booleans() | st.integers() | text
json_values = st.recursive(scalars, partial(st.lists, max_size=3), max_leaves=5)
bodies = st.dictionaries(text, json_values, max_size=4)
numbers = st.integers(min_value=0, max_value=2**53 - 1)
frames: st.SearchStrategy[Any] = st.one_of(
    st.builds(Event, seq=numbers, epoch=numbers, kind=text, body=bodies),
    st.builds(Input, epoch=numbers, id=text, body=bodies),
    st.builds(CallData, epoch=numbers, stream=numbers, off=numbers, b64=text),
    st.builds(ChannelData, channel=numbers, off=numbers, data=st.binary() | st.just(b'{"t":"bye"}\n')),
    st.builds(Attach, epoch=numbers, role=text, have=numbers, nonce=text, options=bodies),
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(min_value=1, max_value=50), min_size=1, max_size=20))
def test_frames_survive_any_chunking(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(line for frame in sent for line in encode_frame(frame))
    decoder, ends = FrameDecoder(), itertools.accumulate(itertools.cycle(cuts), initial=0)
    cut = itertools.takewhile(lambda pair: pair[0] < len(stream), itertools.pairwise(ends))
    got = [frame for start, end in cut for frame in decoder.feed(stream[start:end])]
    assert got == sent


@settings(max_examples=10, deadline=None)
@given(st.text(alphabet="aé\u2028😀\x01\n", min_size=1, max_size=3))
def test_a_frame_over_the_line_limit_travels_in_parts_within_it(unit: str) -> None:
    frame = Event(1, 1, "message", {"text": unit * (2 * MAX_LINE // len(unit))})
    lines = encode_frame(frame, part_id=7)
    assert len(lines) > 1
    assert max(map(len, lines)) <= MAX_LINE
    assert list(FrameDecoder().feed(b"".join(lines))) == [frame]


def test_parts_of_two_frames_may_interleave() -> None:
    first = Event(1, 1, "message", {"text": "a" * MAX_LINE})
    second = Event(2, 1, "message", {"text": "b" * MAX_LINE})
    pairs = zip(encode_frame(first, 1), encode_frame(second, 2))
    stream = b"".join(line for pair in pairs for line in pair)
    assert list(FrameDecoder().feed(stream)) == [first, second]


def test_a_line_over_the_limit_is_refused_at_once_and_no_such_frame_is_sent() -> None:
    with pytest.raises(FrameError, match="longer than"):
        list(LineSplitter().feed(b"x" * MAX_LINE))
    with pytest.raises(FrameError, match="more than 200000 values"):
        encode_frame(Input(1, "a", {"list": [[]] * 250_000}))


@pytest.mark.parametrize("wide", ["", "\U0001f600"])
def test_parts_over_the_frame_limit_are_refused(wide: str) -> None:
    """One wide character makes four bytes of each."""
    decoder = FrameDecoder()
    piece = wide + "x" * 200_000
    with pytest.raises(FrameError, match="over the limit"):
        for index in range(MAX_FRAME // sys.getsizeof(piece) + 2):
            line = json.dumps({"t": "part", "id": 1, "i": index, "n": 10_000, "d": piece})
            list(decoder.feed(line.encode() + b"\n"))


def in_parts(text: str, size: int = 40_000) -> Iterator[bytes]:
    """The lines of a frame with this body, whatever it is."""
    text = '{"t":"report","kind":"x","body":' + text + "}"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    for index, piece in enumerate(pieces):
        yield json.dumps({"t": "part", "id": 1, "i": index, "n": len(pieces), "d": piece}).encode() + b"\n"


@pytest.mark.parametrize(
    ("start", "unit", "end"),
    [
        ('{"a":[', "[],", "1]}"),
        ('{"a":[', '{"b":{}},', "1]}"),
        ('{"a":[', '"",', "1]}"),
        ('{"a":[', "1,", "1]}"),
        ("{", '"a":"b",', '"c":1}'),
        ('{"a":', '"":', "}"),
        ('{"a":"', '","', '"}'),
        ('{"a":"\\\\', '","', '"}'),
        ('{"a":"\\\\\\"\\\\', '","', '"}'),
    ],
)
def test_a_frame_of_too_many_values_is_refused_before_they_take_memory(start: str, unit: str, end: str) -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match="more than 200000 values"):
        for line in in_parts(start + unit * (1_800_000 // len(unit)) + end):
            list(decoder.feed(line))


def test_a_refused_frame_takes_no_more_memory_than_its_text() -> None:
    lines = list(in_parts("{" + '"a":[' + "[]," * 1_000_000 + "1]}"))
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            for line in lines:
                list(decoder.feed(line))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000  # its lists would take 64 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("nest", ["[{}]", '{{"a":{}}}', '["]",{}]', '["\\"]",{}]'])
def test_a_large_frame_that_is_nested_too_deeply_is_refused(nest: str) -> None:
    padding = "x" * MAX_LINE

    def nested(levels: int) -> str:
        text = "1"
        for _ in range(levels):
            text = nest.replace("{}", text, 1) if "{{" not in nest else nest.format(text)
        return f'{{"padding":"{padding}","a":{text}}}'

    decoder = FrameDecoder()
    (frame,) = (frame for line in in_parts(nested(MAX_DEPTH - 2)) for frame in decoder.feed(line))
    assert isinstance(frame, Report)
    with pytest.raises(FrameError, match="nested more than 200 levels deep"):
        for line in in_parts(nested(MAX_DEPTH + 1)):
            list(decoder.feed(line))


@pytest.mark.parametrize(
    "text", ["[],{}," * 500_000, "\\" * 900_000, '\\"],' * 300_000, 'a,"b": [1, {"c": 2}]\n' * 50_000, "😀,[" * 200_000]
)
def test_what_is_inside_of_a_text_does_not_count(text: str) -> None:
    frame = Event(1, 1, "message", {"text": text, "list": [text[:10]] * 100})
    decoder = FrameDecoder()
    assert list(decoder.feed(b"".join(encode_frame(frame)))) == [frame]
    assert len(text) < decoder.memory < 6 * len(text) + 100_000


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1]",
        b'{"no":"kind"}',
        b'{"t":"event","seq":-1,"epoch":1,"kind":"message","body":{}}',
        b'{"t":"event","seq":true,"epoch":1,"kind":"message","body":{}}',
        b'{"t":"event","seq":1,"epoch":1,"kind":"message","body":[]}',
        b'{"t":"event","seq":1}',
        b'{"t":"head","epoch":1,"stream":1,"status":200,"headers":{"a":1}}',
        b'{"t":"part","id":1,"i":1,"n":2,"d":"x"}',
        b"[" * 100_000,
        b'{"t":"event","seq":1,"epoch":1,"kind":"message","body":{"a":NaN}}',
        b'{"t":"event","seq":1,"epoch":1,"kind":"message","body":{"a":[-Infinity]}}',
        b'{"t":"event","seq":1,"epoch":1,"kind":"message","body":{"a":1e999}}',
        b'{"t":"part","id":1,"i":0,"n":1,"d":"{\\"t\\":\\"report\\",\\"kind\\":\\"x\\",\\"body\\":{\\"a\\":1e999}}"}',
        b'{"t":"report","kind":"\xff","body":{}}',
        b'{"t":"channel_data","channel":1,"off":0,"data":"eA=="}',
        b'{"t":"channel_data","channel":1,"off":0,"data":%d}' % (CHUNK + 1),
        b'{"t":"channel_data","off":0,"data":0}',
    ],
)
def test_what_breaks_the_rules_is_a_frame_error(line: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(line + b"\n"))


def test_kinds_and_fields_of_a_newer_peer_are_ignored() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(b'{"t":"from the future","x":1}\n\n')) == []
    hello = {
        "t": "hello", "protocol": 1, "bundle": "b", "session": "s", "pid": 1, "python": "3.9", "platform": "linux",
        "cwd": "/", "epoch": 0, "seq": 0, "state": "idle", "new": 1,
    }  # fmt: skip
    assert isinstance(frame_from_dict(hello), Hello)


@pytest.mark.parametrize(("sent", "got"), [("one\u2028two\u0085three", "one\u2028two\u0085three"), ("\udcff", "?")])
def test_no_character_ends_a_line_and_a_lone_surrogate_is_replaced(sent: str, got: str) -> None:
    assert list(FrameDecoder().feed(b"".join(encode_frame(Input(1, "a", {"text": sent}))))) == [
        Input(1, "a", {"text": got})
    ]


def test_session_options_round_trip_and_refuse_wrong_types() -> None:
    options = SessionOptions(model="m", allowed_tools=["Bash(git *)"], max_turns=3)
    assert SessionOptions.from_json({**options.to_json(), "unknown": 1}) == options
    for broken in ({"max_turns": "3"}, {"max_turns": True}, {"model": 1}, {"allowed_tools": "Bash"}, {"add_dirs": [1]}):
        with pytest.raises(FrameError):
            SessionOptions.from_json(broken)
