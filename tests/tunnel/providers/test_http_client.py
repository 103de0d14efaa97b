"""The way to the provider: base URL, TLS, proxies of the environment, client certificates, IPv6, and connections that
are used again. Each against a real server."""

from __future__ import annotations

import asyncio
import base64
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.model.fake_model import FakeModel
from tests.support.network.certificates import Authority
from tests.support.network.connect_proxy import connect_proxy
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import Answer, answer_to, message_body, proxy_to

from ccb.local.config.settings import NetworkSettings
from ccb.tunnel.errors import ConfigError
from ccb.tunnel.providers import http_client
from ccb.tunnel.providers.anthropic import anthropic_client, anthropic_endpoint
from ccb.tunnel.providers.http_client import ProviderClient, endpoint_at, tls_context
from ccb.tunnel.providers.provider import ProviderError, ProviderRequest, WholeBody


async def answer_through(url: str, environ: dict[str, str] | None = None) -> Answer:
    async with proxy_to(url, environ=environ) as proxy:
        return await answer_to(proxy, message_body())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_the_default_is_the_public_api() -> None:
    assert str(anthropic_endpoint({}).base) == "https://api.anthropic.com"
    assert anthropic_endpoint({"ANTHROPIC_BASE_URL": ""}).host == "api.anthropic.com"
    assert anthropic_endpoint({"ANTHROPIC_BASE_URL": "https://gw.example:8443/a"}).host == "gw.example:8443"


@pytest.mark.parametrize("base", ["/gateway/v2", "/gateway/v2/", ""])
async def test_a_path_in_the_base_url_is_kept(base: str) -> None:
    paths: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        return web.Response(body=b"ok")

    async with serving(handle) as url:
        await answer_through(url + base)
    assert paths == [base.rstrip("/") + "/v1/messages"]


WRONG_URLS = ("api.anthropic.com", "ftp://host", "https://", "https://user:pass@host", "https://host?x=1")


@pytest.mark.parametrize("value", [*WRONG_URLS, "https://host#x", "https://host:99999", "http://[::1"])
def test_a_base_url_that_is_none_is_a_config_error_that_does_not_repeat_it(value: str) -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_BASE_URL") as caught:
        anthropic_endpoint({"ANTHROPIC_BASE_URL": value})
    assert "pass" not in str(caught.value) and caught.value.do


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.5.5.5"])
def test_plain_http_is_for_loopback(host: str) -> None:
    assert anthropic_endpoint({"ANTHROPIC_BASE_URL": f"http://{host}:1"}).base.scheme == "http"


@pytest.mark.parametrize("host", ["gw.example", "10.0.0.1", "localhost.example", "[fe80::1]"])
def test_plain_http_to_another_host_must_be_asked_for(host: str, caplog: pytest.LogCaptureFixture) -> None:
    environ = {"ANTHROPIC_BASE_URL": f"http://{host}"}
    with pytest.raises(ConfigError, match="without TLS"):
        anthropic_endpoint(environ)
    assert anthropic_endpoint(environ, allow_plain=True).base.scheme == "http"
    assert "without TLS" in caplog.text
    with pytest.raises(ConfigError):
        anthropic_client(environ)
    anthropic_client({**environ, "CCB_ALLOW_HTTP_UPSTREAM": "1"})


@pytest.mark.parametrize(
    ("base", "proxy", "read"),
    [
        ("https://gw.example", "", True),
        ("https://gw.example", "http://proxy.example:3128", True),
        ("http://gw.example", "https://proxy.example:3128", True),
        ("http://gw.example", "http://proxy.example:3128", False),
        ("http://127.0.0.1:1", "https://proxy.example:3128", False),
    ],
)
def test_cas_are_read_where_somebody_on_the_way_has_a_certificate_to_show(base: str, proxy: str, read: bool) -> None:
    variables = {"ANTHROPIC_BASE_URL": base, "https_proxy": proxy, "http_proxy": proxy}
    environ = {**variables, "CCB_ALLOW_HTTP_UPSTREAM": "1", "SSL_CERT_FILE": "/nowhere"}
    if not read:
        anthropic_client(environ)
        return
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        anthropic_client(environ)


