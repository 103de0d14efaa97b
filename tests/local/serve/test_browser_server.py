"""The server of `ccb serve` as programs see it that speak HTTP by hand: who gets in, what others get, and what a window
that comes back finds."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from aiohttp import ClientError, ClientSession, CookieJar, TCPConnector, WSServerHandshakeError
from tests.support.browser import Browser
from tests.support.machine.waiting import until
from tests.support.network.certificates import Authority
from yarl import URL

from ccb.local.serve.browser_server import MAX_CONNECTIONS, BrowserServer, page_files
from ccb.local.serve.pty_process import PtyProcess, Window

ECHO = ["/bin/sh", "-c", 'stty -echo; echo ready; while read -r line; do echo "got:$line $(stty size)"; done']


@dataclass(frozen=True, kw_only=True)
class Served(Browser):
    """A server, and a browser that has no key yet."""

    server: BrowserServer

    def new_token(self) -> str:
        return URL(self.server.new_link()).fragment

    async def let_in(self) -> None:
        assert await self.asks_for_key(self.new_token()) == 204

    async def status(self, path: str, headers: Mapping[str, str] = {}, method: str = "GET") -> int:
        async with self.http.request(method, self.url(path), headers=headers) as answer:
            return answer.status

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def answers(self) -> bool:
        try:
            return await self.status("/") == 200
        except ClientError:  # it has taken as many connections as it does
            return False


@asynccontextmanager
async def serving(
    argv: list[str] = ECHO,
    watched: list[bool] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    trusts: Path | None = None,
) -> AsyncIterator[Served]:
    heard = [] if watched is None else watched
    listener = socket.create_server(("127.0.0.1", 0))
    origin = URL.build(scheme="https" if tls else "http", host="127.0.0.1", port=listener.getsockname()[1])
    program = PtyProcess(argv, {"PATH": "/usr/bin:/bin"}, heard.append)
    server = BrowserServer(program, origin, tls, page_files())
    async with server.listening(listener):
        trust = TCPConnector(ssl=ssl.create_default_context(cafile=trusts)) if trusts else None
        http = ClientSession(cookie_jar=CookieJar(unsafe=True), connector=trust)
        made = Served(http=http, origin=origin, port=origin.port or 0, server=server)
        try:
            yield made
        finally:
            await made.close()
            await program.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as made:
        yield made


async def refused(served: Served, **headers: str) -> int:
    with pytest.raises(WSServerHandshakeError) as caught:
        await served.window(**headers)
    return caught.value.status


async def test_a_link_lets_one_browser_in_which_needs_it_once(served: Served) -> None:
    assert await refused(served) == 403
    token = served.new_token()
    async with served.http.post(served.url("/key"), data=token, headers=served.from_page) as answer:
        cookie = answer.headers["Set-Cookie"]
    assert answer.status == 204 and "HttpOnly" in cookie and "SameSite=Strict" in cookie and token not in cookie
    assert await served.asks_for_key() == 204
    window = await served.window()
    await window.types("hello\r", sees="got:hello 24 80")
    served.http.cookie_jar.clear()
    assert await served.asks_for_key(token) == 403, "a token that was used is worth nothing"


async def test_a_newer_link_takes_the_place_of_one_that_was_not_used(served: Served) -> None:
    old, _new = served.new_token(), served.new_token()
    assert await served.asks_for_key(old) == 403


async def test_a_key_of_another_run_is_worth_nothing(served: Served) -> None:
    async with serving() as other:
        await other.let_in()
        (cookie,) = other.http.cookie_jar
        assert await refused(served, Cookie=f"ccb-{served.port}={cookie.value}") == 403


EVIL = "http://evil.example"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # a name that leads here (DNS rebinding), with the port or without
        {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"},
        {"Host": "localhost:PORT", "Origin": "http://localhost:PORT"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:PORT"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
async def test_others_get_nothing_even_with_the_key(served: Served, headers: dict[str, str]) -> None:
    await served.let_in()
    said = {name: value.replace("PORT", str(served.port)) for name, value in headers.items()}
    for path in ("/", "/textual.js", "/no-such-page"):
        assert await served.status(path, said) == 403
    said = {**served.from_page, **said}
    assert await served.status("/key", said, "POST") == 403
    assert await refused(served, **said) == 403


async def test_a_program_that_names_no_origin_gets_no_key_and_no_socket(served: Served) -> None:
    await served.let_in()
    assert await served.status("/key", {}, "POST") == 403
    with pytest.raises(WSServerHandshakeError):
        await served.http.ws_connect(served.url("/socket"))


async def test_there_are_no_files_but_those_of_the_page(served: Served) -> None:
    tricks = (
        *(
            "/static/",
            "/page/",
            "/page.html",
            "/..%2fserve.py",
            "/%2e%2e/serve.py",
            "//page.js",
            "/page.js/../serve.py",
        ),
        *("/page.js%00", "/download/x", "/ws", "/.git/config", "/%2fetc%2fpasswd"),
    )
    host = served.origin.authority
    for path in tricks:
        reader, writer = await served.connection()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")) and b"Traceback" not in answer, path


async def test_the_page_takes_nothing_from_elsewhere_and_cannot_be_framed(served: Served) -> None:
    for path in page_files():
        async with served.http.get(served.url(path)) as answer:
            body = await answer.read()
        assert answer.status == 200 and body
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "script-src 'self';" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff" and "Server" not in answer.headers


async def test_beyond_this_machine_the_key_travels_only_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with serving(tls=authority.server(), trusts=authority.ca_file) as served:
        token = served.new_token()
        async with served.http.post(served.url("/key"), data=token, headers=served.from_page) as answer:
            assert answer.headers["Set-Cookie"].startswith("__Host-ccb-") and "Secure" in answer.headers["Set-Cookie"]
        await (await served.window()).sees("ready")
        assert (await refused(served, Origin=str(served.origin.with_scheme("http")))) == 403
        reader, writer = await served.connection()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()


async def test_a_second_window_takes_the_screen_over_and_finds_what_the_first_saw(served: Served) -> None:
    await served.let_in()
    first = await served.window()
    await first.types("one\r", sees="got:one")
    second = await served.window()
    await second.sees("got:one")
    assert await first.closed() == 4001
    await second.types("two\r", sees="got:two")


FULL_SCREEN = r"""
trap 'echo anew' CONT; stty raw -echo
printf 'lines\n\033[?1049h\033[?1006;1000hdrawn\033[?2004h\033[?2004l'
while :; do sleep 0.05; done
"""


async def test_a_window_that_comes_back_lets_the_program_draw_anew_on_a_full_screen() -> None:
    async with serving(["/bin/sh", "-c", FULL_SCREEN]) as served:
        await served.let_in()
        first = await served.window()
        await first.sees("drawn")
        await first.ws.close()
        second = await served.window()
        await second.sees("anew")
        assert second.shown.startswith(b"\x1b[?1049h\x1b[?1000h\x1b[?1006h"), "and the mouse works on"
        assert b"lines" not in second.shown and b"drawn" not in second.shown


async def test_lines_behind_a_full_screen_are_shown_again() -> None:
    program = "stty -echo; echo gone; printf '\\033[?1049h'; echo drawn; printf '\\033[?1049l'; echo lines; cat"
    async with serving(["/bin/sh", "-c", program]) as served:
        await served.let_in()
        await (await served.window()).sees("lines")
        again = await served.window()
        await again.types("more\r", sees="more")
        assert again.shown.startswith(b"lines")


async def test_a_program_that_has_ended_is_started_again_by_the_next_window(served: Served) -> None:
    await served.let_in()
    window = await served.window()
    await window.types("\x04", sees="ready")
    assert await window.closed() == 4000
    again = await served.window()
    await again.types("hello\r", sees="got:hello")
    assert again.shown.count(b"ready") == 1


async def test_a_window_says_its_size_and_nothing_else_that_it_says_does_harm(served: Served) -> None:
    await served.let_in()
    window = await served.window()
    await window.sees("ready")
    for odd in ("", "[", "[" * 100_000, "null", "{}", '["stdin"]', '["stdin", 7]', '["resize", []]', '["run", "ls"]'):
        await window.ws.send_str(odd)
    await window.ws.send_bytes(b"\xff")
    await window.ws.send_json(["stdin", "\ud800"])
    await window.types("odd\r", sees="got:odd 24 80")
    await window.ws.send_json(["resize", {"width": 100, "height": 10**9}])
    await window.types("size\r", sees="got:size 500 100")
    await window.ws.send_str(" " * (2 << 20))
    assert await window.closed() == 1009
    await (await served.window()).sees("got:size")


async def test_a_window_that_takes_nothing_is_let_go_and_the_program_does_not_wait(tmp_path: Path) -> None:
    heard: list[bool] = []
    program = f"read -r _; yes | head -c 16000000; echo over; echo > {tmp_path}/over; cat"
    async with serving(["/bin/sh", "-c", program], heard) as served:
        await served.let_in()
        slow = await served.window()
        await slow.ws.send_json(["stdin", "\r"])
        await until(lambda: heard == [True, False])
        await until((tmp_path / "over").exists)
        await (await served.window()).sees("over")


async def test_a_window_that_is_behind_gets_the_last_words_of_a_program_that_has_ended() -> None:
    class SlowWindow:
        shown = b""

        async def show(self, data: bytes) -> None:
            await until(lambda: ended.is_set() or not self.shown)
            self.shown += data

        async def end(self, code: int) -> None:
            left.set()

    ended, left, slow = asyncio.Event(), asyncio.Event(), SlowWindow()
    program = PtyProcess(
        ["/bin/sh", "-c", "echo first; sleep 0.1; echo next; sleep 0.1; echo last"], {}, lambda _: None
    )
    await program.view(cast(Window, slow), 80, 24)
    assert program._process is not None
    await program._process.wait()
    ended.set()
    await left.wait()
    assert slow.shown.split() == [b"first", b"next", b"last"]


async def test_whether_anybody_looks_is_told_and_the_program_ends_as_in_a_closed_window(tmp_path: Path) -> None:
    heard: list[bool] = []
    program = f"trap 'echo > {tmp_path}/hung-up; exit' HUP; echo ready; while :; do sleep 0.05; done"
    async with serving(["/bin/sh", "-c", program], heard) as served:
        await served.let_in()
        window = await served.window()
        await window.sees("ready")
        other = await served.window()
        await window.closed()
        await other.ws.close()
        await until(lambda: heard == [True, True, False])
    assert (tmp_path / "hung-up").exists()


@pytest.mark.thorough
async def test_ten_thousand_connections_do_not_reach_the_person_who_looks(served: Served) -> None:
    await served.let_in()
    window = await served.window()
    await window.sees("ready")
    left: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for _ in range(100):
        left += await asyncio.gather(*(served.connection() for _ in range(100)))
        window.shown = b""
        await window.types("still\r", sees="got:still")
        async with asyncio.timeout(20):
            while len(left) > MAX_CONNECTIONS + 100:  # asyncio takes so many before the first counts
                await asyncio.sleep(0)
                for reader, writer in left:
                    if is_ended(reader):
                        writer.close()
                left = [each for each in left if not is_ended(each[0])]
    for _, writer in left:
        writer.close()
    async with asyncio.timeout(20):
        while not await served.answers():
            await asyncio.sleep(0.05)


def is_ended(reader: asyncio.StreamReader) -> bool:
    return reader.at_eof() or reader.exception() is not None


SLOW_BODY = "POST /key HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 9\r\n\r\nslow"


@pytest.mark.parametrize("said", ["", "GET / HT", SLOW_BODY])
async def test_a_connection_that_never_says_all_is_ended(
    served: Served, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.local.serve.browser_server._NO_WINDOW_S", 0.1)
    reader, writer = await served.connection()
    writer.write(said.format(host=served.origin.authority).encode())
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    writer.close()
