"""The Python API over a real OpenSSH server, with a scripted model."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay

import ccb

pytestmark = pytest.mark.visited
Connect = Callable[..., ccb.Host]
LONG = {"text": "A long answer that stands still in the middle.", "stall_after": 4}


@pytest.fixture
def connect(host: Host, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """`ccb.connect` to the host of this test, as a program on the laptop calls it."""
    for name, value in host.laptop.env.items():
        monkeypatch.setenv(name, value)

    def connected(path: str = "~", port: int | None = None, **options: Any) -> ccb.Host:
        way: dict[str, Any] = {
            "port": port or host.server.port,
            "identity_file": host.server.identity,
            "ssh_options": [f"UserKnownHostsFile={host.server.trust(port or host.server.port)}", "IdentitiesOnly=yes"],
        }
        return ccb.connect(f"{host.login}:{path}", **{**way, **options})

    return connected


@pytest.fixture(autouse=True)
async def limit() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def test_a_prompt_streams_typed_events_and_ends_with_its_answer(host: Host, connect: Connect) -> None:
    host.put("notes.txt", b"forty-two\n")
    host.model.add(
        uses("Read", file_path="notes.txt"), {"text": "It says forty-two.", "when": {"has_tool_result": True}}
    )
    async with connect() as there, await there.session() as session:
        prompt = session.prompt("What do the notes say?")
        events = [event async for event in prompt]
    streamed = "".join(event.text for event in events if isinstance(event, ccb.Text))
    call = next(event for event in events if isinstance(event, ccb.ToolCall))
    result = next(event for event in events if isinstance(event, ccb.ToolResult))
    answer = events[-1]
    assert streamed == "It says forty-two."
    assert (call.name, call.input, result.id, result.is_error) == ("Read", {"file_path": "notes.txt"}, call.id, False)
    assert "forty-two" in result.text and call.raw["type"] == "assistant"
    assert answer is prompt.result and prompt.result.ok and prompt.result.text == streamed
    assert prompt.result.session_id == session.id and prompt.result.cost == prompt.result.total_cost > 0
    await until(lambda: not processes_of(host.user))


class Port(BaseModel):
    name: str
    port: int


class Ports(BaseModel):
    ports: list[Port]


async def test_an_answer_has_the_type_that_was_asked_for_and_the_next_one_need_not(
    host: Host, connect: Connect
) -> None:
    given = {"ports": [{"name": "web", "port": 80}]}
    host.model.add(uses("StructuredOutput", **given), {"text": "Plain."})
    async with connect() as there, await there.session() as session:
        answer = await session.run("Which ports?", schema=Ports)
        assert answer.data == Ports(ports=[Port(name="web", port=80)])
        plain = await session.run("And now?")
    assert (plain.text, plain.data) == ("Plain.", None)


async def test_early_leaving_ends_the_turn_and_the_session_goes_on(host: Host, connect: Connect) -> None:
    host.model.add(LONG, {"text": "Second."})
    async with connect() as there, await there.session() as session:
        async for event in session.prompt("go"):
            if isinstance(event, ccb.Text):
                break
        assert (await session.run("again")).text == "Second."


@pytest.mark.parametrize("how", ["closed by another task", "cancelled", "interrupted"])
async def test_a_turn_that_ends_from_outside(host: Host, connect: Connect, how: str) -> None:
    host.model.add(LONG, {"text": "Second."})
    async with connect() as there, await there.session() as session:
        prompt, streams = session.prompt("go"), asyncio.Event()

        async def read() -> None:
            async for event in prompt:
                if isinstance(event, ccb.Text):
                    streams.set()

        reading = asyncio.create_task(read())
        await streams.wait()
        if how == "cancelled":
            reading.cancel()
        elif how == "interrupted":
            await prompt.interrupt()
        else:
            await prompt.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        if how == "interrupted":
            assert prompt.result is not None and not prompt.result.ok
        assert (await session.run("again")).text == "Second."


async def test_a_cut_in_the_middle_is_seen_and_costs_nothing(host: Host, connect: Connect) -> None:
    host.model.add(LONG)
    async with relay(host.server.port) as between, connect(port=between.port) as there:
        events = []
        session = await there.session()
        async for event in session.prompt("go"):
            events.append(event)
            if isinstance(event, ccb.Text) and between.connections == 1:
                between.cut()
            if isinstance(event, ccb.Connection) and event.state == "connected":
                host.model.release()
    assert "".join(each.text for each in events if isinstance(each, ccb.Text)) == LONG["text"]
    assert isinstance(events[-1], ccb.Answer) and events[-1].text == LONG["text"]
    assert [each.state for each in events if isinstance(each, ccb.Connection)] == ["reconnecting", "connected"]
