"""What programs that drive a run are told around the messages of a session."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from ccb.local.headless.output_formats import MAX_LINE, limited_line
from ccb.local.headless.stderr_reports import RetryReports
from ccb.local.headless.stdin_input import BadInput, EarlyInput
from ccb.local.headless.turn_results import TurnReports, state_flags
from ccb.local.session.session_client import Json
from ccb.tunnel.wire.messages import SystemMessage, parse_message

INITIALIZE = {"type": "control_request", "request_id": "r1", "request": {"subtype": "initialize"}}


class Printed:
    """Keeps what is printed."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.came = asyncio.Event()

    async def message(self, body: Json) -> None:
        self.bodies.append(body)
        self.came.set()

    async def progress(self, body: Json) -> None:
        raise AssertionError("not progress")

    async def result(self, body: Json) -> None:
        raise AssertionError("not a result")

    async def finish(self) -> None:
        raise AssertionError("not the end")


def short(body: Json) -> str:
    return f"{body['state']} {body['command_uuid']}" if "command_uuid" in body else str(body["state"])


async def test_every_running_is_followed_by_an_idle_after_the_last_result() -> None:
    output = Printed()
    flags = state_flags({"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"})
    assert flags == {"sdk_host_only": True} and state_flags({}) is None
    assert state_flags({"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}) == {}
    reports = TurnReports(output, flags, lifecycle=True)
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
        *("queued A", "running", "started A", "requires_action", "running", "completed A", "idle"),
    ]
    assert all(each["session_id"] == "s" and each["uuid"] for each in output.bodies)
    assert output.bodies[1]["sdk_host_only"] is True


async def test_a_client_that_asks_for_no_reports_gets_none() -> None:
    output = Printed()
    reports = TurnReports(output, None, lifecycle=False)
    await reports.queued("i1", "A")
    await reports.turn_began()
    await reports.taken(["i1"])
    await reports.turn_ended()
    assert output.bodies == []


async def test_the_first_request_is_answered_while_the_session_is_still_being_connected() -> None:
    output = Printed()
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb", buffering=0) as client:
        async with EarlyInput(reader, output.message, patience_s=0.01) as stdin:
            client.write(json.dumps(INITIALIZE).encode() + b"\n")
            async with asyncio.timeout(60):
                await output.came.wait()
            assert stdin.answered_early("r1") and not stdin.answered_early("r2")
            (answer,) = output.bodies
            assert answer["response"]["subtype"] == "success" and answer["response"]["response"]["models"]
            assert answer["response"]["response"]["hook_on_failure_supported"]
            client.write(b"nonsense\n")
            messages = stdin.messages()
            assert await anext(messages) == INITIALIZE  # the session gets it all the same
            with pytest.raises(BadInput):
                await anext(messages)


async def test_a_session_that_is_there_in_time_answers_itself() -> None:
    output = Printed()
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "wb", buffering=0) as client:
        async with EarlyInput(reader, output.message, patience_s=30) as stdin:
            client.write(json.dumps(INITIALIZE).encode() + b"\n")
            stdin.connected()
            assert await anext(stdin.messages()) == INITIALIZE
            client.close()
            assert [each async for each in stdin.messages()] == []
        assert output.bodies == [] and not stdin.answered_early("r1")


def test_no_line_is_longer_than_the_official_clients_read() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 2_000_000}}
    for body in ({"text": "é" * 3_000_000}, {"content": [image, "short"]}, {"many": ["y" * 30_000] * 200}):
        line = limited_line(body)
        assert len(line) <= MAX_LINE and json.loads(line) != body
    assert "left out" in limited_line({"content": [image]}) and "short" in limited_line({"content": [image, "short"]})
    assert json.loads(limited_line({"text": "x" * 900_000})) == {"text": "x" * 900_000}


def test_what_the_worker_warns_of_is_on_stderr_where_no_stream_shows_it(capfd: pytest.CaptureFixture[str]) -> None:
    warning = {
        "type": "system",
        "subtype": "informational",
        "content": "There is no agent 'x'\x1b[2J",
        "level": "warning",
    }
    line = parse_message(warning)
    assert isinstance(line, SystemMessage)
    RetryReports(quiet=True).system(line)
    assert capfd.readouterr().err == ""
    RetryReports(quiet=False).system(line)
    said = capfd.readouterr().err
    assert said.startswith("ccb: the host warns: “There is no agent 'x'") and "\x1b" not in said
    told = parse_message({**warning, "level": "info"})
    assert isinstance(told, SystemMessage)
    RetryReports(quiet=False).system(told)
    assert capfd.readouterr().err == ""
