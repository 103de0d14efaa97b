"""What an agent of others gets from the proxy over HTTP: which requests there are, what passes, what fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from keyring.backends import fail
from tests.support.machine.waiting import until
from tests.support.network.http_server import serving
from tests.support.providers.adapters import adapter
from tests.support.providers.dialect_server import KEY, DialectServer
from tests.support.providers.turns import Said
from tests.support.proxy.relayed_agent import TOKEN, relayed
from yarl import URL

from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.session_provider import session_provider
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.http_front import HttpFront
from ccb.tunnel.proxy.policy import Policy, RequestLimits
from ccb.tunnel.secret import Secret
from ccb.tunnel.wire.frames import Json

ANTHROPIC = {"anthropic-version": "2023-06-01"}
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
GEMINI = "/v1beta/models/gemini-2.5-pro"
BODIES: dict[str, Json] = {
    "/v1/messages": {"model": "claude-sonnet-4-5", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]},
    CHAT: {"model": "gpt-5", "messages": []},
    RESPONSES: {"model": "gpt-5", "input": "hi", "store": False},
    f"{GEMINI}:generateContent": {"contents": []},
}


class Upstream:
    """Every provider at once. Keeps what it is asked, and answers with `status`, `body` and `headers`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status, self.body = 200, b"{}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append((request.method, request.path_qs, headers, await request.read()))
        return web.Response(status=self.status, body=self.body, headers={"x-account": "mine", "retry-after": "7"})


@asynccontextmanager
async def agent(
    policy: Policy | None = None, keys: str = "anthropic openai gemini"
) -> AsyncIterator[tuple[Upstream, aiohttp.ClientSession, str]]:
    """What a laptop with these keys lends to an agent."""
    upstream = Upstream()
    async with serving(upstream.handle) as url:
        bases = {"openai": f"{url}/v1", "gemini": f"{url}/v1beta/openai"}
        own = {name: ProviderSettings(baseUrl=base) for name, base in bases.items()}
        environ = {f"{name.upper()}_API_KEY": f"key-of-{name}" for name in keys.split()} | {"HOME": "/nonexistent"}
        environ["ANTHROPIC_BASE_URL"] = url
        router = session_provider(environ, Settings(providers=own), None)
        async with AuthProxy(router, policy) as proxy, relayed(proxy) as address, aiohttp.ClientSession() as client:
            yield upstream, client, address


@pytest.mark.parametrize(
    ("method", "path", "headers", "reaches"),
    [
        ("POST", "/v1/messages", {}, "/v1/messages"),
        ("POST", "/v1/messages?beta=true", {}, "/v1/messages?beta=true"),
        ("POST", "/v1/messages/count_tokens", {}, "/v1/messages/count_tokens"),
        ("GET", "/v1/models?limit=9", ANTHROPIC, "/v1/models?limit=9"),
        ("GET", "/v1/models", {}, None),
        ("POST", CHAT, {}, CHAT),
        ("POST", RESPONSES, {}, RESPONSES),
        ("POST", f"{GEMINI}:generateContent", {}, f"{GEMINI}:generateContent"),
        ("POST", f"{GEMINI}:countTokens", {}, f"{GEMINI}:countTokens"),
        ("POST", f"{GEMINI}:streamGenerateContent?alt=sse", {}, f"{GEMINI}:streamGenerateContent?alt=sse"),
        ("POST", f"/instead/claude-sonnet-4-5{GEMINI}:countTokens", {}, "/v1/messages/count_tokens"),
        ("POST", f"/instead/claude-sonnet-4-5{CHAT}", {}, None),
        ("POST", f"/instead/a/b{GEMINI}:countTokens", {}, None),
        ("HEAD", "/", {}, ""),
        ("GET", "/", {}, None),
        ("DELETE", "/v1/messages", {}, None),
        ("POST", "/v1/messages/batches", {}, None),
        ("POST", "/v1/files", {}, None),
        ("POST", "/v1/completions", {}, None),
        ("POST", "/v1/embeddings", {}, None),
        ("POST", "/v1/images/generations", {}, None),
        ("GET", f"{RESPONSES}/resp_1", {}, None),
        ("POST", f"{RESPONSES}/resp_1/cancel", {}, None),
        ("POST", f"{CHAT}?api-version=1", {}, None),
        ("POST", "/v1//messages", {}, None),
        ("POST", "/v1/%6dessages", {}, None),
        ("POST", "/v1/../v1/chat/completions", {}, None),
        ("GET", GEMINI, {}, None),
        ("POST", "/v1beta/cachedContents", {}, None),
        ("POST", f"{GEMINI}:generateContent?key=AIzaStolen", {}, None),
        ("POST", f"{GEMINI}/../gemini-9:generateContent", {}, None),
        ("POST", "/v1beta/models/..:generateContent", {}, None),
        ("POST", f"{GEMINI}:batchGenerateContent", {}, None),
        ("POST", f"{GEMINI}:generateContent?alt=sse", {}, None),
    ],
)
async def test_the_requests_are_a_closed_list_and_go_to_the_provider_of_their_api(
    method: str, path: str, headers: dict[str, str], reaches: str | None
) -> None:
    body = BODIES.get(path.partition("?")[0], {"contents": []} if GEMINI in path else BODIES["/v1/messages"])
    async with agent() as (upstream, client, address):
        data = json.dumps(body) if method == "POST" else None
        async with client.request(method, URL(address + path, encoded=True), data=data, headers=headers) as answer:
            assert answer.status == (404 if reaches is None else 200), await answer.text()
    assert [each[1] for each in upstream.asked] == ([reaches] if reaches else [])


