"""The HTTP front: programs that speak the Messages API through a unix socket."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, message_body, proxy_to

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.proxy.http_front.front import HttpFront
from ccb.tunnel.secret import Secret


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "front"


@asynccontextmanager
async def client_of(directory: Path, upstream: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A plain HTTP client of a running front."""
    async with (
        proxy_to(upstream) as proxy,
        HttpFront(proxy, Secret(NONCE), directory) as front,
        aiohttp.ClientSession(
            base_url="http://model", connector=aiohttp.UnixConnector(str(front.socket_path)), auto_decompress=False
        ) as client,
    ):
        yield client


NONCE_HEADER = {"x-auth-nonce": NONCE}


@pytest.mark.parametrize("nonce_in", ["header", "path"])
@pytest.mark.slow
async def test_the_official_sdk_talks_through_it_with_a_dummy_key(
    directory: Path, fake_model: FakeModel, nonce_in: str
) -> None:
    import anthropic  # these two take more than a second, which every run of any test would pay
    import httpx2

    fake_model.add(
        {"blocks": [{"type": "text", "text": "Grüße"}, {"type": "tool_use", "name": "T", "input": {"a": 1}}]}
    )
    async with proxy_to(fake_model.url) as proxy, HttpFront(proxy, Secret(NONCE), directory) as front:
        transport = httpx2.AsyncHTTPTransport(uds=str(front.socket_path))
        async with anthropic.AsyncAnthropic(
            api_key="dummy",
            base_url="http://model" if nonce_in == "header" else f"http://model/n/{NONCE}",
            default_headers=NONCE_HEADER if nonce_in == "header" else {},
            http_client=httpx2.AsyncClient(transport=transport),
        ) as client:
            async with client.messages.stream(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            ) as stream:
                final = await stream.get_final_message()
            models = await client.models.list()
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert models.data
    (seen,) = fake_model.requests
    assert seen.headers["x-api-key"] == API_KEY and "x-auth-nonce" not in seen.headers
    assert all(NONCE not in value for value in [*seen.headers.values(), seen.path])


async def test_the_socket_is_ours_alone_and_goes_with_the_front(directory: Path, fake_model: FakeModel) -> None:
    async with proxy_to(fake_model.url) as proxy:
        async with HttpFront(proxy, Secret(NONCE), directory) as front:
            modes = [stat.S_IMODE(path.lstat().st_mode) for path in (directory, front.socket_path)]
            assert modes == [0o700, 0o600]
        assert not front.socket_path.exists()


@pytest.mark.parametrize("trouble", ["open to others", "a link", "a file"])
async def test_a_directory_that_is_not_ours_alone_is_refused(
    tmp_path: Path, directory: Path, fake_model: FakeModel, trouble: str
) -> None:
    if trouble == "a link":
        (tmp_path / "real").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "real")
    elif trouble == "a file":
        directory.touch()
    else:
        directory.mkdir()
        directory.chmod(0o755)
    async with proxy_to(fake_model.url) as proxy:
        with pytest.raises(ConfigError):
            await HttpFront(proxy, Secret(NONCE), directory).__aenter__()


