"""However the network splits an upstream stream, the worker gets the same bytes; and they cost little."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.providers.adapters import MODELS, Told
from tests.support.providers.dialect_server import sse, stream_of
from tests.support.providers.readers import reader_of, translated
from tests.support.providers.turns import Said

from ccb.tunnel.providers import anthropic_events, openai_chat
from ccb.tunnel.providers.anthropic_events import PING
from ccb.tunnel.providers.translating_provider import StreamTranslator

NAMES = st.sampled_from(["Read", "Bash", "mcp__x__y"])
JSON = st.recursive(st.none() | st.integers() | st.text(max_size=20), partial(st.lists, max_size=3), max_leaves=6)
INPUTS = st.dictionaries(st.text(max_size=8), JSON, max_size=3)
TEXTS = st.text(max_size=60)
Calls = list[tuple[str, dict[str, object]]]


def test_a_stream_without_an_end_takes_no_memory_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has gone mad sends calls, names, signatures or reasoning for ever, and the input of none."""
    monkeypatch.setattr(anthropic_events, "MAX_ANSWER", 300_000)
    monkeypatch.setattr(openai_chat, "MAX_ANSWER", 300_000)
    long = "x" * 4_000
    google = {"extra_content": {"google": {"thought_signature": long}}}
    for deltas in (
        [{"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "f"}}]} for index in range(2_000)],
        [{"tool_calls": [{"index": index, "function": {"name": "f"}, **google}]} for index in range(300)],
        [{"reasoning_details": [{"type": "reasoning.text", "text": long, "index": 0}]} for _ in range(300)],
        [{"reasoning_details": [{"type": "a", "index": index}]} for index in range(4_000)],
    ):
        translator = StreamTranslator(reader_of("openrouter"))
        for delta in deltas[:-1]:
            translator.feed(sse({"id": "1", "choices": [{"delta": delta}]}, done=False))
        assert translator.answer.over, deltas[0]


def test_a_line_that_comes_in_many_pieces_is_put_together_once() -> None:
    translator, began = StreamTranslator(reader_of("openai")), time.process_time()
    for _ in range(4_000):
        assert translator.feed(b"x" * 1_000) == b""
    assert time.process_time() - began < 1  # copied for each piece, 12 MB took 76 s, and 4 MB a ninth of that


_EMPTY = ("content", "reasoning_content", "reasoning", "refusal")


@pytest.mark.parametrize("flavour", sorted(MODELS))
def test_signs_of_life_of_a_server_say_nothing_to_the_worker(flavour: str) -> None:
    """So they do not count where the worker measures for how long a model says nothing."""
    chat: list[dict[str, object]] = [{"id": "1", "choices": [{"index": 0, "delta": {each: ""}}]} for each in _EMPTY]
    chat += [{"id": "1", "choices": []}, {"id": "1", "choices": [{"delta": {"role": "assistant", "tool_calls": []}}]}]
    responses: list[dict[str, object]] = [
        {"type": "response.in_progress", "response": {"id": "1"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": ""},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": ""},
        {"type": "keepalive"},
    ]
    signs = sse(*(responses if flavour == "responses" else chat), done=False)
    noise = [signs, b": keep-alive\n\n", b": OPENROUTER PROCESSING\n\n", b"\n", b"event: ping\n\n", b"data:\n\n"]
    translator = StreamTranslator(reader_of(flavour))
    first = translator.feed(signs)
    assert first.count(b"event:") == 1 and b"message_start" in first
    made = b"".join(translator.feed(each) for each in noise * 5 + [b'data: {"id"'])
    assert made.replace(PING, b"") == b""


@given(
    flavour=st.sampled_from(sorted(MODELS)),
    text=TEXTS,
    thinking=TEXTS,
    calls=st.lists(st.tuples(NAMES, INPUTS), max_size=3),
    stop=st.sampled_from(["end", "length", "filter"]),
    cuts=st.lists(st.integers(0, 6000), max_size=40),
    crlf=st.booleans(),
)
def test_any_split_gives_the_same_events(
    flavour: str, text: str, thinking: str, calls: Calls, stop: str, cuts: list[int], crlf: bool
) -> None:
    stream = stream_of(Said(text, thinking, tuple(calls), stop), 7, flavour)
    if crlf:
        stream = stream.replace(b"\n", b"\r\n")
    whole = translated(flavour, [stream])
    places = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    assert translated(flavour, [stream[start:end] for start, end in pairwise(places)]) == whole
    message = Told(200, {}, whole).message
    assert "".join(block.get("text", "") for block in message["content"]) == text
    assert [(block["name"], block["input"]) for block in message["content"] if block["type"] == "tool_use"] == calls


@given(flavour=st.sampled_from(sorted(MODELS)), where=st.floats(0, 1))
def test_a_stream_that_ends_anywhere_is_an_answer_or_an_error(flavour: str, where: float) -> None:
    said = Said("some text", "thinking", (("Read", {"a": "b"}), ("Bash", {})))
    stream = stream_of(said, 7, flavour)
    got = translated(flavour, [stream[: int(where * len(stream))]])
    assert got.endswith((b'"message_stop"}\n\n', b"}}\n\n"))
    if b'"message_stop"' not in got:
        assert Told(200, {}, got).events[-1]["type"] == "error" and b"message_delta" not in got
    else:
        assert Told(200, {}, got).message["stop_reason"] == "tool_use"


@pytest.mark.parametrize("junk", [b"data: {\n\n", b"data: []\n\n", b'data: "x"\n\n', b"data: 3\n\n", b"data: {}\n\n"])
@pytest.mark.parametrize("flavour", ["openai", "responses"])
def test_what_is_no_event_is_an_error_or_nothing(flavour: str, junk: bytes) -> None:
    got = translated(flavour, [junk])
    assert Told(200, {}, got).events[-1]["type"] == "error"
