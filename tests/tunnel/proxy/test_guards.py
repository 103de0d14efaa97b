"""What holds a hostile worker back: nonces, limits of requests and answers, and the switch that ends all calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import answer_to, calling, guard, message_body, proxy_to

from ccb.tunnel.providers.anthropic import AnthropicProvider, anthropic_client
from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.model_router import ModelRouter
from ccb.tunnel.providers.provider import ProviderRequest, ProviderResponse
from ccb.tunnel.providers.request_body import read_request
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.policy import MAX_WRONG, CallGrant, Policy, RequestLimits


async def test_wrong_nonces_are_told_and_after_ten_the_connection_answers_nothing(fake_model: FakeModel) -> None:
    connection, told = guard(), list[str]()
    async with proxy_to(fake_model.url, warn=told.append) as proxy:
        for _ in range(MAX_WRONG):
            assert (await answer_to(proxy, b"", nonce="guessed", connection=connection)).status == 403
        answer = await answer_to(proxy, connection=connection)
        assert (answer.status, b"too many wrong nonces" in answer.body) == (403, True)
        fake_model.add({"text": "hello"})
        assert (await answer_to(proxy)).status == 200, "the next connection has a nonce of its own"
    assert len(told) == 2 and "wrong nonce" in told[0] and str(MAX_WRONG) in told[1]


async def test_only_allowed_models_and_lengths_reach_the_provider(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello"})
    limits = RequestLimits(models=("m", "claude-*"), max_output_tokens=100)
    async with proxy_to(fake_model.url, policy=Policy(requests=limits)) as proxy:
        assert (await answer_to(proxy, size=7)).status == 200
        refused = await answer_to(proxy, message_body().replace(b'"m"', b'"gpt-9"'), size=7)
    assert (refused.status, refused.error["type"]) == (403, "laptop_not_allowed") and b"gpt-9" in refused.body
    (seen,) = fake_model.requests
    assert seen.body == json.loads(message_body())


def checked(body: bytes, max_output_tokens: int | None = None) -> None:
    RequestLimits(("m",), max_output_tokens).check(read_request(body), answers=True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"model": "m", "max_tokens": 101}', 403),
        (b'{"model": "m"}', 403),
        (b'{"model": "m", "max_tokens": "9"}', 403),
        (b'{"model": "m", "max_tokens": -1}', 403),
        (b'{"model": "m", "max_tokens": true}', 403),
        (b'{"model": "m", "model": "gpt-9", "max_tokens": 1}', 400),
        (b'{"model": "m", "max_tokens": 1, "max_tokens": 200}', 400),
        (b'{"model": "m", "Model": "gpt-9", "max_tokens": 1}', 400),
        ('{"model": "m", "max_tokens": 1, "max_to\u212aens": 200}'.encode(), 400),
        (b'{"model": ["m"], "max_tokens": 1}', 403),
        (b'{"model": "m", "max_tokens": 1, "fallbacks": [{"model": "m"}, {"model": "gpt-9"}]}', 403),
        (b'{"model": "m", "max_tokens": 1, "fallbacks": "default"}', 403),
        (b'{"model": "m", "max_tokens": 1, "fallbacks": [{"model": "m", "max_tokens": 200}]}', 403),
        (b'{"model": "m", "max_tokens": 1, "models": ["m", "gpt-9"]}', 403),
        (
            b'{"model": "m", "max_tokens": 1, "tools": [{"type": "advisor_1", "name": "advisor", "model": "gpt-9"}]}',
            403,
        ),
        (b'{"model": "m", "max_tokens": 1, "tools": [{"name": "advisor", "model": "m", "max_tokens": 200}]}', 403),
        (b"[1]", 400),
        (b'{"model": "m"', 400),
        (b"[" * 100_000, 400),
        pytest.param(b'{"model": "m", "max_tokens": 1, "messages": [' + b"[]," * 200_000 + b"0]}", 413, id="values"),
        pytest.param(b'{"model": "m", "max_tokens": 1, "messages": ' + b"[" * 300 + b"," * 200_000, 413, id="levels"),
    ],
)
def test_a_body_that_two_parsers_read_in_two_ways_or_that_asks_too_much_is_refused(body: bytes, status: int) -> None:
    with pytest.raises(Refusal) as refused:
        checked(body, max_output_tokens=100)
    assert refused.value.status == status


def test_a_long_text_with_many_brackets_is_one_value() -> None:
    text = json.dumps('[{"a": [1, 2]}, {}]' * 30_000)
    body = f'{{"model": "m", "max_tokens": 1, "messages": [{{"role": "user", "content": {text}}}]}}'
    checked(body.encode())


def test_other_models_that_are_allowed_may_answer() -> None:
    body = {"fallbacks": [{"model": "m", "max_tokens": None}], "tools": [{"name": "a", "model": "m"}, {"name": "b"}]}
    checked(json.dumps({"model": "m", "max_tokens": 1, **body}).encode(), max_output_tokens=100)


HOSTILE: list[tuple[bytes, str | None]] = [  # a body, and the model that it names; None for no reading at all
    (b'{"model": "m", "mod\\u0065l": "openai/gpt-9", "max_tokens": 1}', None),
    (b'{"mod\\u0065l": "openai/gpt-9", "metadata": {"model": "m"}, "max_tokens": 1}', "openai/gpt-9"),
    (b'{"metadata": {"model": "openai/gpt-9"}, "model": "m", "max_tokens": 1}', "m"),
    (b'{"system": "\\"model\\": \\"openai/gpt-9\\"", "model": "m", "max_tokens": 1}', "m"),
    (b'{"messages": [{"role": "user", "role": "assistant"}], "model": "m", "max_tokens": 1}', None),
    ('{"model": "m", "max_tokens": 1}'.encode("utf-16"), None),
    ('{"model": "m", "max_tokens": 1}'.encode("utf-8-sig"), None),
    (b'{"model": "m", "max_tokens": NaN}', None),
    (b'{"model": "m\xff", "max_tokens": 1}', None),
]


class NamedProvider(AnthropicProvider):
    """Notes which of several providers got a call."""

    def __init__(self, own_name: str, called: list[str]) -> None:
        super().__init__(None, anthropic_client({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}))
        self._own_name, self._called = own_name, called

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        self._called.append(self._own_name)
        yield ProviderResponse(200, [], request.body)


@pytest.mark.parametrize(("body", "model"), HOSTILE)
async def test_the_limits_and_the_choice_of_a_provider_read_every_body_alike(body: bytes, model: str | None) -> None:
    """Else a host could show an allowed model to the one, and another to the other."""
    called: list[str] = []
    limits = RequestLimits(models=(model or "*",), max_output_tokens=1)
    router = ModelRouter(NamedProvider("default", called), lambda name, api: NamedProvider(name, called))
    async with AuthProxy(router, Policy(requests=limits)) as proxy:
        assert (await answer_to(proxy, body)).status == (400 if model is None else 200)
    assert called == {None: [], "m": ["default"], "openai/gpt-9": ["openai"]}[model]


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
def test_any_body_is_allowed_or_refused_and_nothing_else(body: bytes) -> None:
    try:
        checked(body)
    except Refusal:
        return
    assert json.loads(body)["model"] == "m"


async def test_a_revoked_session_gets_not_another_byte_and_starts_no_call() -> None:
    more = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        out = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await out.prepare(request)
        await out.write(b"first")
        await more.wait()
        await out.write(b"second")
        return out

    async with serving(handle) as url, proxy_to(url) as proxy:
        async with calling(proxy, call_id="c") as answer:
            assert await answer.read() == b"first"
            proxy.revoke()
            more.set()
            with pytest.raises(Refusal, match="revoked"):
                await answer.read()
        for call_id in ("c", "d"):
            refused = await answer_to(proxy, call_id=call_id)
            assert (refused.status, refused.error["type"]) == (403, "laptop_revoked")
            assert refused.headers["x-should-retry"] == "false"
        await until(lambda: not proxy.under_way)


async def test_bytes_that_have_arrived_and_were_not_read_are_gone_with_the_grant(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello"})
    async with proxy_to(fake_model.url) as proxy, calling(proxy, call_id="c") as answer:
        while proxy.under_way:
            await asyncio.sleep(0)
        proxy.revoke()
        with pytest.raises(Refusal, match="revoked"):
            await answer.read()


def test_a_grant_ends_with_its_time() -> None:
    now = [0.0]
    grant = CallGrant(60, lambda: now[0])
    assert grant.refusal() is None and grant.left_s() == 60
    now[0] = 60.0
    refusal = grant.refusal()
    assert refusal is not None and refusal.kind == "laptop_expired" and grant.left_s() == 0
