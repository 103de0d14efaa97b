"""The way to a provider through networks as companies have them: rules of NO_PROXY, client certificates, IPv6, and
connections that are used again. Each against a real server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.network.certificates import Authority
from tests.support.network.http_server import serving

from ccb.local.config.settings import NetworkSettings
from ccb.tunnel.errors import ConfigError
from ccb.tunnel.providers import http_client
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.http_client import ProviderClient, endpoint_at, tls_context
from ccb.tunnel.providers.provider import ProviderError, ProviderRequest


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def get(client: ProviderClient) -> tuple[int, bytes]:
    async with client.request(ProviderRequest("GET", "/v1/models", {}, nothing(), 0)) as response:
        return response.status, b"".join([chunk async for chunk in response.chunks])


def client_of(url: str, **environ: str) -> ProviderClient:
    return ProviderClient(endpoint_at(url, "X", environ), environ)


async def hello(request: web.Request) -> web.Response:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    return web.json_response({"peer": request.transport.get_extra_info("peername")[:2], "shown": bool(certificate)})


@pytest.mark.parametrize(
    ("base", "no_proxy", "direct"),
    [
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://11.1.2.3", "10.0.0.0/8", False),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://[fd00::1]:8443", "[fd00::1]:8443", True),
        ("https://[fd00::1]:8443", "[fd00::1]:9", False),
        ("https://llm.corp.example", "corp.example", True),
        ("https://llm.corp.example", ".corp.example", True),
        ("https://llm.corp.example", "*.corp.example", True),
        ("https://LLM.corp.example", "CORP.example", True),
        ("https://notcorp.example", "corp.example", False),
        ("https://llm.corp.example:8443", "corp.example:8443", True),
        ("https://llm.corp.example:8443", "corp.example:443", False),
        ("https://llm.corp.example", "10.0.0.0/8, other  corp.example", True),
        ("https://llm.corp.example", ", ,", False),
        ("https://llm.corp.example", "corp.example/24", False),
    ],
)
def test_no_proxy_takes_names_suffixes_addresses_networks_and_ports(base: str, no_proxy: str, direct: bool) -> None:
    environ = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy, "ANTHROPIC_BASE_URL": base}
    assert (anthropic_endpoint(environ).proxy is None) is direct


async def test_a_gateway_that_wants_a_certificate_of_this_machine_gets_it(authority: Authority) -> None:
    authority.server("laptop.test")
    mine = str(authority.pem_of("laptop.test"))
    async with serving(hello, authority.server(wants_client=True)) as url:
        async with client_of(url, SSL_CERT_FILE=str(authority.ca_file), CCB_CLIENT_CERT=mine) as client:
            status, body = await get(client)
        assert status == 200 and b'"shown": true' in body
        async with client_of(url, SSL_CERT_FILE=str(authority.ca_file)) as client:
            with pytest.raises(ProviderError):
                await get(client)


def test_a_client_certificate_that_cannot_be_used_is_named_and_no_terminal_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "mine.pem"
    path.write_text("no certificate")
    for named in (path, tmp_path / "nothing"):
        with pytest.raises(ConfigError, match="CCB_CLIENT_CERT cannot be used"):
            tls_context({"CCB_CLIENT_CERT": str(named)})


def test_the_settings_stand_in_for_variables_that_are_not_set() -> None:
    own = NetworkSettings(caFile="/ca.pem", clientCertificate="~/me.pem")
    found = own.over({"SSL_CERT_FILE": "", "HOME": "/h", "CCB_CLIENT_KEY": "/k"})
    assert found["SSL_CERT_FILE"] == "/ca.pem" and found["CCB_CLIENT_KEY"] == "/k"
    assert found["CCB_CLIENT_CERT"] == str(Path("~/me.pem").expanduser())
    assert own.over({"SSL_CERT_FILE": "/other.pem"})["SSL_CERT_FILE"] == "/other.pem"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_a_provider_at_an_ipv6_address(authority: Authority) -> None:
    async with serving(hello, authority.server("::1"), address="::1") as url:
        client = client_of(url, SSL_CERT_FILE=str(authority.ca_file))
        assert client.endpoint.host.startswith("[::1]:"), "a stored key belongs to this name"
        async with client:
            assert (await get(client))[0] == 200


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with serving(hello) as url, client_of(url) as client:
        peers = {(await get(client))[1] for _ in range(3)}
    assert len(peers) == 1


async def test_a_provider_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "READ_TIMEOUT", 0.2)

    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        await asyncio.Event().wait()
        return response

    async with serving(silent) as url, client_of(url) as client:
        with pytest.raises(ProviderError, match="did not answer in time"):
            await get(client)


async def test_a_provider_that_goes_on_is_not_given_up_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "READ_TIMEOUT", 0.6)

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(5):
            await asyncio.sleep(0.2)
            await response.write(b"piece ")
        return response

    async with serving(slow) as url, client_of(url) as client:
        assert await get(client) == (200, b"piece " * 5)


async def test_an_upstream_that_closes_an_idle_connection_costs_no_call() -> None:
    served = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await reader.readuntil(b"\r\n\r\n")
        served += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()  # without having said so

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    async with server, client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        for number in range(1, 4):
            assert await get(client) == (200, b"ok")
            assert served == number