@pytest.mark.parametrize(
    ("path", "header", "key"),
    [
        ("/v1/messages", "x-api-key", "key-of-anthropic"),
        (CHAT, "authorization", "Bearer key-of-openai"),
        (RESPONSES, "authorization", "Bearer key-of-openai"),
        (f"{GEMINI}:generateContent", "x-goog-api-key", "key-of-gemini"),
    ],
)
async def test_a_body_passes_as_it_is_with_the_laptop_s_key_in_place_of_what_the_agent_has(
    path: str, header: str, key: str
) -> None:
    given = dict.fromkeys(("x-api-key", "authorization", "x-goog-api-key", "cookie", "openai-organization"), "dummy")
    body = json.dumps(BODIES[path], indent=3).encode()
    async with agent() as (upstream, client, address):
        upstream.body = b'{ "odd":   "spacing" }'
        async with client.post(address + path, data=body, headers=given) as answer:
            assert await answer.read() == upstream.body and answer.headers["retry-after"] == "7"
            assert "x-account" not in answer.headers
    _, _, headers, came = upstream.asked[0]
    assert came == body and headers[header] == key and "dummy" not in headers.values()
    assert not any(TOKEN in value for value in headers.values())


def told(path: str, answer: Json) -> str:
    """The text of an error in the shape of the API that was asked."""
    error = answer["error"]
    if path == "/v1/messages":
        assert answer["type"] == "error" and set(error) == {"type", "message"}
    else:
        assert set(error) == ({"code", "message", "status"} if GEMINI in path else {"message", "type", "param", "code"})
    return str(error["message"])


@pytest.mark.parametrize("path", BODIES)
async def test_what_the_laptop_refuses_is_an_error_of_the_api_that_was_asked(path: str) -> None:
    policy = Policy(requests=RequestLimits(models=("grok-*",)))
    async with agent(policy) as (upstream, client, address):
        async with client.post(address + path, json=BODIES[path]) as answer:
            assert answer.status == 403 and answer.headers["x-should-retry"] == "false"
            assert "do not allow the model" in told(path, await answer.json())
        async with client.post(address + path, data=b"{") as answer:
            assert answer.status == 400 and "is not JSON" in told(path, await answer.json())
    assert not upstream.asked


