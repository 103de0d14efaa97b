"""A request body as copies of an earlier one: exact for any two bodies, and small for two of one conversation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.remote.model.model_request import HistoryMessage, RequestPrefix, body
from ccb.tunnel.proxy.body_store import new_bytes, rebuild
from ccb.tunnel.wire import body_deltas as deltas

PIECE = st.one_of(
    st.sampled_from([b",", b"],", b"a" * 70, b"a" * 69 + b"b", b"x" * 300, b"x" * 100 + b"-" + b"x" * 200, b"y" * 64]),
    st.binary(max_size=200),
)

PIECES = st.lists(PIECE, max_size=12)


class Said(HistoryMessage):
    """One message of a conversation."""

    def __init__(self, role: str, text: str) -> None:
        super().__init__(role)
        self.text = text
        self.put({"type": "text", "text": text})


PREFIX = RequestPrefix([{"type": "text", "text": "s" * 9_000}], [{"name": "Bash", "description": "t" * 20_000}])


def request(history: Sequence[Said], prefix: RequestPrefix = PREFIX) -> list[bytes]:
    return body(prefix, history, model="claude-x", max_tokens=100, session_id="one")


def turns(count: int) -> list[Said]:
    return [Said("user" if n % 2 == 0 else "assistant", f"{n} " + chr(97 + n % 26) * 400) for n in range(count)]


def built(base: Sequence[bytes], pieces: Sequence[bytes]) -> bytes:
    """The body as the laptop makes it of the delta to `base`."""
    delta = deltas.difference(deltas.KnownBody(base), pieces)
    old, new = b"".join(base), b"".join(delta.new)
    assert new_bytes(delta.parts, len(old), sum(map(len, pieces))) == len(new)
    assert delta.copied + len(new) == sum(map(len, pieces))
    return rebuild(old, delta.parts, new)


@given(PIECES, PIECES)
def test_any_body_is_made_again_exactly(base: list[bytes], pieces: list[bytes]) -> None:
    assert built(base, pieces) == b"".join(pieces)


@given(PIECES, st.data())
def test_an_edited_body_is_made_again_exactly(base: list[bytes], data: st.DataObject) -> None:
    pieces = list(base)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(pieces)))
        pieces[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(PIECE, max_size=2))
    assert built(base, pieces) == b"".join(pieces)


@pytest.mark.parametrize("length", [3, 21, 401])
def test_a_call_of_a_conversation_sends_what_is_new_at_any_length(length: int) -> None:
    history = turns(length)
    base = request(history)
    history += [Said("assistant", "A" * 500), Said("user", "B" * 500)]
    made = deltas.shortest(request(history), [(deltas.digest_of(base), deltas.KnownBody(base))])
    assert made.base == deltas.digest_of(base)
    assert len(made.parts) <= 5 * 3, made.parts
    assert made.sent < 1_500, "two messages of 500 bytes, and the cache marks that have moved"


def test_other_conversations_share_what_they_have_in_common() -> None:
    history = turns(100)
    base = [(deltas.digest_of(request(history)), deltas.KnownBody(request(history)))]
    summary = [Said("user", "summary " * 20), *history[-6:]]
    cleared = [Said(m.role, m.text[:10]) if i == 30 else m for i, m in enumerate(history)]
    for other_history in (summary, cleared, [Said("user", "look for it")]):
        assert deltas.shortest(request(other_history), base).sent < 1_000
    other = RequestPrefix([{"type": "text", "text": "another agent"}], [])
    assert deltas.shortest(request(history, other), base).sent < 1_000, "another system prompt, the same history"


def test_the_body_with_most_of_it_is_the_base() -> None:
    near, far = request(turns(21)), request([Said("user", "x" * 40_000)])
    known = [(deltas.digest_of(each), deltas.KnownBody(each)) for each in (far, near)]
    assert deltas.shortest(request(turns(23)), known).base == deltas.digest_of(near)


def test_a_first_body_is_compressed_where_that_pays_and_the_same_again_sends_nothing() -> None:
    pieces = request(turns(5))
    made = deltas.shortest(pieces, [(deltas.digest_of(pieces), deltas.KnownBody(pieces))])
    assert (made.sent, list(made.pieces)) == (0, [])
    made = deltas.shortest(request(turns(21)), [])
    assert made.deflated
    assert made.sent < sum(map(len, request(turns(21)))) / 5
    small = deltas.shortest([b"x" * 100], [])
    assert small == deltas.OutgoingBody(deltas.digest_of([b"x" * 100]), "", [], 0, False, [b"x" * 100])


@given(st.lists(st.binary(max_size=60), max_size=4), st.binary(max_size=500))
def test_new_bytes_come_out_of_compression_with_the_end_of_a_body_as_dictionary(base: list[bytes], new: bytes) -> None:
    assert deltas.unpack(deltas.pack(new)) == new, "as a piece of an answer"
    dictionary = deltas.KnownBody(base).tail(100)
    assert dictionary == b"".join(base)[-100:]
    assert deltas.inflate(deltas.deflate([new[:50], new[50:]], dictionary), len(new) + 1, dictionary) == new


def test_an_event_takes_a_few_bytes_and_no_more_than_a_frame_comes_out() -> None:
    event = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta",'
    assert len(deltas.pack(event + b'"text":"some more words"}}\n\n')) < 35
    assert len(deltas.unpack(deltas.pack(b"x" * 10_000_000))) == deltas.MAX_PACKED + 1


def test_new_bytes_that_look_like_the_last_ones_take_little_room() -> None:
    listing = "".join(f"-rw-r--r-- 1 ann staff {n * 7919 % 9973} src/part{n}/module_{n * n}.py\n" for n in range(12))
    history = [Said("user", "list it"), Said("assistant", listing)]
    known = [(deltas.digest_of(request(history)), deltas.KnownBody(request(history)))]
    again = request([*history, Said("user", "again"), Said("assistant", listing.replace("ann", "bob"))])
    sent = {primed: deltas.shortest(again, known, primed=primed) for primed in (False, True)}
    assert sent[True].primed
    assert not sent[False].primed
    assert sent[True].sent < sent[False].sent / 4


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([0, 0], id="no triples"),
        pytest.param([0, 1, 100], id="a copy past the end"),
        pytest.param([0, 0, 100, 0, 0, 100], id="longer than announced"),
        pytest.param([0, 0, 10], id="shorter than announced"),
        pytest.param([0, 0, 0] * deltas.MAX_PARTS, id="too many"),
    ],
)
def test_parts_that_do_not_fit_are_refused_before_anything_is_made(parts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"."):
        new_bytes(parts, 100, 150)


def test_a_cache_is_bounded_and_a_body_that_has_grown_goes_first() -> None:
    cache: deltas.BodyCache[int] = deltas.BodyCache()
    for number in range(deltas.MAX_BODIES):
        cache.put(str(number), 100, number)
    cache.was_copied("5", 90)  # it has grown
    cache.was_copied("0", 20)  # another conversation begins like it
    cache.put("new", 100, 99)
    assert cache.get("5") is None
    cache.put("newer", 100, 99)
    assert (cache.get("0"), cache.get("1"), len(cache)) == (0, None, deltas.MAX_BODIES)
    cache.put("large", deltas.MAX_KEPT - 100, 7)
    assert (len(cache), cache.get("newer")) == (2, 99)
    cache.put("too large", deltas.MAX_KEPT + 1, 7)
    assert cache.get("too large") is None
    assert [digest for digest, _ in cache.newest_first()] == ["large", "newer"]
