"""The HTTP front on the wire, with raw sockets: what belongs to which request, and when a connection ends."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import NONCE, proxy_to

from ccb.tunnel.proxy.core import AuthProxy
from ccb.tunnel.proxy.http_front import connection as connection_module
from ccb.tunnel.proxy.http_front import front as front_module
from ccb.tunnel.proxy.http_front.answer import HttpAnswer
from ccb.tunnel.proxy.http_front.connection import HttpConnection
from ccb.tunnel.proxy.http_front.front import HttpFront
from ccb.tunnel.secret import Secret


def request(body: str = "{}", *lines: str, nonce: str = NONCE, path: str = "/v1/messages") -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: model", f"x-auth-nonce: {nonce}", f"content-length: {len(body)}", *lines]
    return "\r\n".join([*head, "", body]).encode()


@asynccontextmanager
async def front_to(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]], tmp_path: Path
) -> AsyncIterator[tuple[str, AuthProxy]]:
    """The socket of a front, and its proxy, whose provider answers with `handle`."""
    async with (
        serving(handle) as url,
        proxy_to(url) as proxy,
        HttpFront(proxy, Secret(NONCE), tmp_path / "front") as it,
        asyncio.timeout(30),
    ):
        yield str(it.socket_path), proxy


@asynccontextmanager
async def front(tmp_path: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The socket of a front, and the bodies that its provider gets, which it answers with."""
    seen: list[bytes] = []

    async def handle(asked: web.Request) -> web.Response:
        seen.append(await asked.read())
        return web.Response(body=seen[-1])

    async with front_to(handle, tmp_path) as (path, _):
        yield path, seen


