"""The auth proxy: what it lets through, what it adds, what it hides, and what it does when either side fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import (
    NONCE,
    body_of,
    guard,
    message_body,
    pieces,
    proxy_to,
    read_all,
    request_head,
)

from ccb.tunnel.errors import CredentialError
from ccb.tunnel.providers.credential import Credential, CredentialKind, FixedCredential
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.proxy.auth_proxy import BodyLost
from ccb.tunnel.proxy.policy import CallPace, Policy
from ccb.tunnel.secret import Secret


def error_of(body: bytes) -> dict[str, Any]:
    parsed = json.loads(body)
    assert parsed["type"] == "error"
    return dict(parsed["error"])


async def test_a_call_gets_the_key_and_loses_every_credential_and_hop_header_it_brought(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello"})
    body = message_body()
    brought = {
        "Authorization": "Bearer stolen",
        "X-Api-Key": "stolen",
        "Proxy-Authorization": "Basic c3RvbGVu",
        "Cookie": "session=stolen",
        "X-Auth-Nonce": NONCE,
        "Anthropic-Auth-Token": "stolen",
        "Anthropic-Api-Key": "stolen",
        "Connection": "upgrade",
        "Upgrade": "h2c",
        "Transfer-Encoding": "chunked",
        "Content-Length": "999999",
        "Host": "evil.example",
        "X-Forwarded-For": "10.0.0.1",
        "Accept-Encoding": "gzip",
        "Content-Type": "application/json",
        "User-Agent": "worker/1",
        "Anthropic-Version": "2023-06-01",
        "Anthropic-Beta": "a-1,b-2",
        "X-Stainless-Retry-Count": "0",
    }
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(
            request_head(body, headers=brought, path="/v1/messages?beta=true"), pieces(body), nonce=guard()
        ) as answer,
    ):
        assert answer.status == 200
        text = await read_all(answer)
    assert text.endswith(b'{"type": "message_stop"}\n\n')
    (seen,) = fake_model.requests
    assert (seen.path, seen.query, seen.body) == ("/v1/messages", "beta=true", json.loads(body))
    assert {name: value for name, value in seen.headers.items() if name != "host"} == {
        "x-api-key": API_KEY,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "user-agent": "worker/1",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "a-1,b-2",
        "x-stainless-retry-count": "0",
        "accept-encoding": "identity",
    }
    assert seen.headers["host"] == fake_model.url.removeprefix("http://")


@pytest.mark.parametrize(
    ("credential", "kind", "headers"),
    [
        (Credential("a", api_key=Secret("k")), CredentialKind.API_KEY, {"x-api-key": "k"}),
        (Credential("b", bearer=Secret("t")), CredentialKind.BEARER, {"authorization": "Bearer t"}),
        (
            Credential("c", api_key=Secret("k"), bearer=Secret("t")),
            CredentialKind.BOTH,
            {"x-api-key": "k", "authorization": "Bearer t"},
        ),
    ],
    ids=["key", "bearer", "both"],
)
async def test_each_kind_of_credential_travels_in_its_own_header(
    fake_model: FakeModel, credential: Credential, kind: CredentialKind, headers: dict[str, str]
) -> None:
    head = request_head(method="GET", path="/v1/models?limit=5")
    async with (
        proxy_to(fake_model.url, credential=FixedCredential(credential)) as proxy,
        proxy.call(head, pieces(b""), nonce=guard()) as answer,
    ):
        await read_all(answer)
    (seen,) = fake_model.other_requests
    sent = {name: seen.headers[name] for name in ("x-api-key", "authorization") if name in seen.headers}
    assert (sent, seen.query, credential.kind) == (headers, "limit=5", kind)


async def test_the_response_passes_byte_for_byte_and_sensitive_headers_stay_behind() -> None:
    raw = bytes(range(256)) * 700

    async def handle(_: web.Request) -> web.Response:
        return web.Response(
            status=418,
            body=raw,
            headers={
                "content-type": "application/x-odd",
                "content-encoding": "gzip",
                "request-id": "req_1",
                "retry-after": "7",
                "anthropic-ratelimit-requests-remaining": "3",
                "x-should-retry": "false",
                "anthropic-organization-id": "org",
                "set-cookie": "a=b",
                "authorization": "Bearer echo",
                "x-api-key": "echo",
                "server": "internal",
                "via": "internal",
                "x-envoy-upstream-service-time": "1",
                "cf-ray": "1",
            },
        )

    async with serving(handle) as url, proxy_to(url) as proxy:
        async with proxy.call(request_head(b"{}"), pieces(b"{}"), nonce=guard()) as answer:
            assert await read_all(answer) == raw
        assert (answer.status, answer.headers) == (
            418,
            {
                "content-type": "application/x-odd",
                "content-encoding": "gzip",
                "content-length": str(len(raw)),
                "request-id": "req_1",
                "retry-after": "7",
                "anthropic-ratelimit-requests-remaining": "3",
                "x-should-retry": "false",
            },
        )


@pytest.mark.parametrize("given", ["", "nonce-of-this-connectio", "nonce-of-this-connection ", "ünïcödé"])
async def test_a_wrong_nonce_is_403_whatever_else_is_asked(fake_model: FakeModel, given: str) -> None:
    async with proxy_to(fake_model.url) as proxy:
        for path in ("/v1/messages", "/nowhere"):
            async with proxy.call(request_head(nonce=given, path=path), pieces(b""), nonce=guard()) as answer:
                assert (answer.status, error_of(await read_all(answer))["type"]) == (403, "permission_error")
        async with proxy.call(request_head(nonce=""), pieces(b""), nonce=guard("")) as answer:
            assert answer.status == 403
    assert not fake_model.requests and not fake_model.other_requests


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/messages"),
        ("POST", "/v1/models"),
        ("DELETE", "/v1/messages"),
        ("post", "/v1/messages"),
        ("HEAD", "/"),
        ("POST", "/"),
        ("POST", ""),
        ("POST", "/v1/messages/"),
        ("POST", "//v1/messages"),
        ("POST", "/v1//messages"),
        ("POST", "/v1/./messages"),
        ("POST", "/v1/organizations/../messages"),
        ("POST", "/v1/messages/../organizations"),
        ("POST", "/v1/messages%2f..%2forganizations"),
        ("POST", "/v1/%6dessages"),
        ("POST", "/v1/messages;x=1"),
        ("POST", "/v1/messages#fragment"),
        ("POST", "/v1/messages\\batches"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1/organizations/api_keys"),
        ("POST", "http://evil.example/v1/messages"),
        ("POST", "@evil.example/v1/messages"),
        ("POST", "/v1/messages\r\nhost: evil"),
        ("POST", "/v1/messages?a=b\r\nx: y"),
        ("POST", "/v1/messages?a=b#c"),
        ("POST", "/v1/messages?a= HTTP/1.1"),
    ],
)
async def test_any_other_method_or_path_is_404_and_never_leaves(fake_model: FakeModel, method: str, path: str) -> None:
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(request_head(method=method, path=path), pieces(b""), nonce=guard()) as answer,
    ):
        assert (answer.status, error_of(await read_all(answer))["type"]) == (404, "not_found_error")
    assert not fake_model.requests and not fake_model.other_requests


@pytest.mark.parametrize(
    "headers",
    [
        {"user-agent": "a\r\nx-api-key: b"},
        {"user-agent": "a\nx-api-key: b"},
        {"a b": "c"},
        {"anthropic-a:b": "c"},
        {"": "c"},
        {"user-agent": "\0"},
        {"x-app": "y" * 9000},
    ],
)
async def test_a_malformed_header_is_refused(fake_model: FakeModel, headers: dict[str, str]) -> None:
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(request_head(headers=headers), pieces(b""), nonce=guard()) as answer,
    ):
        assert answer.status == 400
    assert not fake_model.requests


async def test_a_body_over_the_limit_is_413_by_its_announcement_and_while_it_streams(fake_model: FakeModel) -> None:
    body = b"x" * 5000
    async with proxy_to(fake_model.url, policy=Policy(max_body=4096)) as proxy:
        async with proxy.call(request_head(body), pieces(body), nonce=guard()) as answer:
            assert (answer.status, error_of(await read_all(answer))["type"]) == (413, "request_too_large")
        unannounced = request_head(body)
        unannounced = type(unannounced)("", NONCE, "POST", "/v1/messages", {}, None)
        async with proxy.call(unannounced, pieces(body, 500), nonce=guard()) as answer:
            assert answer.status == 413
    assert not fake_model.requests


async def test_the_default_limit_is_32_mib() -> None:
    assert Policy().max_body == 32 * 1024 * 1024


@pytest.mark.parametrize("announced", [3, 9])
async def test_a_body_of_another_length_than_announced_is_refused(fake_model: FakeModel, announced: int) -> None:
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(request_head(b"x" * announced), pieces(b"x" * 6, 2), nonce=guard()) as answer,
    ):
        assert (answer.status, error_of(await read_all(answer))["type"]) == (400, "invalid_request_error")
    assert not fake_model.requests


async def test_an_upstream_that_refuses_connections_is_503_in_the_shape_of_the_api(unused_tcp_port: int) -> None:
    async with (
        proxy_to(f"http://127.0.0.1:{unused_tcp_port}") as proxy,
        proxy.call(request_head(b"{}"), pieces(b"{}"), nonce=guard()) as answer,
    ):
        error = error_of(await read_all(answer))
        assert (answer.status, error["type"], "x-should-retry" in answer.headers) == (503, "laptop_unreachable", False)
        where, to_do = f"127.0.0.1:{unused_tcp_port}", "check ANTHROPIC_BASE_URL, the network, HTTPS_PROXY"
        assert error["message"] == (
            f"this laptop cannot reach {where}: 127.0.0.1 does not answer: Connection refused; {to_do}"
        )


async def test_a_name_that_does_not_resolve_is_503_and_named() -> None:
    async with (
        proxy_to("https://no-such-host.invalid") as proxy,
        proxy.call(request_head(b"{}"), pieces(b"{}"), nonce=guard()) as answer,
    ):
        assert answer.status == 503
        assert "no-such-host.invalid does not resolve" in error_of(await read_all(answer))["message"]


async def test_a_redirect_is_not_followed_with_the_credential(fake_model: FakeModel) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"{fake_model.url}/v1/messages"})

    async with (
        serving(handle) as url,
        proxy_to(url) as proxy,
        proxy.call(request_head(b"{}"), pieces(b"{}"), nonce=guard()) as answer,
    ):
        assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
        assert error_of(await read_all(answer))["type"] == "laptop_unreachable"
    assert not fake_model.requests


async def test_an_upstream_that_breaks_off_is_an_error_behind_exactly_what_had_arrived(fake_model: FakeModel) -> None:
    fake_model.add({"text": "partly", "cut_after": 300})
    body = message_body()
    got = b""
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(request_head(body), pieces(body), nonce=guard()) as answer,
    ):
        with pytest.raises(ProviderError):
            async for piece in body_of(answer):
                got += piece
    assert len(got) == 300


class NoCredential:
    async def get(self) -> Credential:
        raise CredentialError("no API key", evidence="helper said sk-secret", do="Run ccb auth login.")

    async def refused(self, credential: Credential) -> bool:
        return False


async def test_without_a_credential_the_worker_gets_401_with_what_to_do_and_no_evidence(fake_model: FakeModel) -> None:
    async with (
        proxy_to(fake_model.url, credential=NoCredential()) as proxy,
        proxy.call(request_head(b"{}"), pieces(b"{}"), nonce=guard()) as answer,
    ):
        error = error_of(await read_all(answer))
        assert (answer.status, error["type"], answer.headers["x-should-retry"]) == (
            401,
            "authentication_error",
            "false",
        )
        assert "no API key" in error["message"] and "ccb auth login" in error["message"]
        assert "sk-secret" not in error["message"]
    assert not fake_model.requests


class Rotating:
    """The first key is stale; a refusal fetches the next."""

    def __init__(self) -> None:
        self.keys = ["stale", API_KEY]

    async def get(self) -> Credential:
        return Credential("apiKeyHelper", api_key=Secret(self.keys[0]))

    async def refused(self, credential: Credential) -> bool:
        del self.keys[0]
        return True


async def test_after_a_401_a_source_that_can_refresh_is_asked_again_and_the_worker_told_to_retry(
    fake_model: FakeModel,
) -> None:
    fake_model.add({"text": "ok"})
    body = message_body()
    answers = []
    async with proxy_to(fake_model.url, credential=Rotating()) as proxy:
        for _ in range(2):
            async with proxy.call(request_head(body), pieces(body), nonce=guard()) as answer:
                await read_all(answer)
                answers.append((answer.status, answer.headers.get("x-should-retry")))
    assert answers == [(401, "true"), (200, None)]


async def test_the_first_bytes_arrive_while_the_model_is_still_talking(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x" * 100, "stall_after": 2})
    body = message_body()
    async with (
        proxy_to(fake_model.url) as proxy,
        proxy.call(request_head(body), pieces(body), nonce=guard()) as answer,
    ):
        first = await answer.read()
        assert b"message_start" in first and not fake_model.finished
        fake_model.release()
        assert b"message_stop" in await read_all(answer)


async def test_a_call_that_nobody_can_resume_is_aborted_when_its_reader_leaves(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        async with proxy.call(request_head(body), pieces(body), nonce=guard()) as answer:
            await answer.read()
        await fake_model.until(lambda model: model.aborted == [1])
        assert not proxy.keeps_calls


async def test_a_sender_that_vanishes_in_the_middle_of_its_body_aborts_the_upstream_request() -> None:
    aborted = asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        try:
            await request.read()
        except BaseException:
            aborted.set()
            raise
        return web.Response()

    async def half() -> AsyncIterator[bytes]:
        yield b"x" * 100
        raise BodyLost

    async with serving(handle) as url, proxy_to(url) as proxy:
        async with proxy.call(request_head(b"x" * 200), half(), nonce=guard()) as answer:
            assert answer.status == 400
        async with asyncio.timeout(60):
            await aborted.wait()


async def test_calls_over_the_limit_are_told_to_come_back(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body()
    async with (
        proxy_to(fake_model.url, policy=Policy(max_calls=1)) as proxy,
        proxy.call(request_head(body), pieces(body), nonce=guard()),
        proxy.call(request_head(body), pieces(body), nonce=guard()) as second,
    ):
        assert (second.status, second.headers["retry-after"]) == (529, "1")


async def test_a_worker_that_only_calls_is_held_back_and_the_person_is_told(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "times": 0})
    body, told = message_body(), list[str]()
    policy = Policy(max_burst=5, max_per_minute=0.5)
    async with proxy_to(fake_model.url, policy=policy, warn=told.append) as proxy:
        answers = []
        for number in range(20):
            async with proxy.call(request_head(body, call_id=f"c{number}"), pieces(body), nonce=guard()) as answer:
                answers.append((answer.status, int(answer.headers.get("retry-after", 0)) > 60))
                await answer.read()
    assert answers == [(200, False)] * 5 + [(529, True)] * 15
    assert len(fake_model.requests) == 5, "nothing was paid for the others"
    assert len(told) == 1 and "more than 0.5 model calls in a minute" in told[0]


def test_the_pace_comes_back_with_time() -> None:
    pace = CallPace(2, 60, 0.0)
    assert [pace.wait(0.0), pace.wait(0.0)] == [0, 0]
    assert pace.wait(0.0) == pytest.approx(1)
    assert pace.wait(1.0) == 0 and pace.wait(1.5) == pytest.approx(0.5)
    assert [pace.wait(1_000) for _ in range(3)][:2] == [0, 0]


async def test_closing_the_proxy_aborts_what_is_under_way(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    body = message_body()
    async with proxy_to(fake_model.url) as proxy:
        async with proxy.call(request_head(body, call_id="c"), pieces(body), nonce=guard()) as answer:
            await answer.read()
        assert proxy.under_way == 1
    await fake_model.until(lambda model: model.aborted == [1])


def test_a_request_head_shows_neither_nonce_nor_headers() -> None:
    assert NONCE not in repr(request_head(headers={"x-api-key": "s3cret"}))
    assert "s3cret" not in repr(request_head(headers={"x-api-key": "s3cret"}))
