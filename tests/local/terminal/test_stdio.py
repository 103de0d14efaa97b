"""Standard streams: non-blocking pipes lose nothing, and what is printed on a terminal cannot drive it."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.terminal.attacks import ATTACKS
from tests.support.terminal.strict_parser import strangers

from ccb.local import main
from ccb.local.terminal.console import guarded_streams, write_over
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


async def test_few_bytes_are_written_without_a_thread_only_where_they_surely_fit(pipe: tuple[int, int]) -> None:
    reader, write_end = pipe
    writer = Writer(write_end)
    assert (writer.write_few(b"key"), os.read(reader, 9)) == (3, b"key")
    assert writer.write_few(LARGE) == 0
    os.write(write_end, LARGE)
    assert writer.write_few(b"key") == 0


async def test_other_tasks_get_their_turn_though_nothing_is_left_to_write(pipe: tuple[int, int]) -> None:
    other = asyncio.create_task(asyncio.sleep(0))
    await Writer(pipe[1]).drain()
    await asyncio.sleep(0)
    assert other.done(), "a host that sends what is not shown would hold up the keys"


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
        "sys.stdout.write('o' * 300000); sys.stdout.flush(); sys.stderr.write('e' * 300000); sys.stderr.flush();"
        "sys.__stderr__.write('!'); sys.__stderr__.flush(); sys.stdout.write(sys.stdin.read()); sys.stdout.flush()"
    )
    (stdin, typed), (printed, stdout), (said, stderr) = [os.pipe() for _ in range(3)]
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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminals(monkeypatch: pytest.MonkeyPatch) -> tuple[_Terminal, _Terminal]:
    out, err = _Terminal(), _Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    return out, err


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_reaches_the_terminal(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = on_terminals(monkeypatch)
    with guarded_streams():
        sys.stdout.write(attack)
        sys.stdout.write(" after\n")
        sys.stderr.write(attack)
        sys.stderr.writelines([attack, attack])
        write_over(attack)
    assert out.getvalue().endswith("after\n")
    assert strangers(out.getvalue()) == []
    assert strangers(err.getvalue().replace("\t", ""), r"\r", r"\x1b\[K") == []
    assert err.getvalue().count("\r\x1b[K") == 1, "only our own line is written over"
    assert (sys.stdout, sys.stderr) == (out, err)


def test_all_of_ccb_runs_behind_it_and_a_file_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = on_terminals(monkeypatch)

    def answer(argv: object) -> int:
        sys.stdout.write("\x1b]52;c;ZXZpbA==\x07said")
        sys.stderr.write("\x9b2Jtoo")
        return 0

    monkeypatch.setattr(main, "_answer", answer)
    assert main.run([]) == 0
    assert [each.getvalue() for each in streams] == ["said", "too"]
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with guarded_streams():
        sys.stdout.write("\x1b[31mred")
    assert out.getvalue() == "\x1b[31mred"