async def sent(path: str, data: bytes) -> bytes:
    """Send, and read until the front ends the connection."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


async def test_requests_that_come_together_are_answered_one_after_the_other(tmp_path: Path) -> None:
    bodies = [json.dumps({"number": number}) for number in range(20)]
    async with front(tmp_path) as (path, seen):
        answer = await sent(path, b"".join(request(each) for each in bodies) + request("{}", "connection: close"))
    assert seen == [*(each.encode() for each in bodies), b"{}"]
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 21 and answer.endswith(b"connection: close\r\n\r\n{}")


async def test_thousands_of_requests_in_one_piece_are_refused_one_by_one(tmp_path: Path) -> None:
    refused = request("", path="/x")
    async with front(tmp_path) as (path, seen):
        answer = await sent(path, refused * 3_000 + request("", "connection: close", path="/x"))
    assert not seen and answer.count(b"HTTP/1.1 404 ") in range(1, 3_002)


async def test_requests_that_wait_for_an_answer_to_another_are_bounded(tmp_path: Path) -> None:
    """Each ends in the piece in which the next one begins, so the connection has always begun to read one."""
    started, go_on, seen = asyncio.Event(), asyncio.Event(), list[bytes]()

    async def handle(asked: web.Request) -> web.Response:
        seen.append(await asked.read())
        started.set()
        await go_on.wait()
        return web.Response(body=b"ok")

    async with front_to(handle, tmp_path) as (path, _):
        reader, writer = await asyncio.open_unix_connection(path)
        small, large = request(), request("x" * 50_000)
        writer.write(small + small[:-1])
        await started.wait()
        writer.write(small[-1:] + large[:-1])
        for _ in range(20):
            writer.write(large[-1:] + large[:-1])
        await writer.drain()
        go_on.set()
        answers = await reader.read()
        writer.close()
    assert answers.count(b"200 OK") == len(seen) < 4
    assert seen[:2] == [b"{}", b"{}"][: len(seen)]


async def test_a_body_that_comes_at_once_does_not_stop_its_connection(tmp_path: Path) -> None:
    """It is more than is read ahead, and nobody makes room by taking it piece by piece."""
    large = "x" * 150_000
    async with front(tmp_path) as (path, seen):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
            raw.connect(path)
            raw.sendall(request(large))  # the loop takes no part of it meanwhile
            reader, writer = await asyncio.open_unix_connection(sock=raw)
            await reader.readuntil(b"x" * 150_000)
            writer.write(request("{}", "connection: close"))
            assert (await reader.read()).endswith(b"\r\n\r\n{}")
            writer.close()
    assert seen == [large.encode(), b"{}"]


async def test_a_client_that_reads_on_in_the_step_in_which_an_answer_ends_gets_its_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request on the connection would else be taken for answered, too."""
    finish, resumed = HttpAnswer.finish, 0

    def finish_and_resume(self: HttpAnswer) -> None:
        nonlocal resumed
        finish(self)
        assert isinstance(self._connection, HttpConnection)
        self._connection.resume_writing()
        resumed += 1

    async def handle(asked: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(asked)
        await response.write(await asked.read())
        return response

    async with front_to(handle, tmp_path) as (path, _):
        monkeypatch.setattr(HttpAnswer, "finish", finish_and_resume)
        answer = await sent(path, request("1") + request("2") + request("3", "connection: close"))
    assert [each[-11:] for each in answer.split(b"HTTP/1.1 ")[1:]] == [
        b"1\r\n%d\r\n0\r\n\r\n" % number for number in (1, 2, 3)
    ]
    assert resumed == 3


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"400"),
        (request("{}", "x-long: " + "y" * 9_000), b"400"),
        (request("{}", *["x-a: b"] * 200), b"400"),
        (request("{}", *["x-a: " + "y" * 8_000] * 120), b"431"),
        (request("{}", "expect: tea"), b"417"),
        (request("{}", "transfer-encoding: chunked"), b"400"),
        (request("{}", "transfer-encoding: gzip, chunked").replace(b"content-length: 2\r\n", b""), b"400"),
        (request().replace(b"length: 2", b"length: " + b"0" * 5_000 + b"2"), b"400"),
        (request("{}", "host: other"), b"400"),
        (request("{}", f"x-auth-nonce: {NONCE}"), b"400"),
        (request().replace(b"host: model\r\n", b""), b"400"),
        (request().replace(b"HTTP/1.1", b"HTTP/2.0"), b"400"),
        (request("{}", "upgrade: websocket", "connection: upgrade"), b"400"),
        (f"CONNECT model:443 HTTP/1.1\r\nhost: model\r\nx-auth-nonce: {NONCE}\r\n\r\n".encode(), b"405"),
    ],
    ids=[
        "no request",
        "TLS",
        "long header",
        "many headers",
        "a long head",
        "an expectation",
        "two lengths",
        "a coded body",
        "a length that is no number for Python",
        "two hosts",
        "two nonces",
        "no host",
        "another HTTP",
        "an upgrade",
        "a tunnel",
    ],
)
async def test_what_is_no_request_ends_the_connection(tmp_path: Path, data: bytes, status: bytes) -> None:
    async with front(tmp_path) as (path, seen):
        answer = await sent(path, data + request())
    assert answer.startswith(b"HTTP/1.1 " + status) and b'"type": "error"' in answer
    assert answer.count(b"HTTP/1.1 ") == 1 and not seen


