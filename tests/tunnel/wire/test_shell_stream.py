"""Input and output of a shell are decoded as they were sent, in pieces of any size. Broken data is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire.shell_stream import (
    OutputPacker,
    OutputUnpacker,
    ShellInputDecoder,
    TerminalSize,
    encode_size,
    encode_typed,
)

SIZES = st.builds(TerminalSize, st.integers(0, 65535), st.integers(0, 65535))


@given(st.lists(st.one_of(st.binary(max_size=40), SIZES)), st.integers(1, 9))
def test_keys_and_sizes_arrive_in_order(sent: list[bytes | TerminalSize], step: int) -> None:
    data = b"".join(encode_typed(each) if isinstance(each, bytes) else encode_size(each) for each in sent)
    decoder = ShellInputDecoder()
    assert [each for at in range(0, len(data), step) for each in decoder.feed(data[at : at + step])] == sent


@given(st.lists(st.binary(min_size=1, max_size=400)), st.integers(1, 9))
def test_an_output_arrives_and_each_piece_without_the_next(sent: list[bytes], step: int) -> None:
    packer, unpacker = OutputPacker(), OutputUnpacker()
    for each in sent:
        data = packer.pack(each)
        pieces = (data[at : at + step] for at in range(0, len(data), step))
        assert b"".join(got for piece in pieces for got in unpacker.feed(piece)) == each


def test_a_flood_is_not_made_so_small_that_ctrl_c_comes_after_all_that_a_window_holds_of_it() -> None:
    flood, packer, unpacker = b"y\r\n" * 1300, OutputPacker(), OutputUnpacker()
    packed = packer.pack(flood)
    assert len(flood) // 5 < len(packed) < len(flood) // 3
    assert b"".join(unpacker.feed(packed)) == flood
    assert b"".join(unpacker.feed(packer.pack(b"next"))) == b"next"


@pytest.mark.parametrize("data", [b"x\0\0\0\1a", b"t\xff\xff\xff\xff", b"s\0\0\0\5abcde", bytes(5)])
def test_what_is_no_input_of_a_shell_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no input of a shell"):
        list(ShellInputDecoder().feed(data))


def test_an_output_of_a_hostile_host_comes_in_bounded_pieces_or_is_refused() -> None:
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    pieces = OutputUnpacker().feed(bomb.compress(bytes(50_000_000)) + bomb.flush())
    assert {len(piece) <= 1 << 16 for piece in pieces} == {True}
    with pytest.raises(ValueError, match="damaged"):
        list(OutputUnpacker().feed(b"\xff" * 100))
