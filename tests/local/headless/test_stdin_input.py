"""stdin of a headless run, on real pipes and files.

- What a headless run does for SDK clients by itself: answers, the copy of the transcript, fields of the first request.
- What programs that drive a run are told around the messages of a session.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import RawIOBase
from pathlib import Path

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.headless.headless_run import with_boot_fields
from ccb.local.headless.output_formats import MAX_LINE, HeadlessOutput, RetryReports, TranscriptMirror, limited_line
from ccb.local.headless.own_answers import OwnAnswers
from ccb.local.headless.stdin_input import BadInput, EarlyInput, is_piped, read_messages, read_prompt
from ccb.local.headless.turn_results import TurnReports, state_flags
from ccb.local.session.session_client import Json
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.messages import ControlRequest, SystemMessage, parse_message


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
@pytest.mark.parametrize(
    ("given", "early", "whole"), [(None, b"", "late"), ("p", b"early, ", "p\n\nearly, late"), ("p", b"", "p")]
)
async def test_an_open_pipe_is_waited_for_without_a_prompt_or_once_something_came_and_the_wait_is_told(
    given: str | None, early: bytes, whole: str
) -> None:
    reader, writer = os.pipe()
    os.write(writer, early)
    said: asyncio.Queue[str] = asyncio.Queue()
    reading = asyncio.create_task(read_prompt(given, reader, say=said.put_nowait))
    told = await asyncio.wait_for(said.get(), 60)
    if "late" in whole:
        assert "waiting for the end" in told and not reading.done()
        os.write(writer, b"late")
    else:
        assert "going on without it" in told
    os.close(writer)
    assert await asyncio.wait_for(reading, 60) == whole
    os.close(reader)
    assert said.empty()


USER = {"type": "user", "message": {"role": "user", "content": "hi"}}


async def test_messages_of_any_size_are_cut_at_newlines_only() -> None:
    text = {**USER, "message": {"role": "user", "content": "a\u2028b" * 100_000}}
    data = (json.dumps(text, ensure_ascii=False) + "\n" + json.dumps(USER)).encode()
    assert await messages(data) == [text, USER]


async def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    assert await messages(b"\xef\xbb\xbf" + json.dumps(USER).encode()) == [USER]


async def test_what_the_protocol_ignores_is_dropped() -> None:
    lines = [b"", b"   ", b"[1,2]", b"3", b"{}", b'{"type":"keep_alive"}', b'{"type":"news"}']
    lines.append(json.dumps(USER).encode())
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
        (b'{"type":"user","message":{"role":"user","content":"x"},"n":1e999}', "1e999 is not a finite number"),
        (b'{"type":"control_request","request":{"subtype":"set_model","model":NaN}}', "NaN is not a finite number"),
    ],
)
async def test_a_bad_line_ends_the_input_with_its_reason(line: bytes, part: str) -> None:
    with pytest.raises(BadInput) as caught:
        await messages(line + b"\n")
    assert part in f"{caught.value.what}\n{caught.value.evidence}" and caught.value.exit_name == "AGENT_FAILED"


class Printed(HeadlessOutput):
    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.came = asyncio.Event()

    async def message(self, body: Json) -> None:
        self.bodies.append(body)
        self.came.set()

    async def progress(self, body: Json) -> None:
        raise AssertionError(body)

    result = progress


def asked(subtype: str, **fields: object) -> ControlRequest:
    body = {"type": "control_request", "request_id": "r1", "request": {"subtype": subtype, **fields}}
    line = parse_message(body)
    assert isinstance(line, ControlRequest)
    return line


def test_what_a_run_knows_itself_is_answered_without_the_host() -> None:
    own = OwnAnswers()
    assert own.payload(asked("initialize", forwardSubagentText=True)) is None and own.forwards_text
    own.confirmed = {"mcp_servers_applied": True}
    answer = {"subtype": "success", "request_id": "r1", "response": {"models": [{"value": "opus"}], "pid": 1}}
    body = {"type": "control_response", "response": answer}
    shown = own.heard(parse_message(body), body)
    assert shown["response"]["response"] == {"models": [{"value": "opus"}], "pid": 1, "mcp_servers_applied": True}
    result = {"type": "result", "total_cost_usd": 0.5, "modelUsage": {"opus": {"costUSD": 0.5}}, "duration_api_ms": 7}
    for _ in range(2):
        assert own.heard(parse_message(result), result) == result
    assert own.payload(asked("list_models")) == {"models": [{"value": "opus"}]}
    version = own.payload(asked("get_binary_version"))
    assert version is not None and version["version"].startswith("2.")
    assert own.payload(asked("get_session_cost")) == {"text": "Total cost: $0.5000"}
    session = (own.payload(asked("get_usage")) or {})["session"]
    assert (session["total_cost_usd"], session["total_api_duration_ms"]) == (0.5, 14)
    assert own.payload(asked("end_session")) == {} and own.payload(asked("interrupt")) is None


def test_the_usage_counts_the_lines_that_edits_have_added_and_removed() -> None:
    own = OwnAnswers()
    hunk = {"oldStart": 1, "newStart": 1, "lines": [" same", "-old", "+new", "+more"]}
    results: list[object] = [
        {"type": "create", "content": "one\ntwo\n", "structuredPatch": []},
        {"type": "update", "content": "new", "structuredPatch": [hunk]},
        {"structuredPatch": [hunk, "no hunk", {"lines": 7}]},
        {"stdout": "+no edit"},
        "text",
    ]
    for each in results:
        body: Json = {"type": "user", "message": {"role": "user", "content": []}, "tool_use_result": each}
        assert own.heard(parse_message(body), body) == body
    session = (own.payload(asked("get_usage")) or {})["session"]
    assert (session["total_lines_added"], session["total_lines_removed"]) == (6, 2)


async def test_a_transcript_is_copied_and_goes_on_behind_the_one_that_the_client_has(tmp_path: Path) -> None:
    shown = Printed()
    mirror = TranscriptMirror(shown, {"CLAUDE_CONFIG_DIR": str(tmp_path)}, Path("/srv/app.d"))
    file = tmp_path / "projects" / "-srv-app-d" / "s1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"uuid": "u0", "text": "a\u2028b\u0085c"}\n', encoding="utf-8")
    mirror.begin("s1")
    mirror.sent("i1", {"type": "user", "message": {"role": "user", "content": "hi"}})
    await mirror.taken("i1")
    await mirror.taken("i2")
    for body in (
        {"type": "assistant", "uuid": "u2", "message": {"content": []}, "timestamp": "2026-01-01T00:00:00.000Z"},
        {"type": "assistant", "uuid": "u3", "message": {"content": []}, "parent_tool_use_id": "t1"},
        {"type": "user", "uuid": "u4", "message": {"content": "hi"}, "isReplay": True},
        {"type": "system", "subtype": "init"},
    ):
        await mirror.message(parse_message(body), body)
    assert {each["filePath"] for each in shown.bodies} == {str(file)}
    entries = [entry for each in shown.bodies for entry in each["entries"]]
    named = [(each["type"], each["uuid"], each["parentUuid"]) for each in entries]
    assert named == [("user", "i1", "u0"), ("assistant", "u2", "i1")]
    assert all(each["sessionId"] == "s1" and each["timestamp"].endswith("Z") for each in entries)


def test_the_lines_of_a_sub_agent_name_it_and_its_task() -> None:
    own = OwnAnswers()

    def named(body: Json) -> Json:
        return own.heard(parse_message(body), body)

    task = {"type": "system", "subtype": "task_started", "task_id": "t1", "tool_use_id": "t1"}
    named({**task, "subagent_type": "Explore", "description": "Find the parser"})
    line = named({"type": "assistant", "message": {"content": []}, "parent_tool_use_id": "t1"})
    assert (line["agent_id"], line["subagent_type"]) == ("t1", "Explore")
    assert line["task_description"] == "Find the parser"
    assert "agent_id" not in named({"type": "assistant", "message": {"content": []}, "parent_tool_use_id": None})


def test_the_first_request_may_bring_what_others_write_into_the_command_line() -> None:
    streams = ["--input-format=stream-json", "--output-format=stream-json", "--verbose", "--await-initialize"]
    arguments = parse_arguments([*streams, "--disallowedTools=Bash"])
    request: Json = {"mcpServers": {"a": {"command": "x"}}, "settings": {"k": 1}, "disallowedTools": ["Read"]}
    request["plugins"] = [{"type": "local", "path": "/p"}]
    given, confirmed = with_boot_fields(arguments, request)
    assert json.loads(given.sdk.mcp_config[0]) == {"mcpServers": {"a": {"command": "x"}}}
    assert given.sdk.settings == '{"k": 1}' and given.permissions.disallowed_tools == ("Bash", "Read")
    names = ("mcp_servers", "settings", "disallowed_tools", "plugins")
    assert confirmed == {f"{name}_applied": True for name in names}
    assert given.sdk.plugin_dirs == ("/p",)
    assert with_boot_fields(arguments, {}) == (arguments, {})


INITIALIZE = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}


@asynccontextmanager
async def early_input(output: Printed, patience_s: float = 30) -> AsyncIterator[tuple[EarlyInput, RawIOBase]]:
    """The stdin of a run whose client has sent its first request."""
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb", buffering=0) as client:
        async with EarlyInput(reader, output.message, patience_s=patience_s) as stdin:
            client.write(json.dumps(INITIALIZE).encode() + b"\n")
            yield stdin, client


def short(body: Json) -> str:
    return f"{body['state']} {body['command_uuid']}" if "command_uuid" in body else str(body["state"])


async def test_every_running_is_followed_by_an_idle_after_the_last_result() -> None:
    output = Printed()
    flags = state_flags({"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"})
    assert flags == {"sdk_host_only": True} and state_flags({}) is None
    assert state_flags({"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}) == {}
    reports = TurnReports(output, flags, True)
    reports.session_id = "s"
    await reports.queued("i1", "A")
    await reports.queued("i1", "A")
    await reports.queued("i2", "")
    await reports.turn_began()
    await reports.taken(["i1", "i2"])
    await reports.waits(waits=True)
    await reports.waits(waits=False)
    await reports.turn_ended(more=True)
    await reports.turn_began()
    await reports.turn_ended()
    await reports.waits(waits=False)
    assert [short(each) for each in output.bodies] == [
        *("queued A", "running", "started A", "requires_action", "running", "completed A", "idle")
    ]
    assert all(each["session_id"] == "s" and each["uuid"] for each in output.bodies)
    assert output.bodies[1]["sdk_host_only"] is True


async def test_the_first_request_is_answered_while_the_session_is_still_being_connected() -> None:
    output = Printed()
    async with early_input(output, patience_s=0.01) as (stdin, client), asyncio.timeout(60):
        await output.came.wait()
        assert stdin.answered == {"r1"}
        (answer,) = output.bodies
        assert answer["response"]["subtype"] == "success" and answer["response"]["response"]["models"]
        assert answer["response"]["response"]["hook_on_failure_supported"]
        client.write(b"nonsense\n")
        messages = stdin.messages()
        assert await anext(messages) == INITIALIZE  # the session gets it all the same
        with pytest.raises(BadInput):
            await anext(messages)


async def test_a_session_that_is_there_in_time_answers_itself_and_the_request_can_be_looked_at_before() -> None:
    output = Printed()
    async with early_input(output) as (stdin, client):
        assert await stdin.first_request() == INITIALIZE["request"]
        stdin.connected.set()
        client.close()
        assert [each async for each in stdin.messages()] == [INITIALIZE]
    assert output.bodies == [] and not stdin.answered


def test_no_line_is_longer_than_the_official_clients_read() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 2_000_000}}
    for body in ({"text": "é" * 3_000_000}, {"content": [image, "short"]}, {"many": ["y" * 30_000] * 200}):
        line = limited_line(body)
        assert len(line) <= MAX_LINE and json.loads(line) != body
    assert "left out" in limited_line({"content": [image]}) and "short" in limited_line({"content": [image, "short"]})
    assert json.loads(limited_line({"text": "x" * 900_000})) == {"text": "x" * 900_000}


def test_what_the_worker_warns_of_is_on_stderr_where_no_stream_shows_it(capfd: pytest.CaptureFixture[str]) -> None:
    body = {"type": "system", "subtype": "informational", "content": "There is no agent 'x'\x1b[2J"}
    for quiet, level in ((True, "warning"), (False, "info"), (False, "warning")):
        assert capfd.readouterr().err == ""
        line = parse_message({**body, "level": level})
        assert isinstance(line, SystemMessage)
        RetryReports(quiet=quiet).system(line)
    said = capfd.readouterr().err
    assert said.startswith("ccb: the host warns: “There is no agent 'x'") and "\x1b" not in said
