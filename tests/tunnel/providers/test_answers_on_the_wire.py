"""What counts as a whole answer of a provider, byte by byte, and when its connection serves another request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.proxy.proxy_client import calling, proxy_to

from ccb.tunnel.providers.api_errors import Refusal
from ccb.tunnel.providers.provider import ProviderError
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.proxy.policy import Policy

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = OK + b"content-length: 2\r\n\r\nok"


@asynccontextmanager
async def answering(*answers: bytes, steps: int = 1) -> AsyncIterator[tuple[str, list[int]]]:
    """A server that sends each request the next of the answers, in so many steps, and ends the connection after the
    last. The numbers are those of the connections on which the requests came."""
    connections = 0
    came: list[int] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        mine = connections
        try:
            while left:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(2)
                came.append(mine)
                data = left.pop(0)
                size = max(1, -(-len(data) // steps))
                for at in range(0, len(data), size):
                    writer.write(data[at : at + size])
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", came


async def asked(proxy: AuthProxy) -> tuple[int, bytes, bool]:
    """The status and the bytes of one answer, and whether they were all."""
    body = b""
    async with calling(proxy, b"{}") as answer:
        try:
            while piece := await answer.read():
                body += piece
                answer.ack(answer.offset)
        except ProviderError:
            return answer.status, body, False
        return answer.status, body, True


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (OK + b"content-length: 5\r\n\r\nwords", b"words"),
        (CHUNKED + b"2\r\nwo\r\n3;x=y\r\nrds\r\n0\r\nx-trailer: 1\r\n\r\n", b"words"),
        (OK + b"\r\nwords", b"words"),
    ],
    ids=["length", "chunks", "until the end"],
)
async def test_a_whole_answer_is_passed_on(sent: bytes, body: bytes) -> None:
    for steps in (1, 1_000):
        async with answering(sent, steps=steps) as (url, _), proxy_to(url) as proxy:
            assert await asked(proxy) == (200, body, True)


UNREACHABLE = (503, b"laptop_unreachable")


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        pytest.param(OK + b"content-length: 50\r\n\r\nwords", 200, b"words", id="a length"),
        pytest.param(CHUNKED + b"5\r\nwords\r\n", 200, b"words", id="chunks"),
        pytest.param(CHUNKED + b"5\r\nwords\r\nx\r\n", *UNREACHABLE, id="no chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-le", *UNREACHABLE, id="half a head"),
        pytest.param(OK + b"x: " + b"y" * 400_000, *UNREACHABLE, id="an endless head"),
        pytest.param(b"HTTP/1.1 101 O\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", *UNREACHABLE, id="other protocol"),
        pytest.param(b"", *UNREACHABLE, id="nothing"),
    ],
)
async def test_an_answer_that_is_not_whole_does_not_look_whole(sent: bytes, status: int, body: bytes) -> None:
    async with answering(sent) as (url, _), proxy_to(url) as proxy:
        got, text, whole = await asked(proxy)
    assert (got, whole) == (status, status != 200)
    assert text == body if status == 200 else body in text


@pytest.mark.parametrize(
    ("first", "connections"),
    [
        (WHOLE, [1, 1]),
        (b"HTTP/1.1 204 No Content\r\n\r\n", [1, 1]),
        (OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok", [1, 2]),
        (WHOLE + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged", [1, 2]),
        (WHOLE + b"\x00", [1, 2]),
    ],
    ids=["whole", "no body", "close", "two answers", "more than an answer"],
)
async def test_a_connection_serves_another_request_if_nothing_is_left(first: bytes, connections: list[int]) -> None:
    """What is left would be taken for the answer to another request."""
    async with answering(first, WHOLE, WHOLE) as (url, came), proxy_to(url) as proxy:
        await asked(proxy)
        assert await asked(proxy) == (200, b"ok", True)
    assert came == connections


@pytest.mark.parametrize("steps", [1, 1_000])
async def test_an_answer_that_is_too_long_does_not_look_whole_however_it_comes(steps: int) -> None:
    async with (
        answering(CHUNKED + b"5\r\nwords\r\n0\r\n\r\n", steps=steps) as (url, _),
        proxy_to(url, policy=Policy(max_answer=4)) as proxy,
        calling(proxy, b"{}") as answer,
    ):
        with pytest.raises(Refusal, match="4 bytes"):
            while await answer.read():
                pass
