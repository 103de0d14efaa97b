"""Standard streams that another program has made non-blocking, on real pipes: what waits there is not lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ccb.local.terminal.stdio import Writer, read_pieces

LARGE = b"x" * (1 << 20)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    yield reader, writer
    for fd in (reader, writer):
        with suppress(OSError):  # a test has closed it
            os.close(fd)


async def test_input_that_has_not_come_yet_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    pieces = read_pieces(reader)
    first = asyncio.ensure_future(anext(pieces))
    await asyncio.wait({first}, timeout=0.2)  # only a reader that does not wait would be done by then
    assert not first.done()
    os.write(writer, b"one")
    assert await first == b"one"
    second = asyncio.ensure_future(anext(pieces))
    os.write(writer, b"two")
    assert await second == b"two"
    os.close(writer)
    assert [piece async for piece in pieces] == []


async def test_output_waits_for_a_slow_reader(pipe: tuple[int, int]) -> None:
    reader, write_end = pipe
    writer = Writer(write_end)
    await writer.write(LARGE)
    assert not writer.broken.done()
    os.set_blocking(reader, True)
    got = 0
    while got < len(LARGE):
        got += len(await asyncio.to_thread(os.read, reader, 65536))
    await writer.drain()
    assert not writer.broken.done()


def test_a_command_prints_all_of_its_text_to_a_pipe_that_does_not_block() -> None:
    """More than fits into the pipe, before anybody reads; on stdout and on stderr."""
    program = (
        "import sys, ccb.__main__ as main; main._open_standard_streams();"
        "sys.stdout.write('o' * 300000); sys.stdout.flush(); sys.stderr.write('e' * 300000);"
        "sys.__stderr__.write('!'); sys.__stderr__.flush(); sys.stdout.write(sys.stdin.read()); sys.stdout.flush()"
    )
    ends = [os.pipe() for _ in range(3)]
    (stdin, typed), (printed, stdout), (said, stderr) = ends
    for fd in (stdin, stdout, stderr):
        os.set_blocking(fd, False)
    with subprocess.Popen([sys.executable, "-c", program], stdin=stdin, stdout=stdout, stderr=stderr) as process:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        found: dict[str, bytes] = {}

        def read(name: str, fd: int) -> None:
            with os.fdopen(fd, "rb") as file:
                found[name] = file.read()

        readers = [threading.Thread(target=read, args=each) for each in (("out", printed), ("err", said))]
        for thread in readers:
            thread.start()
        os.write(typed, b"and this")
        os.close(typed)
        for thread in readers:
            thread.join(30)
        assert process.wait(30) == 0
    assert found["out"] == b"o" * 300000 + b"and this"
    assert found["err"] == b"e" * 300000 + b"!"
