"""The input buffer that takes the place of asyncssh's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ccb.tunnel.ssh.exec_channel import InputBuffer

_PLACES = st.integers(-24, 24)  # a server that names a length too small makes asyncssh count from the end
_STEPS = st.lists(st.tuples(st.sampled_from("adc"), st.binary(max_size=20), _PLACES, _PLACES))


@given(_STEPS)
def test_it_does_what_bytes_do_in_the_hands_of_asyncssh(steps: list[tuple[str, bytes, int, int]]) -> None:
    ours, theirs = InputBuffer(), b""
    for what, data, start, stop in steps:
        if what == "a":
            ours += data
            theirs += data
        elif what == "d":
            rest = ours[start:]
            assert isinstance(rest, InputBuffer)
            ours, theirs = rest, theirs[start:]
        assert ours[:stop] == theirs[:stop]
        assert ours[start:stop] == theirs[start:stop]
        assert ours.find(data[:1], 0, abs(stop)) == theirs.find(data[:1], 0, abs(stop))
        assert len(ours) == len(theirs)
        assert bool(ours) == bool(theirs)
