"""The audit: what a session asked, wanted and was allowed, and whether its results belong to calls of a model."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.proxy.proxy_client import answer_to, router_to
from tests.support.run_words import run_words

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.commands.usage import audit_lines
from ccb.local.ledger import audit as module
from ccb.local.ledger.audit import SessionAudit, text_digest
from ccb.local.ledger.call_ledger import AuditEntry, CallLedger, CallPlace, ledger_path, open_ledger
from ccb.tunnel.providers.foreign_api import CHAT, GEMINI, RESPONSES, ForeignApi
from ccb.tunnel.proxy.answer_reader import AnswerReader, Auditor, WantedCall
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.metering import CallMeter
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, parse_message
from ccb.tunnel.wire.model_facts import ModelTable

Json = dict[str, Any]
PLACE = CallPlace("5e55-1", "gpu", "/srv")


def request_with(*results: str, text: str = "look") -> bytes:
    """A request whose history holds a tool call and its result for each id, as the API wants it."""
    messages: list[dict[str, object]] = [{"role": "user", "content": text}]
    for each in results:
        call = {"type": "tool_use", "id": each, "name": "Bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": each, "content": "done"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return json.dumps({"model": "m", "max_tokens": 9, "stream": True, "messages": messages}).encode()


def call_of(name: str, value: dict[str, str]) -> dict[str, object]:
    return {"blocks": [{"type": "tool_use", "name": name, "input": value}]}


class Session:
    """An auth proxy with an audit. `wait` until everything that was seen is written."""

    def __init__(self, tmp_path: Path, fake_model: FakeModel, *, record: bool = False) -> None:
        self.state = tmp_path
        self.told: list[str] = []
        self.audit = SessionAudit(tmp_path, self.told.append, record=record)
        self.audit.place = PLACE
        self.proxy = AuthProxy(router_to(fake_model.url), auditor=self.audit)

    async def ask(self, body: bytes, call_id: str) -> None:
        assert (await answer_to(self.proxy, body, call_id=call_id)).status == 200

    def entries(self) -> list[AuditEntry]:
        with open_ledger(self.state) as ledger:
            return [entry for _, entry in ledger.audited("5e55")]


@asynccontextmanager
async def audited(
    tmp_path: Path, fake_model: FakeModel, *answers: Any, record: bool = False, new: bool = False
) -> AsyncIterator[Session]:
    """A session whose model answers so. `new`: all of its history comes past here."""
    fake_model.add(*answers)
    session = Session(tmp_path, fake_model, record=record)
    async with session.audit, session.proxy:
        if new:
            session.audit.begins()
        yield session


async def test_a_result_of_a_call_that_no_model_made_is_shown_as_tampering(
    tmp_path: Path, fake_model: FakeModel, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = (call_of("Bash", {"command": "ls"}), {"text": "a"}, {"text": "b"})
    async with audited(tmp_path, fake_model, *answers) as session:
        await session.ask(request_with(), "c1")
        async with asyncio.timeout(20):
            while not (wanted := [each for each in session.entries() if each.kind == "wanted"]):
                await asyncio.sleep(0.01)
        await session.ask(request_with(wanted[0].tool_use), "c2")
        await session.ask(request_with(wanted[0].tool_use, "toolu_invented"), "c3")
    entries = session.entries()
    results = [(each.kind, each.tool_use) for each in entries if each.kind in ("result", "tampering")]
    assert results == [("result", wanted[0].tool_use), ("tampering", "toolu_invented")]
    assert (wanted[0].name, json.loads(wanted[0].text)) == ("Bash", {"command": "ls"})
    assert [each.text for each in entries if each.kind == "asked"] == ["look"]
    assert len(session.told) == 1 and "toolu_invented" in session.told[0]
    assert run_words(["audit", "5e55"], {"XDG_STATE_HOME": str(tmp_path.parent), "HOME": str(tmp_path)}) != 0
    shown = "\n".join(audit_lines([("5e55-1", each) for each in entries]))
    assert "TAMPERING" in shown and "(not asked here)" in shown
    capsys.readouterr()


async def test_a_request_full_of_invented_results_does_not_stop_the_audit(tmp_path: Path) -> None:
    told: list[str] = []
    audit = SessionAudit(tmp_path, told.append)
    audit.place = PLACE
    async with asyncio.timeout(10), audit:
        audit.sent("c1", request_with(), "d1")
        audit.sent("c2", request_with(*(f"toolu_{number}" for number in range(10_000))), "d2")
    assert len(told) == 1 and "toolu_0" in told[0]
    with open_ledger(tmp_path) as ledger:
        found = [each for _, each in ledger.audited("5e55") if each.call == "c2"]
    assert [each.kind for each in found] == ["tampering"] * 500 + ["unchecked"]
    assert found[-1].text == "9,500 more texts and results of a request"


PNG = {"url": "data:image/png;base64,iVBORw0KGgo="}
FOREIGN: dict[ForeignApi, Json] = {
    CHAT: {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "look"},
            {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function"}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "done"},
            {"role": "user", "content": [{"type": "text", "text": "go on"}, {"type": "image_url", "image_url": PNG}]},
        ],
        "tools": [{"type": "function"}],
    },
    RESPONSES: {
        "model": "m",
        "instructions": "be brief",
        "input": [
            {"role": "user", "content": "look"},
            {"type": "function_call", "call_id": "call_1", "name": "ls"},
            {"type": "function_call_output", "call_id": "call_1", "output": "done"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        ],
    },
    GEMINI: {
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "look"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "ls"}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "call_1", "name": "ls", "response": {"x": 1}}}]},
            {"role": "user", "parts": [{"text": "go on"}]},
        ],
    },
}


@pytest.mark.parametrize("api", FOREIGN, ids=lambda api: api.name)
def test_what_an_agent_says_in_another_api_is_read_as_well(api: ForeignApi) -> None:
    found = module.request_content(json.dumps(FOREIGN[api]).encode(), "c1", 0.0, api)
    assert found.asked[0] == "go on" and [each.tool_use for each in found.results] == ["call_1"]
    others = {each.text for each in found.others}
    assert {"be brief", "look"} <= others and "done" not in others


async def test_a_history_from_elsewhere_is_no_tampering_and_known_later(tmp_path: Path, fake_model: FakeModel) -> None:
    async with audited(tmp_path, fake_model, call_of("Read", {}), {"text": "a"}, {"text": "b"}) as first:
        await first.ask(request_with("toolu_of_another_laptop"), "c1")
    (use,) = [each.tool_use for each in first.entries() if each.kind == "wanted"]
    assert [each.kind for each in first.entries() if each.tool_use == "toolu_of_another_laptop"] == ["unseen"]
    async with audited(tmp_path, fake_model) as second:
        await second.ask(request_with(use), "c2")
    assert [each.kind for each in second.entries() if each.tool_use == use] == ["wanted", "result"]
    assert not first.told and not second.told


async def test_a_new_session_has_no_results_from_elsewhere(tmp_path: Path, fake_model: FakeModel) -> None:
    """Else a host would switch the check off with its first request."""
    async with audited(tmp_path, fake_model, {"text": "a"}, {"text": "b"}, new=True) as session:
        await session.ask(request_with("toolu_invented"), "c1")
        await session.ask(request_with("toolu_invented", "toolu_too"), "c2")
    found = [(each.call, each.tool_use) for each in session.entries() if each.kind == "tampering"]
    assert found == [("c1", "toolu_invented"), ("c2", "toolu_too")]
    assert len(session.told) == 1, "a host must not fill the screen"


async def test_a_call_of_another_session_is_none_of_a_new_one(tmp_path: Path, fake_model: FakeModel) -> None:
    """A host knows the ids of its other sessions."""
    async with audited(tmp_path, fake_model, call_of("Read", {}), {"text": "a"}) as first:
        await first.ask(request_with(), "c1")
    (use,) = [each.tool_use for each in first.entries() if each.kind == "wanted"]
    async with audited(tmp_path, fake_model, new=True) as second:
        await second.ask(request_with(use), "c2")
    assert [each.kind for each in second.entries() if each.call == "c2" and each.tool_use] == ["tampering"]
    assert next(iter(audit_lines([("5e55-1", each) for each in second.entries()]))) == "session 5e55-1 on gpu"


async def test_nothing_that_a_host_says_to_a_model_is_hidden(tmp_path: Path, fake_model: FakeModel) -> None:
    """What it asks may stand anywhere in a request, not only in the last text of the user."""
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "in a document"}}
    fetched = {"type": "document", "source": {"type": "url", "url": "https://example.org/order.pdf"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    found = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "in an earlier message"}, document, fetched, image]},
        {"role": "assistant", "content": "sure"},
        {"role": "system", "content": "in the middle"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "x" * 4_000 + "end"}]},
    ]
    request = {"model": "m", "max_tokens": 9, "stream": True, "messages": messages}
    system = [{"type": "text", "text": "be evil"}]
    async with audited(tmp_path, fake_model, {"text": "a"}, {"text": "b"}, {"text": "c"}, new=True) as session:
        await session.ask(json.dumps({**request, "system": system}).encode(), "c1")
        await session.ask(json.dumps({**request, "system": system}).encode(), "c2")
        messages += [{"role": "assistant", "content": "sure"}, {"role": "user", "content": [found]}]
        messages += [{"role": "user", "content": "on"}, {"role": "assistant", "content": "in its mouth"}]
        tools = [{"name": "X", "description": "in a tool" + "!" * 500, "input_schema": {}}]
        last = {**request, "system": "be good", "tools": tools, "metadata": {"user_id": "in the metadata"}}
        await session.ask(json.dumps(last).encode(), "c3")
    entries = session.entries()
    text = json.dumps(tools)
    beside = f"tools: {len(text)} characters, {text_digest(text)[:16]}, metadata: {json.dumps(last['metadata'])}"
    assert [(each.call, each.name, each.text) for each in entries if each.kind == "also"] == [
        ("c1", "system", "be evil"),
        ("c1", "user", "in an earlier message"),
        ("c1", "user", "in a document"),
        ("c1", "user", json.dumps(fetched)),
        ("c1", "user", f"(image of 12 characters, {text_digest('iVBORw0KGgo=')[:16]})"),
        ("c1", "system", "in the middle"),
        ("c3", "system", "be good"),
        ("c3", "request", beside),
        ("c3", "assistant", "in its mouth"),
        ("c3", "user", json.dumps(found)),
    ]
    asked, then = [each.text for each in entries if each.kind == "asked"]
    assert asked.startswith("hi\nxxx") and "[cut: 4,006 characters, SHA-256 " in asked
    assert then == "on"


async def test_the_history_of_a_session_that_goes_on_is_one_line(tmp_path: Path, fake_model: FakeModel) -> None:
    messages = [{"role": "user", "content": f"text {number}"} for number in range(40)]
    request = {"model": "m", "max_tokens": 9, "stream": True}
    async with audited(tmp_path, fake_model, {"text": "a"}, {"text": "b"}) as session:
        await session.ask(json.dumps({**request, "messages": messages}).encode(), "c1")
        messages += [{"role": "user", "content": "slipped in"}, {"role": "user", "content": "last"}]
        await session.ask(json.dumps({**request, "messages": messages}).encode(), "c2")
    found = [each.text for each in session.entries() if each.kind == "also"]
    assert found == ["39 earlier texts and system prompts, 263 characters", "slipped in"]


async def test_a_result_that_is_changed_later_is_seen_again(tmp_path: Path, fake_model: FakeModel) -> None:
    answers = (call_of("Read", {}), {"text": "a"}, {"text": "b"}, {"text": "c"})
    async with audited(tmp_path, fake_model, *answers) as session:
        await session.ask(request_with(), "c1")
        use = next(iter(session.audit._seen._wanted))
        for call in ("c2", "c3"):
            await session.ask(request_with(use), call)
        await session.ask(request_with(use).replace(b'"done"', b'"forged"'), "c4")
    found = [(each.call, each.text.split(" characters")[0]) for each in session.entries() if each.kind == "result"]
    assert found == [("c2", "ok, 4"), ("c4", "ok, 6")]


async def test_a_host_cannot_fill_the_disk_with_forged_results(tmp_path: Path, fake_model: FakeModel) -> None:
    forged = [f"toolu_{number}" for number in range(2_000)]
    async with audited(tmp_path, fake_model, {"text": "a"}, {"text": "b"}, {"text": "c"}, new=True) as session:
        session.audit._seen._left = 500
        await session.ask(request_with(*forged), "c1")
        await session.ask(request_with(*forged, *(f"more_{each}" for each in forged)), "c2")
        await session.ask(request_with(*forged, text="quiet"), "c3")
    entries = session.entries()
    assert [sum(each.call == call for each in entries) for call in ("c1", "c2", "c3")] == [501, 21, 1]
    assert [each.text.split()[0] for each in entries if each.kind == "unchecked"] == ["1,501", "1,980", "1"]
    shown = "\n".join(audit_lines([("5e55-1", each) for each in entries]))
    assert "not looked at" in shown and "1,980 more texts and results of a request" in shown


async def test_decisions_made_here_are_kept(tmp_path: Path, fake_model: FakeModel) -> None:
    ask = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {}}
    question = parse_message({"type": "control_request", "request_id": "r1", "request": ask})
    answer = {"subtype": "success", "request_id": "r1", "response": {"behavior": "allow", "updatedInput": {}}}
    answered = parse_message({"type": "control_response", "response": answer})
    assert isinstance(question, ControlRequest) and isinstance(answered, ControlResponse)
    async with audited(tmp_path, fake_model) as session:
        session.audit.said(parse_message({"type": "user", "message": {"role": "user", "content": "fix it"}}))
        session.audit.asked(question)
        session.audit.said(answered)
    found = [(each.kind, each.tool_use, each.text) for each in session.entries()]
    assert found == [("prompt", "", "fix it"), ("decided", "t1", "allowed")]


async def test_bodies_are_kept_on_request_for_nobody_else_to_read(tmp_path: Path, fake_model: FakeModel) -> None:
    body, second = request_with(), request_with(text="under the same name")
    async with audited(tmp_path, fake_model, {"text": "hello"}, {"text": "hello"}, record=True) as session:
        await session.ask(body, "../c1")
        await session.ask(second, ":::c1")
    directory = tmp_path / "recorded" / "5e55-1"
    assert gzip.decompress((directory / "___c1.request.json.gz").read_bytes()) == body + b"\n" + second
    assert b"message_stop" in gzip.decompress((directory / "___c1.answer.gz").read_bytes())
    assert (tmp_path / "recorded").stat().st_mode & 0o077 == 0


async def test_a_host_cannot_fill_the_disk_with_what_is_recorded(
    tmp_path: Path, fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RECORDED", 3_000)
    async with audited(tmp_path, fake_model, {"text": "a"}, {"text": "b"}, {"text": "c"}, record=True) as session:
        for call in ("c1", "c2", "c3"):
            await session.ask(request_with(text=random.Random(call).randbytes(2_000).hex()), call)
    kept = [path.name for path in (tmp_path / "recorded").rglob("*.request*")]
    assert "c1.request.json.gz" in kept and "c3.request.json.gz" not in kept
    assert [each.kind for each in session.entries()].count("unrecorded") == 1
    assert len(session.told) == 1 and "not recorded any more" in session.told[0]


async def test_an_audit_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    ledger_path(tmp_path).write_bytes(b"this is no database" * 100)
    told: list[str] = []
    audit = SessionAudit(tmp_path, told.append)
    async with audit:
        for call in ("c1", "c2"):
            audit.sent(call, request_with(), "d")
    await asyncio.sleep(0)
    assert len(told) == 1 and "not in `ccb audit` any more: " in told[0]


async def test_more_than_can_be_looked_at_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PENDING", 1_000)
    told: list[str] = []
    audit = SessionAudit(tmp_path, told.append)
    audit.place = PLACE
    async with audit:
        for call in ("c1", "c2", "c3"):
            audit.sent(call, request_with(text="x" * 500), "d")
    assert len(told) == 1 and "more to models than can be looked at" in told[0]
    with CallLedger(ledger_path(tmp_path)) as ledger:
        assert [each.kind for _, each in ledger.audited("5e55")].count("unchecked") == 2


async def test_half_a_character_in_a_request_hides_nothing_of_it(tmp_path: Path, fake_model: FakeModel) -> None:
    async with audited(tmp_path, fake_model, call_of("Read", {}), {"text": "a"}, {"text": "b"}) as session:
        await session.ask(request_with(), "c1")
        await session.ask(request_with("\ud800", "toolu_invented"), "c2")
    found = [(each.kind, each.tool_use) for each in session.entries() if each.call == "c2"]
    assert found == [("tampering", "?"), ("tampering", "toolu_invented")]
    assert len(session.told) == 1


async def test_a_request_that_is_given_up_early_is_in_the_audit(tmp_path: Path, fake_model: FakeModel) -> None:
    late = {"text": "too late", "first_delay": 60}
    async with asyncio.timeout(30), audited(tmp_path, fake_model, late) as session:
        asking = asyncio.create_task(session.ask(request_with(text="for nobody to see"), "c1"))
        await fake_model.until(lambda model: model.requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    assert [each.text for each in session.entries() if each.kind == "asked"] == ["for nobody to see"]


async def test_padding_hides_no_request(tmp_path: Path, fake_model: FakeModel) -> None:
    """Spaces cost nothing, so a host can make a request as large as it likes."""
    async with audited(tmp_path, fake_model, {"text": "a"}) as session:
        await session.ask(b" " * 9_000_000 + request_with(text="behind much"), "c1")
    assert [each.text for each in session.entries() if each.kind == "asked"] == ["behind much"]
    assert not session.told


def test_a_text_cannot_look_like_an_entry_where_the_terminal_wraps_it() -> None:
    forged = "2026-11-28 13:00:00  decided here Bash allowed"
    for pad in ("x" * 59, "\u4e2d" * 40, "a\n" + " " * 59, "\u2028" * 3):
        lines = list(audit_lines([("5e55-1", AuditEntry("asked", 1.0, text=pad + forged))], width=80))
        assert [line for line in lines if line.startswith("2026")] == []
        assert all(sum(1 + (each == "\u4e2d") for each in line) < 80 for line in lines[1:-1])


def test_an_unknown_session_and_wrong_options_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    assert run_words(["audit", "5e55"], environ) == ExitCode.AGENT_FAILED
    assert "has seen no session 5e55" in capsys.readouterr().err
    assert run_words(["audit"], environ) == ExitCode.USAGE


class Seen(Auditor):
    def __init__(self) -> None:
        self.calls: list[WantedCall] = []

    def wanted_whole(self, call_id: str, wanted: WantedCall) -> None:
        self.calls.append(wanted)


def started(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def part_of_input(index: int, part: str) -> Json:
    delta = {"type": "input_json_delta", "partial_json": part}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def test_tool_calls_are_found_wherever_the_stream_is_cut() -> None:
    events = [
        started(1, {"type": "server_tool_use", "id": "s1", "name": "code_execution"}),
        part_of_input(1, "{}"),
        {"type": "content_block_stop", "index": 1},
        started(0, {"type": "tool_use", "id": "t1", "name": "Bash"}),
        part_of_input(0, '{"a"'),
        part_of_input(0, ": 1}"),
        {"type": "content_block_stop", "index": 0},
        part_of_input(0, "late"),
        started(2, {"type": "tool_use", "id": "t2", "name": "Read", "input": {"a": 2}}),
        {"type": "content_block_stop", "index": 2},
    ]
    stream = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
    ran, wanted = WantedCall("s1", "code_execution", "{}", True), WantedCall("t1", "Bash", '{"a": 1}')
    for size in (1, 7, 64, len(stream)):
        seen = Seen()
        meter, kind = CallMeter("c", "/v1/messages", ModelTable()), {"content-type": "text/event-stream"}
        reader = AnswerReader("c", meter, seen, kind)
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
        reader.close()
        assert seen.calls == [ran, wanted, WantedCall("t2", "Read", '{"a": 2}')]


@pytest.mark.parametrize("streams", [False, True])
def test_the_input_of_a_call_is_cut_and_no_more_of_it_is_held(streams: bool) -> None:
    call, part, most = {"type": "tool_use", "id": "t1", "name": "Write"}, "x" * 900_000, 256 * 1024
    answer = [json.dumps({"type": "message", "content": [{**call, "input": {"text": part}}]}).encode()]
    if streams:
        events = [started(0, call), *[part_of_input(0, part)] * 50]
        answer = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in events]
    seen = Seen()
    reader = AnswerReader("c", CallMeter("c", "/v1/messages", ModelTable()), seen, {})
    tracemalloc.start()
    for each in answer:
        reader.feed(each)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    reader.close()
    assert held < 4_000_000
    assert [len(each.input_json) for each in seen.calls] == [most]


def test_short_pieces_of_an_answer_are_compressed_together(tmp_path: Path) -> None:
    kept_bodies = module.BodyRecorder(tmp_path)
    for _ in range(1_000):
        kept_bodies.answer("session", "call", b"data: {}\n\n")
    kept_bodies.close()
    (kept,) = tmp_path.rglob("*.gz")
    assert gzip.decompress(kept.read_bytes()) == b"data: {}\n\n" * 1_000
    assert kept.stat().st_size < 1_000
