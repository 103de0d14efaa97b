"""The auth proxy reads from the provider's answers what was used, however they are cut, and tells the accounts."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.proxy.proxy_client import guard, message_body, pieces, read_all, request_head

from ccb.tunnel.proxy.answer_reader import AnswerReader
from ccb.tunnel.proxy.auditing import NoAuditor
from ccb.tunnel.proxy.core import AuthProxy
from ccb.tunnel.proxy.guards.refusal import Refusal
from ccb.tunnel.proxy.metering import CallMeter, CallReport
from ccb.tunnel.proxy.providers.anthropic import AnthropicProvider, anthropic_client
from ccb.tunnel.proxy.providers.credential import Credential, FixedCredential
from ccb.tunnel.secret import Secret

STREAM = {"content-type": "text/event-stream; charset=utf-8"}
START = {
    "type": "message_start",
    "message": {
        "model": "claude-sonnet-4-5-20250929",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 1_000, "output_tokens": 1},
    },
}
TEXT = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 'say "message_delta" and {"usage": 7}'}}
END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 200}}
ANSWER = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in (START, TEXT, END)).encode()


def metered(*chunks: bytes, status: int = 200, headers: dict[str, str] | None = None) -> CallReport:
    meter = CallMeter("c1", "/v1/messages")
    with closing(AnswerReader("c1", meter, NoAuditor())) as reader:
        reader.answer(status, STREAM if headers is None else headers)
        for chunk in chunks:
            reader.feed(chunk)
    return meter.report(complete=True)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=8))
def test_usage_is_read_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    edges = sorted({0, *cuts, len(ANSWER)})
    report = metered(*(ANSWER[start:end] for start, end in itertools.pairwise(edges)))
    counts = (report.input_tokens, report.cache_read_tokens, report.cache_write_tokens, report.output_tokens)
    assert counts == (10, 1_000, 0, 200)
    assert report.model == "claude-sonnet-4-5-20250929"
    assert report.cost_usd == pytest.approx((10 * 3 + 100 * 3 + 200 * 15) / 1_000_000)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_no_bytes_of_a_provider_break_the_meter(chunks: list[bytes]) -> None:
    report = metered(*chunks, b"\n", ANSWER)
    assert report.output_tokens == 200
    metered(*chunks, headers={})


def test_an_answer_in_one_piece_is_read_too() -> None:
    body = json.dumps({**START["message"], "content": []}).encode()  # type: ignore[dict-item]
    report = metered(body[:20], body[20:], headers={"content-type": "application/json"})
    assert (report.input_tokens, report.output_tokens) == (10, 1)


def test_events_under_a_wrong_name_are_read_too() -> None:
    assert metered(ANSWER[:30], ANSWER[30:], headers={"content-type": "text/plain"}).output_tokens == 200


@pytest.mark.parametrize("size", [100, 4_000, 1_000_000])
def test_a_long_answer_is_counted_at_its_two_ends(size: int) -> None:
    words = [f"data: {json.dumps({**TEXT, 'index': number})}\n\n".encode() for number in range(3_000)]
    start, end = (f"data: {json.dumps(each)}\n\n".encode() for each in (START, END))
    stream = b"".join([start, *words, end, b'data: {"type": "message_stop"}\n\n'])
    assert len(stream) > 300_000
    report = metered(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert (report.input_tokens, report.output_tokens, report.model) == (10, 200, START["message"]["model"])  # type: ignore[index]


def test_an_endless_line_is_not_kept() -> None:
    meter = CallMeter("c1", "/v1/messages")
    reader = AnswerReader("c1", meter, NoAuditor())
    reader.answer(200, STREAM)
    for _ in range(40):
        reader.feed(b"data: " + b"x" * 100_000)
        assert len(reader._lines.rest) <= 1_200_000
    reader.feed(b"\n" + ANSWER)
    reader.close()
    assert meter.report(complete=True).output_tokens == 200


class KeptAccounts:
    """Keeps the reports, and refuses once there are `most` of them."""

    def __init__(self, most: int = 100) -> None:
        self.reports: list[CallReport] = []
        self.reserved = 0.0
        self.most = most

    def check(self, size: int | None) -> float:
        if len(self.reports) >= self.most:
            raise Refusal(403, "no more", kind="laptop_budget")
        self.reserved += 1
        return 1.0

    def ended(self, report: CallReport, reserved: float) -> None:
        self.reports.append(report)
        self.reserved -= reserved


async def test_every_call_is_reported_once_and_none_starts_that_the_accounts_refuse(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello", "usage": {"input_tokens": 7, "output_tokens": 5}})
    accounts = KeptAccounts(most=1)
    client = anthropic_client({"ANTHROPIC_BASE_URL": fake_model.url})
    provider = AnthropicProvider(FixedCredential(Credential("k", api_key=Secret(API_KEY))), client)
    body = message_body()
    async with AuthProxy(provider, accounts=accounts) as proxy:
        async with proxy.call(request_head(body, call_id="c1"), pieces(body), nonce=guard()) as answer:
            assert answer.status == 200
            await read_all(answer)
        async with asyncio.timeout(10):
            while not accounts.reports:
                await asyncio.sleep(0)
        (report,) = accounts.reports
        assert (report.call_id, report.status, report.complete) == ("c1", 200, True)
        assert report.output_tokens > 0 and report.model
        assert (report.request_bytes, report.digest) == (len(body), hashlib.sha256(body).hexdigest())
        async with proxy.call(request_head(body, call_id="c2"), pieces(body), nonce=guard()) as answer:
            assert (answer.status, "laptop_budget" in (await read_all(answer)).decode()) == (403, True)
    assert len(fake_model.requests) == 1
    assert accounts.reserved == 0


async def test_what_a_call_reserves_is_released_however_it_ends(fake_model: FakeModel) -> None:
    accounts = KeptAccounts()
    provider = AnthropicProvider(
        FixedCredential(Credential("k", api_key=Secret(API_KEY))),
        anthropic_client({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}),
    )
    body = message_body()
    async with AuthProxy(provider, accounts=accounts) as proxy:
        async with proxy.call(request_head(body), pieces(body), nonce=guard()) as answer:
            assert answer.status >= 500
        proxy._find_or_start(request_head(body, call_id="c2"), pieces(body), 0, keep=True)
        proxy.discard("c2")  # before its task has begun
    assert accounts.reserved == 0 and [each.status for each in accounts.reports] == [0, 0]
