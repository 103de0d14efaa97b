"""Outputs: bounded in memory, in the conversation and on disk, and nothing lost without a word."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.remote.tools.output import MAX_OUTPUT_CHARS, Output, OutputFiles, clean, limited


@pytest.fixture
def spill(tmp_path: Path) -> OutputFiles:
    return OutputFiles(str(tmp_path / "outputs"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m plain", "red plain"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link", "alink"),
        (b"a\tb\r\nc\rd", "a\tb\nc\rd"),
        (b"N\x08NA\x08A", "NA"),
        (b"bell\x07 nul\x00 esc\x1b", "bell nul esc"),
        (b"caf\xe9 \xe2\x82", "caf\ufffd \ufffd"),
        (b"cut \x1b[", "cut "),
        (b"a\x1b]0;title without an end\nb\nc\x1b[0m", "a\nb\nc"),
        (b"a\x1bPq#1\n#2\x1b\\b", "ab"),
        (b"c1 \xc2\x9b1m\xc2\x85", "c1 1m"),
    ],
)
def test_what_the_model_gets_is_clean_text(data: bytes, text: str) -> None:
    assert clean(data) == text


def test_files_are_for_their_owner_only_and_not_overwritten_by_a_later_daemon(spill: OutputFiles) -> None:
    first = spill.keep(b"first", "../Odd name!/a.txt")
    second = OutputFiles(spill.directory).keep(b"second", "a.txt")
    assert first is not None and second is not None
    assert Path(first.path).read_bytes() == b"first" and os.path.dirname(first.path) == spill.directory
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (first.path, spill.directory)]
    assert modes == [0o600, 0o700]


def test_memory_is_bounded_and_the_file_too(tmp_path: Path) -> None:
    spill = OutputFiles(str(tmp_path), file_cap=1 << 20)
    output = Output(spill, "bash")
    for _ in range(64):
        output.add(b"x" * 65536)
    assert len(output._head) + len(output._tail) <= 600_000
    assert os.path.getsize(output.path) == 1 << 20
    assert output._file is not None and output._file.dropped == 3 << 20
    assert "the first 1,048,576 bytes of it are in" in output.text()
    assert "the rest was dropped" in output.text()
    output.close()


def test_the_oldest_finished_outputs_make_room_for_new_ones(tmp_path: Path) -> None:
    spill = OutputFiles(str(tmp_path), total_cap=2500)
    kept = [spill.keep(b"x" * 1000, "a") for _ in range(4)]
    assert [each is not None and os.path.exists(each.path) for each in kept] == [False, False, True, True]


def test_without_a_place_for_files_the_rest_still_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spill = OutputFiles(str(tmp_path / "file" / "outputs"))
    output = Output(spill, "bash")
    output.add(b"x" * 500_000)
    assert "could not be kept" in output.text()
    assert "could not be kept" in limited("x" * 50_000, spill, "Grep")
    assert spill.scratch() == ""


def test_an_output_in_memory_that_is_short_without_its_controls_is_shown_once(spill: OutputFiles) -> None:
    output = Output(spill, "bash")
    for number in range(1500):
        output.add(b"\x1b[2K\x1b[1G" * 15 + b"%d\n" % number)
    assert output.text().splitlines() == [str(number) for number in range(1500)]


def test_the_live_tail_is_the_newest_lines(spill: OutputFiles) -> None:
    output = Output(spill, "bash")
    output.add(b"".join(b"%d\n" % n for n in range(100)))
    assert output.last(3, 4096) == "97\n98\n99\n"
    output.add(b"partial")
    assert output.last(2, 4096) == "99\npartial"
    assert len(output.last(100, 10)) <= 10


@given(st.lists(st.binary(max_size=90_000), max_size=8), st.integers(0, 8))
def test_no_news_is_lost_or_repeated(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], first: int) -> None:
    output = Output(OutputFiles(str(tmp_path_factory.mktemp("o"))), "bash", to_file=True)
    for chunk in chunks[:first]:
        output.add(chunk)
    start = output.total
    for chunk in chunks[first:]:
        output.add(chunk)
    new = b"".join(chunks)[start:]
    text = output.text(start=start)
    if len(clean(new)) <= MAX_OUTPUT_CHARS and len(new) <= 128 * 1024:
        assert text == clean(new)
    else:
        assert len(text) <= MAX_OUTPUT_CHARS
        assert output.path in text
    assert Path(output.path).read_bytes() == b"".join(chunks)
    output.close()


@given(st.lists(st.text("ab\n", max_size=40), max_size=8), st.integers(1, 9))
def test_pieces_forwards_and_backwards_are_all_of_it(chunks: list[str], most: int) -> None:
    output, seen, after = Output(OutputFiles(""), "task"), "", 0
    for chunk in chunks:
        output.add(chunk.encode())
        piece = output.piece(after, 10_000)
        seen, after = seen + piece["text"], piece["next"]
    last, back, before = output.piece(after, 10_000), "", output.total
    while before:
        piece = output.piece(0, most, before)
        back, before = piece["text"] + piece["begun"] + back, piece["start"]
    assert seen + last["begun"] == back == "".join(chunks)


@given(st.text(max_size=400), st.integers(150, 400))
def test_limited_text_is_whole_or_its_two_ends(tmp_path_factory: pytest.TempPathFactory, text: str, most: int) -> None:
    spill = OutputFiles(str(tmp_path_factory.mktemp("s")))
    found = limited(text, spill, "x", most)
    if len(text) <= most:
        assert found == text
        return
    assert len(found) <= max(most, 250)
    head, tail = re.split(r"\n\n\[\.\.\. .* \.\.\.\]\n\n", found, maxsplit=1)
    assert text.startswith(head)
    assert text.endswith(tail)