async def test_a_path_that_no_socket_can_have_is_a_clear_error(tmp_path: Path, fake_model: FakeModel) -> None:
    async with proxy_to(fake_model.url) as proxy:
        with pytest.raises(ConfigError, match="too long"):
            await HttpFront(proxy, Secret(NONCE), tmp_path / ("x" * 100)).__aenter__()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/v1/messages", {}, 403),
        ("POST", "/v1/messages", {"x-auth-nonce": "wrong"}, 403),
        ("POST", "/v1/messages", {"authorization": f"Bearer {NONCE}"}, 403),
        ("POST", "/n/wrong/v1/messages", NONCE_HEADER, 403),
        ("POST", f"/n/{NONCE}", {}, 404),
        ("POST", f"/n/{NONCE}/v1/messages/batches", {}, 404),
        ("POST", f"/n/{NONCE}/../v1/messages", {}, 404),
        ("POST", f"/n/{NONCE}/v1/%2e%2e/v1/messages", {}, 404),
        ("GET", "/v1/messages", NONCE_HEADER, 404),
        ("GET", "/v1/organizations", NONCE_HEADER, 404),
        ("POST", "http://evil.example/v1/messages", NONCE_HEADER, 404),
    ],
)
async def test_what_the_policy_refuses_is_refused_on_the_raw_request_line(
    directory: Path, fake_model: FakeModel, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with proxy_to(fake_model.url) as proxy, HttpFront(proxy, Secret(NONCE), directory) as front:
        reader, writer = await asyncio.open_unix_connection(str(front.socket_path))
        lines = [f"{method} {path} HTTP/1.1", "Host: model", "Content-Length: 2", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", "{}"]).encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b'"type": "error"' in answer
    assert not fake_model.requests and not fake_model.other_requests


async def test_a_head_request_of_the_base_fails_harmlessly(directory: Path, fake_model: FakeModel) -> None:
    async with client_of(directory, fake_model.url) as client, client.head(f"/n/{NONCE}") as answer:
        assert answer.status == 404
    assert not fake_model.other_requests


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_the_limit_is_413(directory: Path, fake_model: FakeModel, announced: bool) -> None:
    size = 33 * 1024 * 1024

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield b"x" * 65536

    headers = {**NONCE_HEADER, **({"content-length": str(size)} if announced else {})}
    async with (
        client_of(directory, fake_model.url) as client,
        client.post("/v1/messages", data=chunks(), headers=headers) as answer,
    ):
        assert answer.status == 413
        assert (await answer.json())["error"]["type"] == "request_too_large"
    assert not fake_model.requests


async def test_bytes_and_encoding_pass_unchanged(directory: Path) -> None:
    raw = os.urandom(3_000_000)

    async def handle(request: web.Request) -> web.Response:
        assert request.headers["accept-encoding"] == "identity"
        return web.Response(body=raw, headers={"content-encoding": "br"})

    async with (
        serving(handle) as url,
        client_of(directory, url) as client,
        client.post("/v1/messages", data=b"{}", headers=NONCE_HEADER) as answer,
    ):
        assert (await answer.read(), answer.headers["content-encoding"]) == (raw, "br")


async def test_events_come_through_while_the_model_is_still_talking(directory: Path, fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    async with (
        client_of(directory, fake_model.url) as client,
        client.post("/v1/messages", data=message_body(), headers=NONCE_HEADER) as answer,
    ):
        assert b"message_start" in await answer.content.readany()
        assert not fake_model.finished
        fake_model.release()
        assert (await answer.read()).endswith(b'"message_stop"}\n\n')


async def test_the_head_of_an_answer_does_not_wait_for_its_first_byte(directory: Path) -> None:
    head_seen = asyncio.Event()

    async def upstream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await head_seen.wait()
        await response.write(b"data: {}\n\n")
        return response

    async with (
        serving(upstream) as url,
        client_of(directory, url) as client,
        asyncio.timeout(20),
        client.post("/v1/messages", data=message_body(), headers=NONCE_HEADER) as answer,
    ):
        head_seen.set()
        assert await answer.read() == b"data: {}\n\n"


async def test_a_client_that_leaves_aborts_the_upstream_request(directory: Path, fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2})
    async with client_of(directory, fake_model.url) as client:
        async with client.post("/v1/messages", data=message_body(), headers=NONCE_HEADER) as answer:
            await answer.content.readany()
            answer.close()
        await fake_model.until(lambda model: model.aborted == [1])


async def test_a_client_that_leaves_before_the_response_head_aborts_it_too(
    directory: Path, fake_model: FakeModel
) -> None:
    fake_model.add({"text": "x", "first_delay": 60})
    async with client_of(directory, fake_model.url) as client:
        call = asyncio.create_task(client.post("/v1/messages", data=message_body(), headers=NONCE_HEADER).__aenter__())
        await fake_model.until(lambda model: len(model.requests) == 1)
        call.cancel()
        await fake_model.until(lambda model: model.aborted == [1])


async def test_an_upstream_cut_is_a_broken_body_never_a_short_one(directory: Path, fake_model: FakeModel) -> None:
    fake_model.add({"text": "partly", "cut_after": 300})
    async with (
        client_of(directory, fake_model.url) as client,
        client.post("/v1/messages", data=message_body(), headers=NONCE_HEADER) as answer,
    ):
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_fifty_clients_at_once(directory: Path, fake_model: FakeModel) -> None:
    fake_model.add({"text": "x", "stall_after": 2, "times": 50})
    async with client_of(directory, fake_model.url) as client:

        async def one(number: int) -> bytes:
            async with client.post(
                "/v1/messages", data=message_body(f"prompt {number}"), headers=NONCE_HEADER
            ) as answer:
                return await answer.read()

        calls = [asyncio.create_task(one(number)) for number in range(50)]
        await fake_model.until(lambda model: len(model.requests) == 50)
        fake_model.release()
        answers = await asyncio.gather(*calls)
    assert len(set(answers)) == 50 and all(answer.endswith(b'"message_stop"}\n\n') for answer in answers)
