"""What a collector gets of sessions over OTLP, by the semantic conventions, and what it never gets."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import pytest
from opentelemetry.semconv._incubating.attributes import session_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from tests.support.acp_client import acp, chosen
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY
from tests.support.model.model_script import uses
from tests.support.network.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.support.network.relay import relay
from tests.support.person.laptop import STREAM, Here

import ccb

pytestmark = pytest.mark.visited

PUBLISHED = {
    value
    for module in (gen_ai, session_attributes, error_attributes, gen_ai_metrics)
    for name, value in vars(module).items()
    if name.isupper()
}
"""The names of attributes and metrics in the conventions."""


@pytest.fixture
async def collector() -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        yield receiver


def check_names(collector: OtlpReceiver) -> None:
    names = {name for span in collector.spans for name in span.attributes}
    names |= {name for metric, pairs in collector.points for name in (metric, *(each for each, _ in pairs))}
    assert {name for name in names if not name.startswith("ccb.")} <= PUBLISHED


async def test_a_turn_is_a_trace_with_its_calls_and_without_their_content(host: Host, collector: OtlpReceiver) -> None:
    host.laptop.settings(otel={"endpoint": collector.url + "/"})
    host.model.add(uses("Bash", command="echo hidden; exit 3"), {"text": "hidden"})
    words = host.ssh("-p", "hidden", "--allowedTools", "Bash(echo *)", "Bash(exit *)")
    done = await host.laptop.run(words, OTEL_SERVICE_NAME="agents")
    assert (done.code, done.stdout, done.stderr) == (0, "hidden\n", "")
    (turn,), (tool,), calls = map(collector.named, ("invoke_agent ccb", "execute_tool Bash", "chat claude-sonnet-4-5"))
    assert len(collector.spans) == 4 and len(calls) == 2 and not turn.parent
    assert {(span.trace, span.parent) for span in (tool, *calls)} == {(turn.trace, turn.id)}
    assert turn.seconds > tool.seconds > 0 and (turn.kind, tool.kind, calls[0].kind) == (
        "INTERNAL",
        "INTERNAL",
        "CLIENT",
    )
    session = turn.attributes["gen_ai.conversation.id"]
    assert all(span.attributes["session.id"] == session and span.attributes["ccb.host"] == host.login for span in calls)
    told = tool.attributes
    assert (told["gen_ai.operation.name"], told["gen_ai.tool.name"], told["gen_ai.tool.call.id"]) == (
        "execute_tool", "Bash", "toolu_0001_00",
    )  # fmt: skip
    assert (told["ccb.decision"], told["ccb.decision.source"], told["error.type"]) == ("accept", "config", "tool_error")
    assert tool.failed and not turn.failed
    asked = [call.attributes for call in calls]
    assert {(each["gen_ai.operation.name"], each["gen_ai.provider.name"]) for each in asked} == {("chat", "anthropic")}
    assert all(int(each["gen_ai.usage.output_tokens"]) > 0 for each in asked)
    cost = sum(float(each["ccb.cost_usd"]) for each in asked)
    assert collector.total("ccb.cost") == pytest.approx(cost) and cost > 0
    assert collector.total("ccb.sessions") == 1
    assert turn.resource["service.name"] == "agents"
    check_names(collector)
    assert not any(each in collector.bodies for each in (b"hidden", API_KEY.encode(), str(host.home).encode()))


async def test_an_approval_in_the_repl_is_counted_and_content_goes_along_if_wanted_without_secrets(
    here: Here, collector: OtlpReceiver
) -> None:
    here.laptop.settings(otel={"endpoint": collector.url, "content": True})
    here.laptop.env["DEPLOY_TOKEN"] = "a-token-of-the-laptop"
    here.model.add(uses("Bash", command="touch a-token-of-the-laptop"), {"text": "The answer."})
    async with here.on_terminal() as running:
        await running.shows("F1 or /help")
        running.type("The prompt.\r")
        await running.shows("Yes")
        await running.answer("1")
        await running.shows("The answer.")
        running.type("\x04")
        assert await running.ended() == 0
    (turn,), (tool,) = collector.named("invoke_agent"), collector.named("execute_tool")
    assert "The prompt." in str(turn.attributes["gen_ai.input.messages"])
    assert "The answer." in str(turn.attributes["gen_ai.output.messages"])
    assert "touch [redacted]" in str(tool.attributes["gen_ai.tool.call.arguments"])
    assert (tool.attributes["ccb.decision"], tool.attributes["ccb.decision.source"]) == ("accept", "user_temporary")
    assert float(tool.attributes["ccb.tool.wait_s"]) > tool.seconds
    assert collector.points["ccb.approvals", (("ccb.decision", "accept"),)] == 1
    check_names(collector)
    assert b"a-token" not in collector.bodies


async def test_an_editor_that_rejects_a_call(host: Host, collector: OtlpReceiver) -> None:
    host.put("app")
    host.laptop.settings(otel={"endpoint": collector.url})
    host.model.add(uses("Bash", command="touch made"), {"text": "Not done."})
    folder = host.laptop.home / "work"
    folder.mkdir()
    async with acp(host.laptop, [f"{host.login}:~/app", *host.server.client_options()]) as editor:
        editor.answers["session/request_permission"] = lambda params: chosen("reject")
        await editor.initialize()
        await editor.prompt(await editor.new(folder), "go")
    (tool,) = collector.named("execute_tool")
    assert (tool.attributes["ccb.decision"], tool.attributes["error.type"]) == ("reject", "rejected")
    assert collector.points["ccb.approvals", (("ccb.decision", "reject"),)] == 1


async def test_a_lost_connection_is_counted_and_the_call_is_one_span(host: Host, collector: OtlpReceiver) -> None:
    host.laptop.settings(otel={"endpoint": collector.url})
    host.model.add({"text": "An answer that is cut.", "stall_after": 4})
    async with relay(host.server.port) as between:
        words = host.ssh("-p", "hi", *STREAM, "--include-partial-messages", port=between.port)
        async with host.laptop.start(words, piped=False) as running:
            await running.until("stream_event")
            between.cut()
            await until(lambda: between.connections == 2)
            host.model.release()
            assert (await running.done()).code == 0
    assert [span.name for span in collector.spans] == ["chat claude-sonnet-4-5", "invoke_agent ccb"]
    assert not any(span.failed for span in collector.spans)
    assert collector.total("ccb.reconnects") == 1


async def test_a_program_exports_by_the_standard_variables(
    host: Host, collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**host.laptop.env, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}.items():
        monkeypatch.setenv(name, value)
    host.model.add({"text": "Hello."})
    known = [f"UserKnownHostsFile={host.server.known_hosts}"]
    there = ccb.connect(f"{host.login}:~", port=host.server.port, identity_file=host.server.identity, ssh_options=known)
    async with there, await there.session() as session:
        assert (await session.run("hi")).text == "Hello."
    assert [span.name for span in collector.spans] == ["chat claude-sonnet-4-5", "invoke_agent ccb"]


async def test_headers_of_the_variable_go_along_and_a_refusal_is_said(here: Here, collector: OtlpReceiver) -> None:
    here.laptop.settings(otel={"endpoint": collector.url})
    here.model.add({"text": "done"}, {"text": "done"})
    here.laptop.env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=key-of-the-collector"
    assert (await here.run("-p", "hi")).stderr == ""
    assert {each.get("x-key") for each in collector.headers} == {"key-of-the-collector"} and collector.spans
    collector.status = 401
    refused = await here.run("-p", "hi")
    assert (refused.code, refused.stdout) == (0, "done\n") and "it answers 401" in refused.stderr


NOT_THERE = {"endpoint": "http://127.0.0.1:1"}


async def test_a_dead_collector_is_said_once_and_the_run_goes_on(here: Here) -> None:
    here.laptop.settings(otel=NOT_THERE)
    here.model.add(uses("Bash", command="echo"), {"text": "done"})
    done = await here.run("-p", "hi", "--allowedTools", "Bash(echo)")
    assert (done.code, done.stdout) == (0, "done\n")
    says = "Telemetry does not reach 127.0.0.1:1: no answer (ConnectionError)."
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1", "No telemetry is sent: max_export_batch_size"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x", "No telemetry is sent: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT must be"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/none", "Telemetry does not reach localhost:1: no answer (OSError)."),
    ],
)
async def test_a_variable_that_makes_no_sense_is_said_and_the_run_goes_on(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv("CCB_TESTS_FRESH", "1")  # some are read when the SDK is imported
    here.laptop.settings(otel={"endpoint": "https://localhost:1"})
    here.model.add({"text": "done"})
    here.laptop.env[name] = value
    done = await here.run("-p", "hi")
    assert (done.code, done.stdout) == (0, "done\n")
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("otel", "tried", "says"),
    [({}, False, ""), (NOT_THERE, True, "No telemetry is sent: it needs more packages (pip install 'ccb[otel]').")],
)
async def test_nothing_is_imported_without_a_collector_and_a_missing_package_is_said(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, otel: dict[str, object], tried: bool, says: str
) -> None:
    monkeypatch.setenv("CCB_TESTS_FRESH", "1")  # what it starts anew has imported nothing yet
    (tmp_path / "opentelemetry").mkdir()
    program = f"import pathlib; pathlib.Path({str(tmp_path / 'tried')!r}).touch(); raise ImportError"
    (tmp_path / "opentelemetry/__init__.py").write_text(program)
    here.laptop.settings(otel=otel)
    here.model.add({"text": "done"})
    path = f"{tmp_path}{os.pathsep}{here.laptop.env['PYTHONPATH']}"
    done = await here.run("-p", "hi", PYTHONPATH=path)
    assert (done.code, done.stdout) == (0, "done\n") and says in done.stderr
    assert (tmp_path / "tried").exists() == tried
