"""The input of a shell is decoded as it was sent, in pieces of any size. Broken data is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.wire.shell_stream import ShellInputDecoder, TerminalSize, encode_size, encode_typed

SIZES = st.builds(TerminalSize, st.integers(0, 65535), st.integers(0, 65535))


@given(st.lists(st.one_of(st.binary(max_size=40), SIZES)), st.integers(1, 9))
def test_keys_and_sizes_arrive_in_order(sent: list[bytes | TerminalSize], step: int) -> None:
    data = b"".join(encode_typed(each) if isinstance(each, bytes) else encode_size(each) for each in sent)
    decoder = ShellInputDecoder()
    assert [each for at in range(0, len(data), step) for each in decoder.feed(data[at : at + step])] == sent


@pytest.mark.parametrize("data", [b"x\0\0\0\1a", b"t\xff\xff\xff\xff", b"s\0\0\0\5abcde", bytes(5)])
def test_what_is_no_input_of_a_shell_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no input of a shell"):
        list(ShellInputDecoder().feed(data))
