"""stdin of a headless run, on real pipes and files."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ccb.local.headless.stdin_input import BadInput, is_piped, read_messages, read_prompt
from ccb.tunnel.errors import UsageError


def quiet(text: str) -> None:
    raise AssertionError(text)


def pipe_with(data: bytes) -> int:
    reader, writer = os.pipe()

    def fill() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(data)

    threading.Thread(target=fill, daemon=True).start()
    return reader


async def prompt(given: str | None, data: bytes, say: Callable[[str], None] = quiet) -> str:
    fd = pipe_with(data)
    try:
        return await read_prompt(given, fd, say=say)
    finally:
        os.close(fd)


async def messages(data: bytes) -> list[dict[str, object]]:
    fd = pipe_with(data)
    try:
        return [body async for body in read_messages(fd)]
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("given", "data", "whole"),
    [
        ("review this", b"diff --git\n", "review this\n\ndiff --git"),
        (None, b"what is 2+2?\n", "what is 2+2?"),
        ("just this", b"", "just this"),
        ("just this", b" \n\n", "just this"),
    ],
)
async def test_piped_text_follows_the_prompt(given: str | None, data: bytes, whole: str) -> None:
    assert await prompt(given, data) == whole


@pytest.mark.parametrize("given", [None, "", "  "])
async def test_neither_prompt_nor_input_is_a_usage_error(given: str | None) -> None:
    with pytest.raises(UsageError, match="Input must be provided"):
        await prompt(given, b"")


async def test_files_are_read_and_devices_are_not(tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text("from a file")
    with file.open("rb") as opened, Path(os.devnull).open("rb") as null:
        assert await read_prompt("p", opened.fileno(), say=quiet) == "p\n\nfrom a file"
        assert not is_piped(null.fileno())
        assert await read_prompt("p", null.fileno(), say=quiet) == "p"


@pytest.mark.parametrize("data", [b"caf\xe9", b"\x7fELF\0\0"])
async def test_bytes_that_are_no_text_are_replaced_and_told(data: bytes) -> None:
    said: list[str] = []
    assert (await prompt("p", data, said.append)).startswith("p\n\n")
    assert len(said) == 1 and "not UTF-8 text" in said[0]


@pytest.mark.slow
async def test_a_pipe_that_stays_open_is_waited_for_without_a_prompt_and_the_wait_is_told() -> None:
    reader, writer = os.pipe()
    said: asyncio.Queue[str] = asyncio.Queue()
    reading = asyncio.create_task(read_prompt(None, reader, say=said.put_nowait))
    assert "waiting for the end" in await asyncio.wait_for(said.get(), 60)
    assert not reading.done()
    os.write(writer, b"late")
    os.close(writer)
    assert await asyncio.wait_for(reading, 60) == "late"
    os.close(reader)


@pytest.mark.slow
async def test_a_prompt_does_not_wait_for_a_pipe_from_which_nothing_comes() -> None:
    reader, writer = os.pipe()
    said: list[str] = []
    assert await asyncio.wait_for(read_prompt("p", reader, say=said.append), 60) == "p"
    assert len(said) == 1 and "going on without it" in said[0]
    os.close(writer)
    os.close(reader)


@pytest.mark.slow
async def test_a_pipe_from_which_something_came_is_read_to_its_end() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"early, ")
    said: asyncio.Queue[str] = asyncio.Queue()
    reading = asyncio.create_task(read_prompt("p", reader, say=said.put_nowait))
    assert "waiting for the end" in await asyncio.wait_for(said.get(), 60)
    os.write(writer, b"late")
    os.close(writer)
    assert await asyncio.wait_for(reading, 60) == "p\n\nearly, late"
    os.close(reader)


USER = {"type": "user", "message": {"role": "user", "content": "hi"}}


async def test_messages_are_cut_at_newlines_only() -> None:
    text = {**USER, "message": {"role": "user", "content": "a\u2028b"}}
    data = (json.dumps(text, ensure_ascii=False) + "\n" + json.dumps(USER)).encode()
    assert await messages(data) == [text, USER]


async def test_a_large_message_passes() -> None:
    big = {"type": "user", "message": {"role": "user", "content": "x" * 700_000}}
    assert await messages(json.dumps(big).encode() + b"\n") == [big]


async def test_what_the_protocol_ignores_is_dropped() -> None:
    lines = [
        b"",
        b"   ",
        b"[1,2]",
        b"3",
        b"{}",
        b'{"type":"keep_alive"}',
        b'{"type":"news"}',
        json.dumps(USER).encode(),
    ]
    lines.append(b'{"type":"update_environment_variables","variables":{"ANTHROPIC_API_KEY":"sk-x"}}')
    assert await messages(b"\n".join(lines) + b"\n") == [USER]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"this is no json!", "Error parsing streaming input line (16 bytes)"),
        (
            b'{"type":"user","message":{"role":"user","content":' + b"[" * 300 + b"]" * 300 + b"}}",
            "more than 200 levels",
        ),
        (b'{"type":"user"}', "Expected message role 'user'"),
        (b'{"type":"user","message":{"role":"assistant"}}', "Expected message role 'user'"),
        (b'{"type":"control_request"}', "Missing request on control_request"),
        (b"[" * 100_000, "Error parsing streaming input line"),
        (
            b'{"type":"user","message":{"role":"user","content":"x"},"n":1e999}',
            "a number on stdin is not finite: 1e999",
        ),
        (b'{"type":"user","message":{"role":"user","content":"x"},"priority":-Infinity}', "is not finite: -Infinity"),
        (b'{"type":"user","message":{"role":"user","content":NaN}}', "is not finite: NaN"),
        (b'{"type":"control_request","request":{"subtype":"set_model","model":NaN}}', "is not finite: NaN"),
    ],
)
async def test_a_bad_line_ends_the_input_with_its_reason(line: bytes, part: str) -> None:
    with pytest.raises(BadInput) as caught:
        await messages(line + b"\n")
    assert part in caught.value.what and caught.value.exit_name == "AGENT_FAILED"
