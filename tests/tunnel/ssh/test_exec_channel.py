"""The pipe of a command that hands over what arrives, on a real sshd."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import logged_in, output, target

from ccb.tunnel.ssh.exec_channel import InputBuffer
from ccb.tunnel.transports.pipe import HandsOver

SIZE = 24 << 20


class Taken:
    """What was handed over. `ended` is set at the end of the stream."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = asyncio.Event()

    def __call__(self, data: bytes) -> None:
        self.size += len(data)
        if not data:
            self.ended.set()


async def test_what_arrives_is_handed_over_but_not_while_it_is_held_and_so_is_the_end(
    sshd: Sshd, host_user: HostUser
) -> None:
    async with logged_in(target(sshd, host_user)) as transport:
        pipe = await transport.execute(f"read x; head -c {SIZE} /dev/zero; read x; exit 3")
        taken = Taken()
        assert isinstance(pipe, HandsOver)
        pipe.hand_over(taken)
        pipe.hold()
        await pipe.write(b"go\n")
        count = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo later"
        assert await output(transport, count) == "later\n"
        assert taken.size == 0 and not taken.ended.is_set()
        pipe.release()
        await pipe.write(b"end\n")
        async with asyncio.timeout(30):
            await taken.ended.wait()
        assert (taken.size, await pipe.exit_status()) == (SIZE, 3)
        await pipe.close()
        pipe = await transport.execute("printf begun; sleep 60")
        taken = Taken()
        pipe.hand_over(taken)
        transport.abort()
        async with asyncio.timeout(30):
            await taken.ended.wait()
        assert await pipe.exit_status() is None


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