@pytest.mark.parametrize(
    ("path", "name"), [(RESPONSES, "openai"), (CHAT, "openai"), (f"{GEMINI}:generateContent", "gemini")]
)
async def test_without_a_key_of_the_provider_the_answer_says_how_to_give_one(
    path: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyring.get_keyring", fail.Keyring)
    async with (
        agent(keys="anthropic") as (_, client, address),
        client.post(address + path, json=BODIES[path]) as answer,
    ):
        assert answer.status == 401 and f"ccb auth login {name}" in told(path, await answer.json())


async def test_a_body_of_unknown_length_or_in_another_encoding_is_refused() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps(BODIES[CHAT]).encode()

    async with agent() as (upstream, client, address):
        async with client.post(address + CHAT, data=pieces()) as answer:
            assert answer.status == 411
        async with client.post(address + CHAT, data=b"{}", headers={"content-encoding": "gzip"}) as answer:
            assert answer.status == 411
    assert not upstream.asked


@pytest.mark.parametrize(
    "lengths", [{"max_tokens": 9, "max_completion_tokens": 101}, {"max_tokens": -1, "max_completion_tokens": 9}, {}]
)
async def test_the_longest_of_two_lengths_counts_and_some_servers_take_minus_one_as_no_limit(lengths: Json) -> None:
    policy = Policy(requests=RequestLimits(max_output_tokens=100))
    async with (
        agent(policy) as (upstream, client, address),
        client.post(address + CHAT, json={**BODIES[CHAT], **lengths}) as answer,
    ):
        assert answer.status == 403 and not upstream.asked


async def test_what_an_agent_sends_while_it_waits_or_does_not_read_fills_no_memory_here() -> None:
    piece = b":%b\n\n" % (b"x" * 60_000)

    async def upstream(request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        for _ in range(400):
            await answer.write(piece)
        return answer

    async with serving(upstream) as url:
        environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "HOME": "/nonexistent"}
        own = Settings(providers={"openai": ProviderSettings(baseUrl=f"{url}/v1")})
        async with AuthProxy(session_provider(environ, own, None)) as proxy, HttpFront(proxy) as front:
            front.expect(Secret(TOKEN))
            _, writer = await front.connect()
            body = json.dumps({**BODIES[CHAT], "stream": True}).encode()
            start = f"POST /{TOKEN}{CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            writer.write(start + body + f"HEAD /{TOKEN}/ HTTP/1.1\r\nhost: x\r\n\r\n".encode() * 100_000)
            taken = asyncio.create_task(writer.drain())
            await until(lambda: proxy.under_way)
            (call,) = proxy._tasks
            await until(lambda: call.held > 64 * 1024)
            done, _ = await asyncio.wait({taken}, timeout=0.5)
            assert not done and call.held < 1024 * 1024
            taken.cancel()
            writer.transport.abort()


async def test_a_refused_key_is_told_without_a_part_of_it() -> None:
    async with agent() as (upstream, client, address):
        for path, key in (("/v1/messages", b"key-of-anthropic"), (CHAT, b"key-of-openai")):
            upstream.status, upstream.body = 500, b'{"headers": "Bearer %b"}' % key
            async with client.post(address + path, json=BODIES[path]) as answer:
                assert (answer.status, await answer.read()) == (500, b'{"headers": "Bearer ..."}')
        upstream.status, upstream.body = 401, b'{"error": {"message": "Incorrect API key: sk-proj-abc***xyz"}}'
        async with client.post(address + CHAT, json=BODIES[CHAT]) as answer:
            assert answer.status == 401 and b"sk-" not in await answer.read()
        upstream.status, upstream.body = 429, b'{"error": {"message": "slow down", "details": [1]}}'
        async with client.post(address + CHAT, json=BODIES[CHAT]) as answer:
            assert (answer.status, await answer.read()) == (429, upstream.body), "agents read what a provider says"


@pytest.mark.parametrize("why", ["broken off", "revoked"])
async def test_an_answer_that_ends_early_does_not_look_whole(why: str) -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        await request.read()
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: {}\n\n")
        assert request.transport is not None
        if why == "broken off":
            request.transport.abort()
        else:
            await asyncio.Event().wait()
        return answer

    async with serving(upstream) as url:
        environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "HOME": "/nonexistent"}
        own = Settings(providers={"openai": ProviderSettings(baseUrl=f"{url}/v1")})
        async with (
            AuthProxy(session_provider(environ, own, None)) as proxy,
            relayed(proxy) as address,
            aiohttp.ClientSession() as client,
            client.post(address + CHAT, json=BODIES[CHAT]) as answer,
        ):
            if why == "revoked":
                proxy.revoke()
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
            async with client.post(address + CHAT, json=BODIES[CHAT]) as later:
                assert later.status == (403 if why == "revoked" else 200)


@pytest.mark.parametrize("flavour", ["responses", "deepseek"])
async def test_an_agent_that_speaks_messages_runs_on_any_provider(flavour: str) -> None:
    async with (
        adapter(flavour, Said("Grüße")) as it,
        relayed(it.proxy) as address,
        aiohttp.ClientSession() as client,
        client.post(f"{address}/v1/messages", json={**BODIES["/v1/messages"], "model": it.model}) as answer,
    ):
        assert (await answer.json())["content"][0]["text"] == "Grüße"


@pytest.mark.slow  # the package takes seconds to load
async def test_the_client_of_openai_gets_what_its_own_servers_say_in_both_apis() -> None:
    import openai

    for flavour in ("openai", "responses"):
        server = DialectServer(flavour, Said("Grüße", calls=(("ls", {}),)), Said("whole"))
        async with server.running():
            own = ProviderSettings(kind="openai", baseUrl=server.url, keyVariable="OTHER_KEY")
            environ = {"OTHER_KEY": KEY, "ANTHROPIC_API_KEY": "k", "HOME": "/nonexistent"}
            async with (
                AuthProxy(session_provider(environ, Settings(providers={"openai": own}), None)) as proxy,
                relayed(proxy) as address,
                openai.AsyncOpenAI(api_key="dummy", base_url=f"{address}/v1", max_retries=0) as client,
            ):
                if flavour == "openai":
                    chunks = await client.chat.completions.create(
                        model="gpt-5", messages=[{"role": "user", "content": "go"}], stream=True
                    )
                    text = "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
                else:
                    said: Any = [{"type": "input_text", "text": "go"}]
                    item: Any = {"type": "message", "role": "user", "content": said}
                    events = await client.responses.create(model="gpt-5", input=[item], stream=True)
                    text = "".join([e.delta async for e in events if e.type == "response.output_text.delta"])
                assert text == "Grüße" and server.refused == []