async def test_an_expected_100_comes_before_the_answer(tmp_path: Path) -> None:
    async with front(tmp_path) as (path, seen):
        answer = await sent(path, request("{}", "expect: 100-continue", "connection: close"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n") and seen == [b"{}"]


async def test_an_answer_before_the_end_of_its_request_ends_the_connection(tmp_path: Path) -> None:
    """What is still to come could else be taken for the next request."""
    async with front(tmp_path) as (path, seen):
        start = request("x" * 500, nonce="wrong")[:-400]
        answer = await sent(path, start)
        assert answer.startswith(b"HTTP/1.1 403 ") and b"connection: close\r\n" in answer
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(start)
        await reader.readuntil(b"}}")
        writer.write(request())
        assert await reader.read() == b"" and not seen
        writer.close()


async def test_what_follows_the_last_chunk_of_a_body_is_refused(tmp_path: Path) -> None:
    """Headers there could else be taken for those of the next request, and would have no limit."""
    async with front(tmp_path) as (path, seen):
        head = request("").replace(b"content-length: 0", b"transfer-encoding: chunked")
        assert b"200 OK" in await sent(path, head + b"2\r\n{}\r\n0\r\n\r\n" + request("{}", "connection: close"))
        answer = await sent(path, head + b"2\r\n{}\r\n0\r\nx-auth-nonce: n\r\n\r\n" + request())
        assert b"200 OK" not in answer
        assert b"200 OK" not in await sent(path, head + b"2\r\n{}\r\n0\r\nx: " + b"y" * 400_000)
    assert seen == [b"{}", b"{}"]


async def test_a_header_that_comes_twice_counts_as_a_list(tmp_path: Path) -> None:
    async with front(tmp_path) as (path, seen):
        answer = await sent(path, request("{}", "accept: a", "Accept: b", "x-empty:", "connection: close"))
    assert answer.startswith(b"HTTP/1.1 200 ") and seen == [b"{}"]


async def test_a_client_that_leaves_in_its_request_is_forgotten(tmp_path: Path) -> None:
    async with front(tmp_path) as (path, seen):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(request("x" * 500)[:-400])
        writer.close()
        assert (await sent(path, request("{}", "connection: close"))).endswith(b"{}")
    assert seen == [b"{}"]


async def test_more_connections_than_there_may_be_get_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_module, "_MAX_CONNECTIONS", 2)
    async with front(tmp_path) as (path, _):
        first = [await asyncio.open_unix_connection(path) for _ in range(2)]
        try:
            answer = await sent(path, request("{}", "connection: close"))
        except ConnectionError:
            answer = b""
        assert answer == b""
        for _, writer in first:
            writer.close()


async def test_connections_that_send_no_request_are_closed_and_those_that_wait_for_an_answer_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_IDLE_S", 0.2)
    monkeypatch.setattr(connection_module, "_LINGER_S", 0.2)
    monkeypatch.setattr(front_module, "_LOOKS_EVERY_S", 0.05)
    go_on = asyncio.Event()

    async def handle(asked: web.Request) -> web.Response:
        await go_on.wait()
        return web.Response(body=await asked.read())

    async def trickled(path: str) -> None:
        """Send one byte of a head after the other until the front ends the connection."""
        reader, writer = await asyncio.open_unix_connection(path)
        ended = asyncio.create_task(reader.read())
        with suppress(ConnectionError):
            for byte in itertools.chain(b"POST /", itertools.cycle(b"x")):
                writer.write(bytes((byte,)))
                if (await asyncio.wait((ended,), timeout=0.02))[0]:
                    break
            assert await ended == b""
        writer.close()

    async with front_to(handle, tmp_path) as (path, _):
        waiting = asyncio.create_task(sent(path, request()))
        refused = asyncio.create_task(sent(path, request("x" * 500, nonce="wrong")[:-400]))
        assert await sent(path, b"") == await sent(path, b"POST /v1/mess") == b""
        await trickled(path)
        assert (await refused).startswith(b"HTTP/1.1 403 "), "one whose body never comes is closed, too"
        go_on.set()
        assert (await waiting).endswith(b"{}"), "and it is closed when the next request does not come"


async def test_after_ten_wrong_nonces_there_is_no_front(tmp_path: Path) -> None:
    async with front(tmp_path) as (path, seen):
        honest = await asyncio.open_unix_connection(path)
        for _ in range(9):
            assert (await sent(path, request("{}", "connection: close", nonce="n"))).startswith(b"HTTP/1.1 403 ")
        assert (await sent(path, request(nonce="n"))).startswith(b"HTTP/1.1 403 "), "and the connection ends"
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(path)
        reader, writer = honest
        writer.write(request())
        assert b"too many wrong nonces" in await reader.read() and not seen
        writer.close()


async def test_not_another_byte_of_an_answer_comes_after_the_person_revokes(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def handle(asked: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(asked)
        await response.write(b"first")
        await go_on.wait()
        await response.write(b"second")
        return response

    async with front_to(handle, tmp_path) as (path, proxy):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request())
        await reader.readuntil(b"first\r\n")
        proxy.revoke()
        go_on.set()
        try:
            rest = await reader.read()
        except ConnectionError:
            rest = b""
        assert rest == b""
        answer = await sent(path, request("{}", "connection: close"))
        assert answer.startswith(b"HTTP/1.1 403 ") and b"laptop_revoked" in answer
        writer.close()


async def test_an_old_client_gets_a_body_that_ends_with_its_connection(tmp_path: Path) -> None:
    async with front(tmp_path) as (path, _):
        answer = await sent(path, request().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"transfer-encoding" not in answer and answer.endswith(b"{}")