async def test_a_certificate_of_the_ca_in_a_file_or_a_directory_is_trusted(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "cas").mkdir()
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(authority.ca_file)]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "cas" / f"{name}.0").write_bytes(authority.ca_file.read_bytes())
    async with FakeModel([{"text": "secure", "times": 2}], tls=authority.server()) as model:
        for environ in ({"SSL_CERT_FILE": str(authority.ca_file)}, {"SSL_CERT_DIR": str(tmp_path / "cas")}):
            answer = await answer_through(model.url, environ)
            assert answer.status == 200 and b"message_stop" in answer.body


@pytest.mark.parametrize("fault", ["unknown CA", "expired", "other name"])
async def test_a_certificate_that_does_not_check_out_is_refused_for_good(authority: Authority, fault: str) -> None:
    tls = authority.server("10.9.8.7" if fault == "other name" else "127.0.0.1", expired=fault == "expired")
    environ = {} if fault == "unknown CA" else {"SSL_CERT_FILE": str(authority.ca_file)}
    async with FakeModel([{"text": "never"}], tls=tls) as model:
        answer = await answer_through(model.url, environ)
        assert not model.requests
    assert (answer.status, answer.headers["x-should-retry"]) == (502, "false")
    assert "certificate" in answer.error["message"] and "SSL_CERT_FILE" in answer.error["message"]


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "CCB_CLIENT_CERT"])
def test_a_certificate_that_does_not_exist_or_is_none_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("not a certificate")
    for path in (tmp_path / "nothing", *([tmp_path / "none.pem"] if name != "SSL_CERT_DIR" else [])):
        with pytest.raises(ConfigError, match=name):
            tls_context({name: str(path)})


async def test_https_goes_through_the_proxy_of_the_environment(authority: Authority) -> None:
    async with (
        FakeModel([{"text": "tunnelled"}], tls=authority.server("model.test")) as model,
        connect_proxy() as proxy,
    ):
        port = model.url.rpartition(":")[2]
        with_password = proxy.url.replace("http://", "http://me:p%40ss@")
        environ = {"HTTPS_PROXY": with_password, "SSL_CERT_FILE": str(authority.ca_file)}
        answer = await answer_through(f"https://model.test:{port}", environ)
        assert answer.status == 200 and b"message_stop" in answer.body
        (head,) = proxy.requests
    assert head[0] == f"CONNECT model.test:{port} HTTP/1.1"
    sent = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head[1:]}
    assert sent["proxy-authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert "x-api-key" not in sent and "authorization" not in sent
    assert "proxy-authorization" not in model.requests[0].headers


@pytest.mark.parametrize(("refuse", "status", "retry"), [(407, 502, "false"), (503, 503, None)])
async def test_a_proxy_that_refuses_is_named(refuse: int, status: int, retry: str | None) -> None:
    async with connect_proxy(refuse=refuse) as proxy:
        got = await answer_through("https://model.test", {"https_proxy": proxy.url})
    assert (got.status, got.headers.get("x-should-retry")) == (status, retry)
    assert f"proxy on the way to model.test answered {refuse}" in got.error["message"]


async def test_a_proxy_that_is_not_there_is_named(unused_tcp_port: int) -> None:
    answer = await answer_through("https://model.test", {"https_proxy": f"http://127.0.0.1:{unused_tcp_port}"})
    assert answer.status == 503 and "the proxy on the way to model.test does not answer" in answer.error["message"]


@pytest.mark.parametrize(
    ("environ", "base", "used"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, "https://model.test", True),
        ({"https_proxy": "p:1"}, "https://model.test", True),
        ({"ALL_PROXY": "http://p:1"}, "https://model.test", True),
        ({"HTTP_PROXY": "http://p:1"}, "https://model.test", False),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, "https://model.test", False),
        ({"HTTPS_PROXY": ""}, "https://model.test", False),
        ({"http_proxy": "http://p:1", "ALL_PROXY": "http://p:1"}, "http://127.0.0.1:1", False),
        ({"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "http://p:1"}, "https://localhost:1", False),
    ],
)
def test_which_proxy_is_used(environ: dict[str, str], base: str, used: bool) -> None:
    assert (anthropic_endpoint({**environ, "ANTHROPIC_BASE_URL": base}).proxy is not None) is used


@pytest.mark.parametrize("value", ["socks5://p:1", "http://", "http://p:99999"])
def test_a_proxy_that_cannot_be_used_is_a_config_error(value: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY"):
        anthropic_endpoint({"HTTPS_PROXY": value})


def test_the_password_of_a_proxy_is_not_shown() -> None:
    assert "pa55" not in repr(anthropic_endpoint({"HTTPS_PROXY": "http://u:pa55@p:1"}))


async def test_netrc_is_not_consulted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_model: FakeModel) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    fake_model.add({"text": "x"})
    await answer_through(fake_model.url)
    assert "authorization" not in fake_model.requests[0].headers


async def test_cookies_of_one_answer_do_not_reach_the_next_request() -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("cookie"))
        return web.Response(headers={"set-cookie": "a=b"})

    async with serving(handle) as url, proxy_to(url) as proxy:
        for _ in range(2):
            await answer_to(proxy)
    assert seen == [None, None]


