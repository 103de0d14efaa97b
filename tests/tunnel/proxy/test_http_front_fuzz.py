"""Whatever bytes a host sends to the HTTP front, the provider gets nothing but whole, allowed requests."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, proxy_to

from ccb.tunnel.proxy.http_front.front import HttpFront
from ccb.tunnel.proxy.policy import ROUTES
from ccb.tunnel.secret import Secret

HONEST = "\r\n".join(
    [
        "POST /v1/messages HTTP/1.1",
        "Host: model",
        f"x-auth-nonce: {NONCE}",
        "Content-Length: 2",
        "Connection: close",
        "",
        "{}",
    ]
).encode()
LINES = st.sampled_from(
    [
        "Content-Length: 2",
        "Content-Length: 200",
        "Content-Length: +2",
        "Content-Length: 2, 2",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked, identity",
        " folded: line",
        "Upgrade: h2c",
        "Connection: upgrade, x-auth-nonce",
        "Expect: 100-continue",
        "Host: evil.example",
        "Location: http://evil.example/",
        "X-Api-Key: stolen",
        f"x-auth-nonce: {NONCE}",
        f"x-auth-nonce: {NONCE}\rx-evil: 1",
        "x-auth-nonce: wrong",
        "x-long: " + "y" * 9_000,
        "no colon",
    ]
)
TARGETS = st.sampled_from(
    [
        "/v1/messages",
        f"/n/{NONCE}/v1/messages",
        "http://evil.example/v1/messages",
        "//evil.example/v1/messages",
        "/v1/messages?x=%0d%0ay",
        "/v1/messages#x",
        "/v1/organizations",
        "*",
    ]
)
BODIES = st.sampled_from(
    ["{}", "2\r\n{}\r\n0\r\n\r\n", "0\r\n\r\nGET /v1/organizations HTTP/1.1\r\nHost: x\r\n\r\n", ""]
)
REQUESTS = st.builds(
    lambda method, target, version, lines, end, body: (
        f"{method} {target} {version}{end}{end.join(lines)}{end}{end}{body}".encode()
    ),
    st.sampled_from(["POST", "GET", "CONNECT", "post", "POST POST", "PRI"]),
    TARGETS,
    st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", ""]),
    st.lists(LINES, max_size=5),
    st.sampled_from(["\r\n", "\n", "\r"]),
    BODIES,
)


async def sent_upstream(streams: list[bytes]) -> list[tuple[str, str, bytes, str]]:
    """Send each stream on a connection of its own, then an honest request. Return what the provider got."""
    seen: list[tuple[str, str, bytes, str]] = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        seen.append((request.method, request.path_qs, body, request.headers.get("x-api-key", "")))
        return web.Response()

    async def send(path: Path, stream: bytes, *, waits: bool = False) -> bytes:
        try:
            reader, writer = await asyncio.open_unix_connection(str(path))
        except FileNotFoundError:  # too many wrong nonces
            return b""
        try:
            writer.write(stream)
            if not waits:  # the front gives a request up whose client is gone
                writer.write_eof()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    with tempfile.TemporaryDirectory() as top:
        async with (
            serving(handle) as url,
            proxy_to(url) as proxy,
            HttpFront(proxy, Secret(NONCE), Path(top, "front")) as front,
            asyncio.timeout(60),
        ):
            for stream in streams:
                await send(front.socket_path, stream)
            before = len(seen)
            closed = not front.socket_path.exists()
            answer = await send(front.socket_path, HONEST, waits=True)
    assert closed or (len(seen) == before + 1 and answer.startswith(b"HTTP/1.1 200 ")), answer[:200]
    return seen


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS | st.binary(max_size=60), min_size=1, max_size=4))
def test_no_stream_of_bytes_gets_more_through_than_whole_allowed_requests(streams: list[bytes]) -> None:
    for method, target, body, key in asyncio.run(sent_upstream(streams)):
        assert (method, target.partition("?")[0]) in ROUTES
        assert "\r" not in target and "evil" not in target and key != "stolen"
        assert len(body) <= 200
