"""The spans and metrics of a session whose host says what the test wants, and the end of an export."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace

import pytest
from aiohttp import web
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.hosts.scripted_host import ScriptedHost, session_on
from tests.support.network.http_server import serving
from tests.support.network.link_peer import Peer
from tests.support.network.otlp_receiver import otlp_receiver
from tests.support.network.silent_port import silent_port

from ccb.local.config.settings import MANAGED, OtelSettings, Settings, SettingsLayer
from ccb.local.session.dialing import AttachOptions
from ccb.local.telemetry.otlp_export import exporting
from ccb.local.telemetry.session_telemetry import SessionTelemetry
from ccb.tunnel.wire.frames import Bye, Json, Snapshot


@dataclass
class Followed:
    peer: Peer
    exporter: InMemorySpanExporter
    reading: asyncio.Task[None]

    async def ended(self) -> Mapping[str, ReadableSpan]:
        """The spans by their names, after the host has said goodbye."""
        await self.peer.send(Bye())
        await self.reading
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    exporter = InMemorySpanExporter()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = SessionTelemetry(tracers.get_tracer("t"), meters.get_meter("t"), {}, None, lambda: None)
    host = ScriptedHost()
    host.greeting = replace(host.greeting, seq=0)
    async with session_on(host, AttachOptions(patience=0)) as (session, peer):

        async def read() -> None:
            async for _ in session.events():
                pass

        telemetry.follow(session, "host")
        yield Followed(peer, exporter, asyncio.create_task(read()))
        telemetry.close()


def wants(identity: str, name: str, parent: str | None = None) -> Json:
    block = {"type": "tool_use", "id": identity, "name": name, "input": {}}
    return {"type": "assistant", "message": {"id": "m", "content": [block]}, "parent_tool_use_id": parent}


def result(identity: str, parent: str | None = None, **more: object) -> Json:
    block = {"type": "tool_result", "tool_use_id": identity, "content": "x"}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": parent, **more}


async def test_calls_of_a_sub_agent_are_below_the_call_that_started_it(followed: Followed) -> None:
    peer = followed.peer
    await peer.say({}, kind="turn_start")
    await peer.say(wants("t1", "Task"))
    await peer.say({"tool_use_id": "t1", "name": "Task"}, kind="tool_start")
    await peer.say(wants("t2", "Read", "t1"))
    await peer.say({"tool_use_id": "t2", "name": "Read", "agent_id": "t1"}, kind="tool_start")
    await peer.say(result("t2", "t1"))
    await peer.say(result("t1"))
    await peer.say({}, kind="turn_end")
    spans = await followed.ended()
    turn, task, read = (spans[name] for name in ("invoke_agent ccb", "execute_tool Task", "execute_tool Read"))
    assert read.parent is not None and task.parent is not None and turn.parent is None
    assert (read.parent.span_id, task.parent.span_id) == (task.context.span_id, turn.context.span_id)


async def test_what_a_hostile_host_says_is_short_and_can_be_encoded(followed: Followed) -> None:
    peer, name = followed.peer, "\ud800\x1b[31m" + "x" * 10_000
    await peer.say({}, kind="turn_start")
    await peer.say(wants("t1", name))
    meta = [{"id": "t1", "permission_decision": {"decision": name, "source": ["x"]}}, "x", {"id": {}}]
    await peer.say(result("t1", tool_result_meta=meta))
    await peer.say({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": ["t2"]}]}})
    await peer.say({"type": "result", "subtype": name, "is_error": True})
    (tool, turn) = (await followed.ended()).values()
    for span in (tool, turn):
        texts = [span.name, *(value for value in (span.attributes or {}).values() if isinstance(value, str))]
        assert all(len(text.encode()) < 200 and "\x1b" not in text for text in texts)
    assert turn.attributes is not None and turn.attributes["error.type"] == "error"


async def test_what_is_not_seen_to_its_end_is_marked(followed: Followed) -> None:
    peer = followed.peer
    await peer.say({}, kind="turn_start")
    await peer.say({"tool_use_id": "t1", "name": "Bash"}, kind="tool_start")
    await peer.send(Snapshot(1, 9, {}))
    spans = await followed.ended()
    assert [(span.attributes or {}).get("error.type") for span in spans.values()] == ["cut", "cut"]


async def test_leaving_waits_two_seconds_for_a_collector_that_says_nothing() -> None:
    with silent_port() as port:
        settings = Settings(otel=OtelSettings(endpoint=f"http://127.0.0.1:{port}"))
        async with session_on(ScriptedHost(), AttachOptions(patience=0)) as (session, _):
            async with exporting(settings, {}, print) as telemetry:
                telemetry.follow(session, "host")
                left = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - left < 6  # the SDK alone tries for more than ten


async def test_no_variable_switches_off_what_the_owner_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_SAMPLER": "always_off"}
    for name, value in off.items():
        monkeypatch.setenv(name, value)
    host = ScriptedHost()
    host.greeting = replace(host.greeting, seq=0)
    async with otlp_receiver() as receiver:
        layer = SettingsLayer(MANAGED, "/etc/ccb/policy.json", "{}", {"otel": {}})
        settings = Settings(otel=OtelSettings(endpoint=receiver.url), layers=(layer,))
        async with (
            session_on(host, AttachOptions(patience=0)) as (session, peer),
            exporting(settings, os.environ, print) as telemetry,
        ):
            telemetry.follow(session, "host")
            await peer.say({}, kind="turn_start")
            await peer.send(Bye())
            async for _ in session.events():
                pass
    assert receiver.named("invoke_agent") and receiver.total("ccb.sessions") == 1


async def test_an_answer_without_end_is_not_read() -> None:
    left = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 16))
        finally:
            left.set()

    async with (
        serving(answer) as url,
        session_on(ScriptedHost(), AttachOptions(patience=0)) as (session, _),
        exporting(Settings(otel=OtelSettings(endpoint=url)), {}, print) as telemetry,
    ):
        telemetry.follow(session, "host")
        await asyncio.wait_for(left.wait(), 10)


async def test_a_redirect_is_not_followed_but_said() -> None:
    said: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.path == "/v1/metrics"
        raise web.HTTPTemporaryRedirect("/elsewhere")

    async with serving(answer) as url, session_on(ScriptedHost(), AttachOptions(patience=0)) as (session, _):
        async with exporting(Settings(otel=OtelSettings(endpoint=url)), {}, said.put_nowait) as telemetry:
            telemetry.follow(session, "host")
        assert "it answers 307" in await asyncio.wait_for(said.get(), 10)


def test_an_owner_s_policy_outranks_the_variables() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318", "OTEL_SDK_DISABLED": "true"}
    otel = OtelSettings(endpoint="http://owner:4318/")
    policy = Settings(otel=otel, layers=(SettingsLayer(MANAGED, "/etc/ccb/policy.json", "{}", {"otel": {}}),))
    assert policy.telemetry_receiver(environ) == "http://owner:4318"
    assert Settings(otel=otel).telemetry_receiver(environ) is None
    assert Settings(otel=otel).telemetry_receiver({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://other:4318"}) == ""
