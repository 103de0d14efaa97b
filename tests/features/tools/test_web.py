"""WebFetch and WebSearch, over a real worker and real servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.remote.agent_kit import calls, closing, opening, says, sse
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json, uses
from tests.support.network.certificates import Authority
from tests.support.network.connect_proxy import connect_proxy
from tests.support.network.threaded_server import QuietHandler, threaded_server
from tests.support.person.laptop import Here

from ccb.remote.tools.web import to_markdown
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.web_fetch import WebFetcher, WebPage, WebRefused, is_public, read_url

PAGE = (
    b"<html><head><title>Orders</title><script>bad()</script></head><body><h1>Orders</h1>"
    b"<p>See <a href='/next'>the <b>next</b> page</a>.</p><ul><li>one<li>two</ul><pre>a  = 1\n</pre></body></html>"
)


HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGES = {
    "/page": (gzip.compress(PAGE), {**HTML, "Content-Encoding": "gzip"}),
    "/file": (b"\0\1\2", {"Content-Type": "application/octet-stream"}),
    "/long": (b"x" * 3000, {}),
    "/sized": (PAGE, {**HTML, "Content-Length": str(len(PAGE)), "Connection": "close"}),
    "/empty": (b"", {"Content-Length": "0"}),
}


class Site(QuietHandler):
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path in ("/away", "/here"):
            self.send_response(302)
            self.send_header("Location", "http://other.example/x" if self.path == "/away" else "/page")
            self.end_headers()
            return
        body, headers = PAGES.get(self.path, (b"nothing here", {}))
        self.send_response(200 if self.path in PAGES else 404)
        for name, value in ({"Content-Type": "text/plain"} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def site(tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str]]]:
    class OneSite(Site):
        asked: ClassVar[list[str]] = []

    with threaded_server(OneSite, tls) as url:
        yield url, OneSite.asked


async def called(laptop: Laptop, name: str, number: int, **tool_input: Any) -> None:
    await laptop.begin("go", calls((f"toolu_{number}", name, tool_input), message_id=f"msg_{number}"))


async def result_of(laptop: Laptop, number: int) -> Json:
    """End the turn, and return the result of its call."""
    request = await laptop.tell(says("done", f"msg_{number}_end"))
    await laptop.message("result")
    result: Json = request["messages"][-1]["content"][0]
    return result


async def test_a_page_is_read_on_the_host_and_a_small_model_answers(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(
        session, SessionOptions(web_allow_private=True, allowed_tools=["WebFetch(domain:127.0.0.1)"])
    )
    with site() as (url, asked):
        await called(laptop, "WebFetch", 1, url=f"{url}/here", prompt="What is next?")
        question = await laptop.tell(says("It is two.", "msg_small"))
        assert question["model"] == "claude-haiku-4-5" and "tools" not in question
        said = question["messages"][0]["content"]
        assert f"# Orders\n\nSee [the **next** page]({url}/next).\n\n- one\n- two" in said and "bad()" not in said
        assert (await result_of(laptop, 1))["content"] == "It is two."
        await called(laptop, "WebFetch", 2, url=f"{url}/here", prompt="And now?")
        await laptop.tell(says("The same.", "msg_small_2"))
        assert (await result_of(laptop, 2))["content"] == "The same."
        assert asked == ["/here", "/page"]  # the second time it came from the cache
        parts = {"/away": "other.example/x", "/file": "/outputs/", "/no": "404"}
        for number, (path, part) in enumerate(parts.items(), 3):
            await called(laptop, "WebFetch", number, url=url + path, prompt="?")
            assert part in (await result_of(laptop, number))["content"]


async def test_private_addresses_are_refused_on_the_host(host: WorkerHost, session: str) -> None:
    options = SessionOptions(allowed_tools=["WebFetch"], disallowed_tools=["WebFetch(domain:example.com)"])
    laptop = await host.drive(session, options)
    with site() as (url, asked):
        await called(laptop, "WebFetch", 1, url=f"{url.replace('127.0.0.1', 'localhost')}/page", prompt="?")
        result = await result_of(laptop, 1)
        assert result["is_error"] and "no public address" in result["content"] and not asked
        await called(laptop, "WebFetch", 2, url="https://docs.example.com/", prompt="?")
        assert "denies this" in (await result_of(laptop, 2))["content"]


@pytest.mark.parametrize("private", [True, False])
async def test_with_web_laptop_the_laptop_fetches_by_its_own_policy(here: Here, private: bool) -> None:
    settings = json.dumps({"webAllowPrivate": private})
    with site() as (url, asked):
        fetch = uses("WebFetch", url=f"{url}/page", prompt="?")
        here.model.add(fetch, *([{"text": "from the page"}] if private else []), {"text": "done"})
        words = ["-p", "go", "--web", "laptop", "--allowedTools", "WebFetch", "--settings", settings]
        done = await here.run(*words)
        assert done.code == 0, done
        assert asked == (["/page"] if private else [])
    results = json.dumps(here.model.requests[-1].messages)
    assert ("from the page" if private else "no public address") in results


async def test_a_page_is_read_over_https_through_the_proxy(host: WorkerHost, session: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with connect_proxy() as proxy:
        variables = {"SSL_CERT_FILE": str(authority.ca_file), "HTTPS_PROXY": proxy.url, "NO_PROXY": "127.0.0.1"}
        host.prelude = f"import os; os.environ.update({variables!r})"
        laptop = await host.drive(session, SessionOptions(allowed_tools=["WebFetch"], web_allow_private=True))
        with site(authority.server("shop.test")) as (url, asked):
            named = url.replace("127.0.0.1", "shop.test")
            for number, each in enumerate((named, url)):
                await called(laptop, "WebFetch", number, url=f"{each}/page", prompt="What is next?")
                if each is named:
                    assert "# Orders" in str((await laptop.tell(says("Two.", "msg_small")))["messages"])
                told = (await result_of(laptop, number))["content"]
                assert told == "Two." if each is named else "CERTIFICATE_VERIFY_FAILED" in told
            assert asked == ["/page"]
            assert [head[0] for head in proxy.requests] == [f"CONNECT {named.removeprefix('https://')} HTTP/1.1"]


async def test_a_proxy_gets_a_checked_address_that_is_public(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leads_to = {"shop.test": "93.184.216.34", "inside.test": "10.0.0.1"}
    plain = socket.getaddrinfo

    def resolved(name: str, *args: Any, **more: Any) -> list[Any]:
        return plain(leads_to.get(name, name), *args, **more)

    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    monkeypatch.setattr("ccb.tunnel.wire.web_fetch.socket.getaddrinfo", resolved)

    async def fetch(url: str) -> WebPage:
        return await asyncio.to_thread(WebFetcher(allow_private=False).fetch, url)

    with site(authority.server("shop.test")) as (url, _):
        port = url.rpartition(":")[2]
        async with connect_proxy() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http://", "http://me:p%40ss@"))
            page = await fetch(f"https://shop.test:{port}/page")
            assert gzip.compress(PAGE) != page.body == PAGE
            (head,) = proxy.requests
            assert head[0] == f"CONNECT 93.184.216.34:{port} HTTP/1.1"
            assert "Proxy-Authorization: Basic bWU6cEBzcw==" in head
            for name, why in (("inside.test", "no public address"), ("only-the-proxy-knows.invalid", "resolved")):
                with pytest.raises(WebRefused, match=why):
                    await fetch(f"https://{name}:{port}/page")
            assert len(proxy.requests) == 1
        async with connect_proxy(refuse=403) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            with pytest.raises(WebRefused, match="the proxy refuses"):
                await fetch(f"https://shop.test:{port}/page")
        monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
        with pytest.raises(WebRefused, match="no http:// proxy"):
            await fetch(f"https://shop.test:{port}/page")


def found(index: int, results: Any) -> bytes:
    block = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": results}
    start = {"type": "content_block_start", "index": index, "content_block": block}
    return sse(start) + sse({"type": "content_block_stop", "index": index})


async def test_the_provider_searches_the_web(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(allowed_tools=["WebSearch"]))
    await called(laptop, "WebSearch", 1, query="python news", allowed_domains=["python.org"])
    links = [{"type": "web_search_result", "title": "News", "url": "https://python.org/n", "encrypted_content": "x"}]
    asked, body = await laptop.call()
    await laptop.answer(asked, opening("msg_s") + found(0, links) + closing("end_turn"))
    assert json.loads(body)["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["python.org"]}
    ]
    text = (await result_of(laptop, 1))["content"]
    assert '{"title": "News", "url": "https://python.org/n"}' in text and "encrypted" not in text
    await called(laptop, "WebSearch", 2, query="more")
    await laptop.tell(says("I cannot search.", "msg_u"))
    result = await result_of(laptop, 2)
    assert result["is_error"] and "has no web search" in result["content"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "0.0.0.0", "::1", "fe80::1%eth0",
     "fd00::1", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "224.0.0.1", "255.255.255.255", "no",
     "fec0::1", "feff::1", "168.63.129.16", "::ffff:168.63.129.16", "192.0.0.192", "100.100.100.200", "fd00:ec2::254"],
)  # fmt: skip
def test_no_spelling_of_a_private_address_is_public(address: str) -> None:
    assert not is_public(address)


def test_urls_that_are_no_plain_web_addresses_are_refused() -> None:
    assert is_public("93.184.216.34") and is_public("2606:2800:220:1::1")
    assert read_url("HTTPS://Example.COM./a b?q=1#x").url == "https://example.com/a%20b?q=1"
    refused = ("ftp://a/", "file:///etc/passwd", "https://u:p@a/", "https:///x", "http://a\nb/", "http://[::1")
    for url in (*refused, "x" * 3000):
        with pytest.raises(WebRefused):
            read_url(url)


@pytest.mark.parametrize(("path", "body"), [("/sized", PAGE), ("/empty", b""), ("/page", PAGE)])
def test_a_page_is_read_with_and_without_a_length_from_servers_that_close(path: str, body: bytes) -> None:
    with site() as (url, _):
        page = WebFetcher(allow_private=True).fetch(f"{url}{path}")
        assert (page.status, page.body, page.cut) == (200, body, False)


def test_a_long_page_is_cut_and_its_connection_goes_to_what_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as (url, asked):
        page = WebFetcher(allow_private=True, max_body=1000).fetch(f"{url}/long")
        assert (len(page.body), page.cut) == (1000, True)
        port = url.rpartition(":")[2]
        looked: list[str] = []

        def rebinding(host: str, *args: Any, **more: Any) -> list[Any]:
            looked.append(host)
            return [(2, 1, 6, "", ("93.184.216.34" if len(looked) > 1 else "127.0.0.1", int(port)))]

        monkeypatch.setattr("ccb.tunnel.wire.web_fetch.socket.getaddrinfo", rebinding)
        with pytest.raises(WebRefused, match="no public address"):
            WebFetcher(allow_private=False).fetch(f"http://rebind.example:{port}/page")
        assert looked == ["rebind.example"] and asked == ["/long"]


def test_html_becomes_markdown() -> None:
    html = (
        "<title>T</title><h2>A</h2><ol><li>x<ul><li>y</ul><li>z</ol><table><tr><th>a<th>b<tr><td>1<td>2</table>"
        "<blockquote>q</blockquote><p>a <code>b*</code> <em>c</em><br>d &amp; e<img src=x alt=pic></p><p unclosed <b>x"
    )
    text, title = to_markdown(html, "https://e.example/")
    assert title == "T"
    for part in ("## A", "1. x\n  - y\n2. z", "| a | b |", "| 1 | 2 |", "> q", "a `b*` *c*\nd & e[image: pic]"):
        assert part in text, text
    assert to_markdown("<li>" * 5000 + "<![bad" + "</ul>" * 50, "http://x/")[0]
