"""Names of files as text: any name is spelled, on one line, and read again."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccb.tunnel.wire.spelling import spelled, unspelled


@given(st.binary(max_size=30).map(lambda data: data.replace(b"\0", b"")))
@example(b"caf\xe9/\\xe9")
@example(b"\\\\n\\")
@example(b"a\\\xe9")
@example("é\u2028\x85".encode())
def test_every_name_is_one_line_of_text_and_is_read_again(name: bytes) -> None:
    text = spelled(os.fsdecode(name))
    assert text.encode().decode().isprintable() or not any(char in text for char in "\n\r\t\x1b\x85\u2028")
    assert len(text.splitlines()) <= 1
    assert os.fsencode(unspelled(text)) == name


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_pieces_of_a_path_fit_together(one: bytes, two: bytes) -> None:
    first, second = os.fsdecode(one), os.fsdecode(two)
    assert spelled(f"{first}/{second}") == f"{spelled(first)}/{spelled(second)}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"caf\xe9", r"caf\xe9"),
        (rb"caf\xe9", r"caf\\xe9"),
        (b"two\nlines", r"two\nlines"),
        (rb"C:\new", r"C:\\new"),
        (b"a\tb\x1b", r"a\x09b\x1b"),
        (rb"dev-disk\x2duuid.mount", r"dev-disk\x2duuid.mount"),  # as systemd names its units
        (rb"src\main.c", r"src\main.c"),
        ("größe, 表".encode(), "größe, 表"),
    ],
)
def test_a_name_is_spelled_as_it_is_unless_that_could_not_be_read(name: bytes, text: str) -> None:
    assert spelled(os.fsdecode(name)) == text


@pytest.mark.parametrize("text", [r"\xc3\xa9", r"\x61", r"a\\b", r"\xE9", r"\x0a", r"\x2f", r"\x00"])
def test_there_is_one_spelling_of_each_name(text: str) -> None:
    assert unspelled(f"x/{text}") == f"x/{text}"
