"""The auth proxy reads from the provider's answers what was used, however they are cut, and tells the accounts."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import answer_to, calling, message_body, pieces, request_head, router_to

from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.costs import BilledRequest, answer_cost, billed, most_cost
from ccb.tunnel.proxy.answer_reader import AnswerReader, Auditor
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.foreign_requests import checked, foreign_call
from ccb.tunnel.proxy.metering import Accounts, CallMeter, CallReport, Reservation
from ccb.tunnel.wire.model_facts import ModelFacts, ModelTable

MODELS = ModelTable()
STREAM = {"content-type": "text/event-stream; charset=utf-8"}
USED = {"input_tokens": 10, "cache_read_input_tokens": 1_000, "output_tokens": 1}
START = {"type": "message_start", "message": {"model": "claude-sonnet-4-5-20250929", "usage": USED}}
TEXT = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 'say "message_delta" and {"usage": 7}'}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 200}}
ANSWER = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in (START, TEXT, END)).encode()


def metered(*chunks: bytes, headers: dict[str, str] | None = None) -> CallReport:
    meter = CallMeter("c1", "/v1/messages", MODELS)
    meter.status = 200
    with closing(AnswerReader("c1", meter, Auditor(), STREAM if headers is None else headers)) as reader:
        for chunk in chunks:
            reader.feed(chunk)
    return meter.report(complete=True)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=8))
def test_usage_is_read_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    edges = sorted({0, *cuts, len(ANSWER)})
    report = metered(*(ANSWER[start:end] for start, end in itertools.pairwise(edges)))
    counts = (report.tokens.input, report.tokens.cache_read, report.tokens.cache_write, report.tokens.output)
    assert counts == (10, 1_000, 0, 200)
    assert report.model == "claude-sonnet-4-5-20250929"
    assert report.cost_usd == pytest.approx((10 * 3 + 100 * 3 + 200 * 15) / 1_000_000)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_no_bytes_of_a_provider_break_the_meter(chunks: list[bytes]) -> None:
    report = metered(*chunks, b"\n\n", ANSWER)
    assert report.tokens.output == 200
    metered(*chunks, headers={})


def test_an_answer_in_one_piece_and_events_under_a_wrong_name_are_read_too() -> None:
    body = json.dumps({**START["message"], "content": []}).encode()  # type: ignore[dict-item]
    report = metered(body[:20], body[20:], headers={"content-type": "application/json"})
    assert (report.tokens.input, report.tokens.output) == (10, 1)
    assert metered(ANSWER[:30], ANSWER[30:], headers={"content-type": "text/plain"}).tokens.output == 200


def priced(message: dict[str, Any]) -> CallReport:
    return metered(json.dumps(message).encode(), headers={"content-type": "application/json"})


@dataclass
class KeptAccounts(Accounts):
    """Keeps the reports, and refuses once there are `most` of them."""

    most: int = 100
    reports: list[CallReport] = field(default_factory=list)
    reserved: float = 0.0
    reservations: int = 0

    async def reserve(self, request: BilledRequest) -> Reservation:
        if len(self.reports) >= self.most:
            raise Refusal(403, "no more", kind="laptop_budget")
        self.reserved += 1
        self.reservations += 1
        return Reservation(1.0)

    def ended(self, report: CallReport, reserved: Reservation) -> None:
        self.reports.append(report)
        self.reserved -= reserved.usd


async def test_every_call_is_reported_once_and_none_starts_that_the_accounts_refuse(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello", "usage": {"input_tokens": 7, "output_tokens": 5}})
    accounts = KeptAccounts(most=1)
    body = message_body()
    async with AuthProxy(router_to(fake_model.url), accounts=accounts) as proxy:
        assert (await answer_to(proxy, body, call_id="c1")).status == 200
        await until(lambda: accounts.reports)
        (report,) = accounts.reports
        assert (report.call_id, report.status, report.complete) == ("c1", 200, True)
        assert report.tokens.output > 0 and report.model
        assert (report.request_bytes, report.digest) == (len(body), hashlib.sha256(body).hexdigest())
        answer = await answer_to(proxy, body, call_id="c2")
        assert (answer.status, answer.error["type"]) == (403, "laptop_budget")
    assert len(fake_model.requests) == len(accounts.reports) == 1
    assert (accounts.reserved, accounts.reservations) == (0, 1)


OPUS = {"model": "claude-opus-4-5", "max_tokens": 1_000}
DEAREST = {"model": "claude-opus-4-1", "max_tokens": 1_000}


@pytest.mark.parametrize(
    ("request_", "like"),
    [
        ({**OPUS, "tools": [{"name": "Bash", "input_schema": {}}]}, OPUS),
        ({**OPUS, "max_tokens": "x"}, {**OPUS, "max_tokens": 128_000}),
        ({**OPUS, "model": "grok-9"}, DEAREST),
        ({**OPUS, "model": ["claude-opus-4-5"]}, DEAREST),
        ({**OPUS, "fallbacks": "default"}, DEAREST),
        ({**OPUS, "tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {**DEAREST, "container": "c"}),
        ({**OPUS, "tools": "all"}, {**DEAREST, "container": "c"}),
        ({**OPUS, "messages": [{"role": "user", "content": "hi"}, 7], "system": "x" * 5_000}, OPUS),
    ],
)
def test_what_a_call_may_cost_at_most_follows_its_request(request_: dict[str, Any], like: dict[str, Any]) -> None:
    most = most_cost(MODELS, billed(OPUS, 3_000))
    assert most_cost(MODELS, billed(request_, 3_000)) == most_cost(MODELS, billed(like, 3_000))
    assert most.usd == pytest.approx(1_000 * 2 * 5e-6 + 1_000 * 25e-6) and most.tokens == 2_000
    dear = most_cost(MODELS, billed({**OPUS, "speed": "fast", "inference_geo": "us"}, 3_000))
    assert dear.usd == pytest.approx(6 * 1.1 * most.usd), "as a fast answer of opus 4.6"


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}}
BLOCKS: list[dict[str, Any]] = [
    PDF,
    IMAGE,
    {"type": "document", "source": {"type": "url", "url": "https://example.org/1.pdf"}},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "document", "source": {"type": "content", "content": [IMAGE]}},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_result", "content": [PDF]}]},
    {"type": ["text"]},
]
MEMBERS: list[dict[str, Any]] = [
    {"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "x"}]},
    {"container": {"skills": [{"type": "anthropic", "skill_id": "xlsx"}]}},
    {"context_management": {"edits": [{"type": "compact_20260112"}]}},
    {"of_another_year": True},
    {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 20}]},
    {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x"}]},
    *({"system": [block]} for block in BLOCKS),
    *({"messages": [{"role": "user", "content": [block]}]} for block in BLOCKS),
    *(
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [block]}]}]}
        for block in BLOCKS
    ),
]


@pytest.mark.parametrize("more", MEMBERS)
def test_what_may_be_longer_than_its_bytes_counts_as_a_full_window(more: dict[str, Any]) -> None:
    """A document of a hundred bytes may have a thousand pages, a server of tools may answer with any length."""
    assert most_cost(MODELS, billed({**OPUS, **more}, 300)).tokens == 201_000


def test_what_an_agent_sends_is_no_longer_than_its_bytes() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    text = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text]}
    thought = {"type": "thinking", "thinking": "", "signature": "x"}
    messages = [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result, text]}]
    body = {**OPUS, "system": [text], "messages": messages, "stream": True, "metadata": {}, "thinking": {}}
    assert most_cost(MODELS, billed({**body, "output_config": {}}, 3_000)).tokens == 2_000


async def test_a_call_that_fails_is_of_the_model_that_was_asked(fake_model: FakeModel) -> None:
    fake_model.add({"status": 529})
    accounts = KeptAccounts()
    async with AuthProxy(router_to(fake_model.url), accounts=accounts) as proxy:
        assert (await answer_to(proxy)).status == 529
    (report,) = accounts.reports
    assert (report.status, report.model, report.cost_usd) == (529, "m", 0)


async def test_what_a_call_reserves_is_released_however_it_ends() -> None:
    accounts, body = KeptAccounts(), message_body()
    async with AuthProxy(router_to("http://127.0.0.1:9"), accounts=accounts) as proxy:
        assert (await answer_to(proxy, body)).status >= 500
        assert accounts.reservations == 1
        proxy._find_or_start(request_head(body, call_id="c2"), pieces(body), 0)
        proxy.discard("c2")  # before its task has begun
    assert accounts.reserved == 0 and [each.status for each in accounts.reports] == [0, 0]


@pytest.mark.parametrize("others", [False, True])
def test_an_answer_under_another_name_costs_what_the_model_costs_that_was_asked(others: bool) -> None:
    """A server with Anthropic's API is asked without the name of the provider, and answers without it. If the request
    lets another model answer, the name may be that of a dearer one: then nobody knows the price."""
    models = ModelTable()
    models.learn("lab/coder", ModelFacts(input_price=3, output_price=15))
    meter = CallMeter("c1", "/v1/messages", models)
    meter.asked(BilledRequest("lab/coder", 100, others_answer=others))
    meter.status = 200
    with closing(AnswerReader("c1", meter, Auditor(), STREAM)) as reader:
        reader.feed(ANSWER.replace(b"claude-sonnet-4-5-20250929", b"coder"))
    report = meter.report(complete=True)
    dollars = 0 if others else (10 * 3 + 100 * 3 + 200 * 15) / 1_000_000
    assert (report.model, report.priced) == (("coder", False) if others else ("lab/coder", True))
    assert report.cost_usd == pytest.approx(dollars)


SONNET = {"input_tokens": 1_000_000, "output_tokens": 0}
EXTRAS: list[tuple[dict[str, object], float]] = [  # more of a usage, and the dollars beside the 3 of its tokens
    ({}, 0),
    ({"speed": "fast"}, 3),
    ({"inference_geo": "us"}, 0.3),
    ({"server_tool_use": {"web_search_requests": 100}}, 1),
    ({"cache_creation_input_tokens": 1_000_000, "cache_creation": {"ephemeral_1h_input_tokens": 1_000_000}}, 6),
    ({"iterations": [SONNET, {"model": "claude-opus-4-5", "type": "advisor_message", "output_tokens": 40_000}]}, 1),
    ({"iterations": [SONNET, {"type": "compaction", "input_tokens": 1_000_000}]}, 3),
    ({"iterations": [SONNET]}, 0),
    ({"iterations": "x", "server_tool_use": 7, "cache_creation": [1], "speed": {}}, 0),
    ({"output_tokens": -(10**9), "cache_read_input_tokens": 10**400}, 0),
]


@pytest.mark.parametrize(("more", "dollars"), EXTRAS)
def test_what_a_request_can_buy_beside_tokens_is_in_the_cost(more: dict[str, object], dollars: float) -> None:
    message = {"type": "message", "model": "claude-sonnet-4-6", "usage": {**SONNET, **more}}
    assert priced(message).cost_usd == pytest.approx(3 + dollars)
    older = {"model": "claude-opus-4-6", "usage": {**SONNET, "speed": "fast"}}
    assert priced(older).cost_usd == pytest.approx(30), "a fast answer of an older model costs six times as much"


@pytest.mark.parametrize(
    ("model", "read", "dollars"),
    [
        ("claude-sonnet-4-5-20250929", 150_000, 1.2 + 0.09 + 2.25),
        ("claude-sonnet-4-5", 0, 0.6 + 1.5),
        ("anthropic/claude-sonnet-4.6", 150_000, 0.6 + 0.045 + 1.5),
    ],
)
def test_a_long_request_costs_more_where_the_window_of_a_million_does(model: str, read: int, dollars: float) -> None:
    usage = {"input_tokens": 200_000, "cache_read_input_tokens": read, "output_tokens": 100_000}
    assert priced({"model": model, "usage": usage}).cost_usd == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("model", "tokens", "times"),
    [
        ("gpt-5.5", 272_000, (1, 1)),
        ("openai/gpt-5.5-2026-04-23", 272_001, (2, 1.5)),
        ("gpt-5.4-mini", 300_000, (1, 1)),
        ("gpt-5", 300_000, (1, 1)),
        ("gemini/gemini-3.1-pro-preview", 200_001, (2, 1.5)),
        ("gemini-3.8-flash", 900_000, (1, 1)),
        ("grok/grok-4.20-reasoning", 200_001, (2, 2)),
        ("us.anthropic.claude-haiku-5-5", 100_001, (5, 5)),
        ("claude-haiku-4-5", 190_000, (1, 1)),
    ],
)
def test_where_long_requests_cost_more(model: str, tokens: int, times: tuple[float, float]) -> None:
    models = ModelTable()
    models.learn(model, ModelFacts(input_price=1, output_price=10, read_share=0.1))
    usage = {"input_tokens": tokens - 100_000, "cache_read_input_tokens": 100_000, "output_tokens": 1_000}
    expected = (tokens - 90_000) / 1e6 * times[0] + 0.01 * times[1]
    assert answer_cost(models, model, usage) == pytest.approx(expected)
    most = most_cost(models, billed({"model": model, "max_tokens": 1_000}, 3 * tokens))
    assert most.usd >= expected


def test_tokens_outside_of_the_totals_count() -> None:
    advised = {"model": "claude-opus-4-5", "type": "advisor_message", "input_tokens": 7, "output_tokens": 40}
    usage = {"input_tokens": 5, "output_tokens": 1, "iterations": [{"input_tokens": 5, "output_tokens": 1}, advised]}
    report = priced({"model": "claude-sonnet-4-5", "usage": usage})
    assert (report.tokens.input, report.tokens.output) == (12, 41)


@pytest.mark.parametrize("seen", ["nothing", "the start"])
async def test_an_answer_that_is_not_read_to_its_end_is_paid_for(seen: str) -> None:
    """A worker that leaves before the usage arrives would else cost nothing in the eyes of every budget."""
    arrived, going_on = asyncio.Event(), asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        await request.read()
        arrived.set()
        if seen == "nothing":
            await going_on.wait()
        response = web.StreamResponse(headers=STREAM)
        await response.prepare(request)
        for event in (START, *[TEXT] * 400):
            await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await going_on.wait()
        return response

    accounts = KeptAccounts()
    body = json.dumps({"model": "claude-opus-4-5", "max_tokens": 9, "messages": ["x" * 40_000]}).encode()
    async with serving(upstream) as url, AuthProxy(router_to(url), accounts=accounts) as proxy, asyncio.timeout(20):

        async def ask() -> None:
            async with calling(proxy, body) as answer:
                text = b""
                while text.count(b"event: content_block_delta") < 400:
                    text += await answer.read()

        call = asyncio.create_task(ask())
        await arrived.wait()
        if seen == "the start":
            await call
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        while not accounts.reports:
            await asyncio.sleep(0)
    (report,) = accounts.reports
    assert not report.complete
    if seen == "nothing":
        assert report.model == "claude-opus-4-5" and report.tokens.input >= 10_000 and report.cost_usd >= 0.05
    else:
        assert report.model.startswith("claude-sonnet-4-5") and report.tokens.output >= 400


def test_what_a_cache_keeps_for_an_hour_is_refused_where_the_answer_does_not_say_so() -> None:
    """An answer of Chat Completions tells how many tokens were written, and not for how long."""
    call = foreign_call("POST", "/v1/chat/completions", "")
    assert call is not None
    for ttl in (None, "5m", "1h"):
        text = {"type": "text", "text": "go", "cache_control": {"type": "ephemeral", "ttl": ttl}}
        asked = {"model": "x", "messages": [{"role": "user", "content": [text]}]}
        with pytest.raises(Refusal, match="to cache something") if ttl == "1h" else nullcontext():
            checked(call, asked)


def test_what_makes_an_answer_dearer_counts_also_without_its_end() -> None:
    """A worker could ask for the fast mode, and leave before the end that names it."""
    request = {"model": "claude-opus-4-6", "speed": "fast", "inference_geo": "us"}
    reports = []
    for asked in ({"model": "claude-opus-4-6"}, request):
        meter = CallMeter("c", "/v1/messages", ModelTable())
        meter.asked(billed(asked, 40_000))
        meter.uploaded(40_000, "digest")
        meter.status = 200
        meter.arrived(4_000)
        reports.append(meter.report(complete=False))
    usual, fast = reports
    assert fast.cost_usd == pytest.approx(usual.cost_usd * 6 * 1.1)