async def get(client: ProviderClient) -> tuple[int, bytes]:
    async with client.request(ProviderRequest("GET", "/v1/models", {}, WholeBody(b""))) as response:
        return response.status, b"".join([chunk async for chunk in response.chunks])


def client_of(url: str, **environ: str) -> ProviderClient:
    return ProviderClient(endpoint_at(url, "X", environ), environ)


async def hello(request: web.Request) -> web.Response:
    assert request.transport is not None
    certificate = request.transport.get_extra_info("peercert")
    return web.json_response({"peer": request.transport.get_extra_info("peername")[:2], "shown": bool(certificate)})


@pytest.mark.parametrize(
    ("base", "direct", "proxied"),
    [
        ("https://10.1.2.3", ["10.0.0.0/8", "10.1.2.3"], []),
        ("https://11.1.2.3", [], ["10.0.0.0/8"]),
        ("https://[fd00::1]", ["fd00::/8"], []),
        ("https://[fd00::1]:8443", ["[fd00::1]:8443"], ["[fd00::1]:9"]),
        ("https://llm.corp.example", ["corp.example", ".corp.example", "*.corp.example"], [", ,", "corp.example/24"]),
        ("https://LLM.corp.example", ["CORP.example", "10.0.0.0/8, other  corp.example"], []),
        ("https://notcorp.example", [], ["corp.example"]),
        ("https://llm.corp.example:8443", ["corp.example:8443"], ["corp.example:443"]),
    ],
)
def test_no_proxy_takes_names_suffixes_networks_and_ports(base: str, direct: list[str], proxied: list[str]) -> None:
    for no_proxy in (*direct, *proxied):
        environ = {"HTTPS_PROXY": "http://p:1", "NO_PROXY": no_proxy, "ANTHROPIC_BASE_URL": base}
        assert (anthropic_endpoint(environ).proxy is None) is (no_proxy in direct), no_proxy


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


@pytest.mark.parametrize(("limit", "pause"), [(0.2, 60.0), (0.6, 0.2)], ids=["silent", "slow"])
async def test_a_provider_is_given_up_when_it_falls_silent_and_not_however_long_it_goes_on(
    limit: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "READ_TIMEOUT", limit)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(5):
            await response.write(b"piece ")
            await asyncio.sleep(pause)
        return response

    async with serving(answer) as url, client_of(url) as client:
        if pause < limit:
            assert await get(client) == (200, b"piece " * 5)
            return
        with pytest.raises(ProviderError, match="did not answer in time"):
            await get(client)


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
