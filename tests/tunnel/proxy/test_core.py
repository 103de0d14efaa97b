"""The auth proxy: what it lets through, what it adds, what it hides, and what it does when either side fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import (
    answer_to,
    calling,
    guard,
    message_body,
    pieces,
    proxy_to,
    read_all,
    request_head,
)

from ccb.tunnel.errors import CredentialError
from ccb.tunnel.providers.credential import Credential, FixedCredential
from ccb.tunnel.proxy.auth_proxy import BodyLost
from ccb.tunnel.proxy.policy import CallPace, Policy
from ccb.tunnel.secret import Secret


async def test_a_call_gets_the_key_and_loses_every_credential_and_hop_header_it_brought(fake_model: FakeModel) -> None:
    fake_model.add({"text": "hello"})
    body = message_body()
    kept = {"content-type": "application/json", "user-agent": "worker/1", "x-stainless-retry-count": "0"}
    kept |= {"anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2"}
    stolen = ("Authorization", "X-Api-Key", "Proxy-Authorization", "Cookie", "X-Auth-Nonce", "Anthropic-Auth-Token")
    hops = {"Connection": "upgrade", "Upgrade": "h2c", "Transfer-Encoding": "chunked", "Content-Length": "999999"}
    hops |= {"Host": "evil.example", "X-Forwarded-For": "10.0.0.1", "Accept-Encoding": "gzip"}
    brought = {**dict.fromkeys((*stolen, "Anthropic-Api-Key"), "stolen"), **hops}
    brought |= {name.title(): value for name, value in kept.items()}
    brought["Content-Type"] = "application/json; charset=utf-7"  # not as the proxy has read it
    async with proxy_to(fake_model.url) as proxy:
        answer = await answer_to(proxy, body, headers=brought, path="/v1/messages?beta=true")
    assert answer.status == 200 and answer.body.endswith(b'{"type": "message_stop"}\n\n')
    (seen,) = fake_model.requests
    assert (seen.path, seen.query, seen.body) == ("/v1/messages", "beta=true", json.loads(body))
    added = {"x-api-key": API_KEY, "content-length": str(len(body)), "accept-encoding": "identity"}
    assert seen.headers == {**kept, **added, "host": fake_model.url.removeprefix("http://")}


async def test_key_and_token_have_their_own_headers(fake_model: FakeModel) -> None:
    credential = Credential("c", api_key=Secret("k"), bearer=Secret("t"))
    async with proxy_to(fake_model.url, credential=FixedCredential(credential)) as proxy:
        await answer_to(proxy, b"", method="GET", path="/v1/models?limit=5")
    (seen,) = fake_model.other_requests
    assert (seen.headers["x-api-key"], seen.headers["authorization"], seen.query) == ("k", "Bearer t", "limit=5")


async def test_the_response_passes_byte_for_byte_and_sensitive_headers_stay_behind() -> None:
    raw = bytes(range(256)) * 700
    kept = {"content-type": "application/x-odd", "content-encoding": "gzip", "request-id": "req_1"}
    kept |= {"retry-after": "7", "anthropic-ratelimit-requests-remaining": "3", "x-should-retry": "false"}
    hidden = ("anthropic-organization-id", "set-cookie", "authorization", "x-api-key", "server", "via", "cf-ray")

    async def handle(_: web.Request) -> web.Response:
        headers = {**kept, **dict.fromkeys((*hidden, "x-envoy-upstream-service-time"), "internal")}
        return web.Response(status=418, body=raw, headers=headers)

    async with serving(handle) as url, proxy_to(url) as proxy:
        answer = await answer_to(proxy)
    assert (answer.status, answer.body) == (418, raw)
    assert answer.headers == {**kept, "content-length": str(len(raw))}


@pytest.mark.parametrize("given", ["", "nonce-of-this-connectio", "nonce-of-this-connection ", "ünïcödé"])
async def test_a_wrong_nonce_is_403_whatever_else_is_asked(fake_model: FakeModel, given: str) -> None:
    async with proxy_to(fake_model.url) as proxy:
        for path in ("/v1/messages", "/nowhere"):
            answer = await answer_to(proxy, b"", nonce=given, path=path)
            assert (answer.status, answer.error["type"]) == (403, "permission_error")
        assert (await answer_to(proxy, b"", nonce="", connection=guard(""))).status == 403
    assert not fake_model.requests and not fake_model.other_requests


OTHER_PATHS = (
    *("/", "", "/v1/models", "/v1/messages/", "//v1/messages", "/v1//messages", "/v1/./messages", "/v1/%6dessages"),
    *("/v1/organizations/../messages", "/v1/messages/../organizations", "/v1/messages%2f..%2forganizations"),
    *("/v1/messages;x=1", "/v1/messages#fragment", "/v1/messages\\batches", "/v1/messages/batches"),
    *("/v1/organizations/api_keys", "http://evil.example/v1/messages", "@evil.example/v1/messages"),
    *("/v1/messages\r\nhost: evil", "/v1/messages?a=b\r\nx: y", "/v1/messages?a=b#c", "/v1/messages?a= HTTP/1.1"),
)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("POST", path) for path in OTHER_PATHS),
        *((method, "/v1/messages") for method in ("GET", "DELETE", "post")),
        ("HEAD", "/"),
    ],
)
async def test_any_other_method_or_path_is_404_and_never_leaves(fake_model: FakeModel, method: str, path: str) -> None:
    async with proxy_to(fake_model.url) as proxy:
        answer = await answer_to(proxy, b"", method=method, path=path)
    assert (answer.status, answer.error["type"]) == (404, "not_found_error")
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
    async with proxy_to(fake_model.url) as proxy:
        assert (await answer_to(proxy, b"", headers=headers)).status == 400
    assert not fake_model.requests


async def test_an_upstream_that_cannot_be_reached_is_503_in_the_shape_of_the_api(unused_tcp_port: int) -> None:
    where = f"127.0.0.1:{unused_tcp_port}"
    async with proxy_to(f"http://{where}") as proxy:
        answer = await answer_to(proxy)
    assert (answer.status, answer.error["type"]) == (503, "laptop_unreachable")
    assert "x-should-retry" not in answer.headers
    assert answer.error["message"] == (
        f"this laptop cannot reach {where}: 127.0.0.1 does not answer: Connection refused; "
        "check ANTHROPIC_BASE_URL, the network, HTTPS_PROXY"
    )
    async with proxy_to("https://no-such-host.invalid") as proxy:
        answer = await answer_to(proxy)
    assert answer.status == 503 and "no-such-host.invalid does not resolve" in answer.error["message"]


async def test_a_redirect_is_not_followed_with_the_credential(fake_model: FakeModel) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"{fake_model.url}/v1/messages"})

    async with serving(handle) as url, proxy_to(url) as proxy:
        answer = await answer_to(proxy)
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
    assert answer.error["type"] == "laptop_unreachable" and not fake_model.requests


class NoCredential:
    async def get(self) -> Credential:
        raise CredentialError("no API key", evidence="helper said sk-secret", do="Run ccb auth login.")

    async def refused(self, credential: Credential) -> bool:
        return False


async def test_without_a_credential_the_worker_gets_401_with_what_to_do_and_no_evidence(fake_model: FakeModel) -> None:
    async with proxy_to(fake_model.url, credential=NoCredential()) as proxy:
        answer = await answer_to(proxy)
    assert (answer.status, answer.error["type"]) == (401, "authentication_error")
    assert answer.headers["x-should-retry"] == "false" and not fake_model.requests
    message = answer.error["message"]
    assert "no API key" in message and "ccb auth login" in message and "sk-secret" not in message


class Rotating:
    """The first key is stale; a refusal fetches the next."""

    def __init__(self) -> None:
        self.keys = ["stale", API_KEY]

    async def get(self) -> Credential:
        return Credential("apiKeyHelper", api_key=Secret(self.keys[0]))

    async def refused(self, credential: Credential) -> bool:
        del self.keys[0]
        return True


async def test_after_a_401_a_source_is_asked_again_and_the_worker_told_to_retry(fake_model: FakeModel) -> None:
    fake_model.add({"text": "ok"})
    async with proxy_to(fake_model.url, credential=Rotating()) as proxy:
        answers = [await answer_to(proxy) for _ in range(2)]
    assert [(each.status, each.headers.get("x-should-retry")) for each in answers] == [(401, "true"), (200, None)]


async def test_a_call_that_nobody_can_resume_is_aborted_when_its_reader_leaves(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    async with proxy_to(fake_model.url) as proxy:
        async with calling(proxy) as answer:
            await answer.read()
        await fake_model.until(lambda model: model.aborted == [1])
        assert not proxy.keeps_calls


async def test_of_a_sender_that_vanishes_in_the_middle_of_its_body_nothing_goes_upstream(fake_model: FakeModel) -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        raise BodyLost

    async with proxy_to(fake_model.url) as proxy, proxy.call(request_head(b"{}"), half(), nonce=guard()) as answer:
        assert answer.status == 400
    assert not fake_model.requests


@pytest.mark.parametrize(("length", "says"), [(900, "shorter"), (5_000, "longer")])
async def test_a_body_has_the_length_that_was_announced(fake_model: FakeModel, length: int, says: str) -> None:
    head, body = request_head(b"x" * 1_000), pieces(b"x" * length, 300)
    async with proxy_to(fake_model.url) as proxy, proxy.call(head, body, nonce=guard()) as answer:
        said = await read_all(answer)
    assert answer.status == 400 and f"{says} than announced" in said.decode()
    assert not fake_model.requests


async def test_calls_over_the_limit_are_told_to_come_back(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    policy = Policy(max_calls=1)
    async with proxy_to(fake_model.url, policy=policy) as proxy, calling(proxy), calling(proxy) as second:
        assert (second.status, second.headers["retry-after"]) == (529, "1")


async def test_a_worker_that_only_calls_is_held_back_and_the_person_is_told(fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "times": 0})
    told = list[str]()
    policy = Policy(max_burst=5, max_per_minute=0.5)
    async with proxy_to(fake_model.url, policy=policy, warn=told.append) as proxy:
        answers = [await answer_to(proxy, call_id=f"c{number}") for number in range(20)]
    assert [each.status for each in answers] == [200] * 5 + [529] * 15
    assert all(int(each.headers["retry-after"]) > 60 for each in answers[5:])
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
    async with proxy_to(fake_model.url) as proxy:
        async with calling(proxy, call_id="c") as answer:
            await answer.read()
        assert proxy.under_way == 1
    await fake_model.until(lambda model: model.aborted == [1])


def test_a_request_head_shows_neither_nonce_nor_headers() -> None:
    assert "nonce-of-this" not in repr(request_head(headers={"x-api-key": "s3cret"}))
    assert "s3cret" not in repr(request_head(headers={"x-api-key": "s3cret"}))
