"""Ports of the host on this machine: what is offered, where a forward listens, and when it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, session_on
from tests.support.machine.waiting import until
from tests.support.network.link_peer import Peer
from tests.support.repl.paper import Paper

from ccb.local.command_line.arguments import PortOptions
from ccb.local.ports import port_forwards
from ccb.local.ports.port_forwards import MAX_REVERSED, PortForwards, asks_reader, forward_of
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import LaptopNotice, PortOffer, SessionEvent
from ccb.local.slash_commands.command_table import find_command
from ccb.local.slash_commands.registry import Rows, Text
from ccb.local.slash_commands.session_api import LaptopSide, Place, ReplInfo, SessionApi
from ccb.local.transcript.questions import REVERSE_PORT, ReversedPort
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.frames import CHANNELS, ChannelData, ChannelEnd, ChannelOpen, Event, Input, Listening

INFO = ReplInfo("devbox", "/srv", "opus", "default", "1.0")
VITE = {"port": 5173, "name": "vite", "pid": 7}


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def forwards(
    labels: dict[str, str] | None = None, ignored: int = 0
) -> AsyncIterator[tuple[PortForwards, RemoteSession, Peer]]:
    host = ScriptedHost()
    host.greeting = replace(host.greeting, capabilities=[CHANNELS])
    async with session_on(host) as (session, peer):
        made = PortForwards(session, labels or {}, lambda port: port != ignored)
        async with made:
            yield made, session, peer


async def command_says(ports: PortForwards, session: RemoteSession, line: str) -> str:
    api = SessionApi(session, INFO, Paper().reducer, LaptopSide(ports=ports), place=Place.LINES)
    command = find_command("ports")
    assert command is not None
    reply = await command.run(api, line)
    text = reply.text if isinstance(reply, Rows) else reply
    assert isinstance(text, Text)
    return "\n".join(text.lines)


async def first_notice(session: RemoteSession) -> str:
    async for item in session.events():
        if isinstance(item, LaptopNotice):
            return item.text
    raise AssertionError("the session ended")


@pytest.mark.parametrize("labels, name", [({}, "vite"), ({"5173": "web"}, "web")])
async def test_a_new_port_is_offered_in_one_line_with_what_takes_and_hides_it(
    labels: dict[str, str], name: str
) -> None:
    async with forwards(labels) as (_, session, peer):
        await peer.send(Listening(1, {"ports": [VITE]}))
        said = await first_notice(session)
    assert said.startswith(f"5173 ({name}) listens on the host")
    assert all(f"/ports {words}" in said for words in ("5173", "open 5173", "ignore 5173"))


async def test_an_ignored_port_is_listed_and_not_offered_and_what_is_no_port_is_left_out() -> None:
    odd = [{"port": 70000}, {"port": "22"}, {"port": True}, "x", {"port": 8000, "name": "\x1b[31mred"}]
    async with forwards(ignored=5173) as (ports, session, peer):
        await peer.send(Listening(1, {"ports": [VITE, *odd]}))
        assert (await first_notice(session)).startswith("8000 ")
        assert list(ports.listening) == [5173, 8000]
        assert "\x1b" not in ports.shown(8000)


async def test_a_port_is_offered_once_and_no_more_than_some_ports_are() -> None:
    def listening(*ports: int) -> Listening:
        return Listening(1, {"ports": [{"port": each} for each in ports]})

    async with forwards() as (_, session, peer):
        await peer.send(listening(1), listening(), listening(1), listening(*range(1, 6)), listening(*range(100, 120)))
        said: list[str] = []
        async for item in session.events():
            said += [item.text.partition(" listen")[0]] if isinstance(item, LaptopNotice) else []
            if said and said[-1].startswith("Ports that"):
                break
    assert said[:-1] == [*"12345", *(str(port) for port in range(100, 115))]


async def test_a_forward_has_the_same_number_if_that_is_free_and_carries_both_ways() -> None:
    remote = free_port()
    async with forwards() as (ports, session, peer):
        forward = await ports.forward(remote)
        assert forward.url == f"http://127.0.0.1:{remote}"
        reader, writer = await asyncio.open_connection("127.0.0.1", remote)
        writer.write(b"GET")
        opened = await peer.next(ChannelOpen)
        assert (opened.kind, opened.body) == ("port", {"port": remote})
        assert (await peer.next(ChannelData)).data == b"GET"
        await peer.send(ChannelData(opened.channel, 0, b"OK"), ChannelEnd(opened.channel))
        assert await reader.read() == b"OK"
        writer.close()
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            taken = busy.getsockname()[1]
            one, other = await asyncio.gather(ports.forward(taken), ports.forward(taken))
            assert one is other and one.local not in (0, taken)
            await ports.take(PortOptions((str(taken),)))
            assert (await first_notice(session)).endswith(f"that of the host is {one.url} here")
            with pytest.raises(UsageError, match="cannot be used: address already in use\n"):
                await ports.forward(1, taken)


async def test_an_answer_that_breaks_off_is_not_taken_for_all_of_it() -> None:
    remote = free_port()
    async with forwards() as (ports, _, peer):
        await ports.forward(remote)
        reader, writer = await asyncio.open_connection("127.0.0.1", remote)
        channel = (await peer.next(ChannelOpen)).channel
        half = ChannelData(channel, 0, b"half")
        await peer.send(half, ChannelEnd(channel, "the server has crashed"))
        assert await reader.readexactly(4) == b"half"
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_a_forward_ends_with_its_program_and_comes_back_with_it_unless_the_person_ends_it() -> None:
    remote = free_port()
    vite = {**VITE, "port": remote}
    gone_and_back = [Listening(1, {"ports": each}) for each in ([], [{**vite, "name": "again"}])]
    async with forwards() as (ports, _, peer):
        await peer.send(Listening(1, {"ports": [vite]}))
        await until(lambda: remote in ports.listening)
        await ports.forward(remote)
        for _ in range(2):
            await peer.send(Listening(1, {"ports": []}))
            await until(lambda: not listens(remote))
            await peer.send(Listening(1, {"ports": [{**vite, "pid": 8}]}))
            await until(lambda: listens(remote))
        await peer.send(*gone_and_back, *gone_and_back)
        await until(lambda: bool(ports.forwards) and ports.listening[remote].cell == "again")
        await peer.send(Listening(1, {"ports": []}))
        await until(lambda: not ports.listening)
        await ports.stop(remote)
        await peer.send(Listening(1, {"ports": [vite]}))
        await until(lambda: bool(ports.listening))
        assert not listens(remote) and not ports.forwards
        with pytest.raises(UsageError, match="is not forwarded"):
            await ports.stop(remote)
        await ports.forward(remote)
        await peer.send(Listening(1, {"ports": []}))
        await until(lambda: not ports.forwards)
        await ports.stop(remote)
        await peer.send(Listening(1, {"ports": [vite]}))
        await until(lambda: bool(ports.listening))
        assert not ports.forwards, "the person has ended it"


async def test_a_forward_that_cannot_come_back_is_told() -> None:
    remote, local = free_port(), free_port()
    vite = Listening(1, {"ports": [{**VITE, "port": remote}]})
    async with forwards(ignored=remote) as (ports, session, peer):
        await peer.send(vite)
        await until(lambda: remote in ports.listening)
        await ports.forward(remote, local)
        await peer.send(Listening(1, {"ports": []}))
        await until(lambda: not listens(local))
        with socket.create_server(("127.0.0.1", local)):  # connections to the one before may linger
            await peer.send(vite)
            said = await first_notice(session)
    assert f"port {remote} of the host is back" in said and f"port {local} of this machine" in said


async def test_a_port_gets_one_listener_however_often_it_is_asked_for() -> None:
    remote = free_port()
    vite = {**VITE, "port": remote}
    async with forwards() as (ports, _, peer):
        one, other = await asyncio.gather(ports.forward(remote), ports.forward(remote))
        assert one is other
        await peer.send(*[Listening(1, {"ports": each}) for each in ([vite], [], [vite], [vite], [vite])])
        await until(lambda: bool(ports.listening))
        assert listens(remote)
    assert not listens(remote)


async def test_a_port_where_nothing_of_the_session_listens_stays_until_it_is_ended() -> None:
    remote = free_port()
    async with forwards() as (ports, _, peer):
        await ports.forward(remote)
        await peer.send(Listening(1, {"ports": [VITE]}), Listening(1, {"ports": []}))
        await until(lambda: not ports.listening)
        assert listens(remote)
    assert not listens(remote)


async def test_too_many_forwards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_forwards, "MAX_FORWARDS", 1)
    async with forwards() as (ports, _, _peer):
        await ports.forward(free_port())
        with pytest.raises(UsageError, match="1 ports are forwarded"):
            await ports.forward(free_port())


async def test_a_worker_of_an_older_version_is_said_to_forward_nothing() -> None:
    async with session_on(ScriptedHost()) as (session, _), PortForwards(session, {}) as ports:
        with pytest.raises(UsageError, match="older version"):
            await ports.forward(80)
        with pytest.raises(UsageError, match="older version"):
            await ports.reverse(80)


@contextmanager
def server_here() -> Iterator[socket.socket]:
    """A server of this machine, which accepts when the test does."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        server.settimeout(10)
        yield server


async def reversed_port(ports: PortForwards, peer: Peer, server: socket.socket) -> tuple[int, int]:
    """Let the host reach a server. Return its port, and the number of the channel for the first connection."""
    port: int = server.getsockname()[1]
    await ports.reverse(port)
    opened = await peer.next(ChannelOpen)
    assert (opened.kind, opened.body) == ("accept", {"port": port})
    return port, opened.channel


def line(channel: int, at: int, text: bytes) -> ChannelData:
    return ChannelData(channel, at, text)


async def test_the_host_reaches_a_port_of_this_machine_that_the_person_has_given() -> None:
    with server_here() as server:
        async with forwards() as (ports, _, peer):
            port, channel = await reversed_port(ports, peer, server)
            await peer.send(line(channel, 0, b"\n"))
            await until(lambda: not ports.reverses[port].state)
            await peer.send(line(channel, 1, b"\nping"))
            with (await asyncio.to_thread(server.accept))[0] as accepted:
                opened = await peer.next(ChannelOpen)
                assert (opened.kind, opened.body) == ("accept", {"port": port}), "for the next connection"
                assert await asyncio.to_thread(accepted.recv, 100) == b"ping"
                accepted.sendall(b"pong")
                assert (await peer.next(ChannelData)).data == b"pong"
            await ports.stop(port)
            while (end := await peer.next(ChannelEnd)).channel != opened.channel:
                pass
            assert end.error == "closed"
            assert not ports.reverses


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[PortForwards, RemoteSession, Peer]]:
    """A person reads the session."""
    host = ScriptedHost()
    host.greeting = replace(host.greeting, capabilities=[CHANNELS])
    async with (
        session_on(host) as (session, peer),
        PortForwards(session, {}, asks=asks_reader(session, "devbox")) as ports,
    ):
        yield ports, session, peer


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_host_reaches_a_port_of_this_machine_only_after_the_person_who_reads_has_said_yes(
    allowed: bool,
) -> None:
    with server_here() as server:
        port: int = server.getsockname()[1]
        async with asking() as (ports, session, peer):
            assert (await ports.reverse(port)).state == "waits for your answer"
            assert f"{port} of this machine: waits for your answer" in await command_says(ports, session, "")
            events = session.events()
            while not isinstance(item := await anext(events), SessionEvent):
                pass
            asked = item.body["request"]["input"]
            assert (asked["host"], asked["port"]) == ("devbox", port)
            await session.answer(item.body["request_id"], {"allowed": allowed})
            said = await anext(events)
            assert isinstance(said, LaptopNotice)
            if allowed:
                assert (await peer.next(ChannelOpen)).body == {"port": port}
                assert said.text.startswith(f"127.0.0.1:{port} of the host leads to port {port} of this machine")
            else:
                assert not ports.reverses and said.text == f"port {port} of this machine stays closed for the host"


async def test_a_worker_cannot_have_the_person_asked_for_a_port_of_this_machine() -> None:
    async with asking() as (_, session, peer):
        reading = asyncio.ensure_future(anext(session.events()))
        await peer.send(Event(1, 1, "message", Request(REVERSE_PORT, ReversedPort("devbox", 22)).public()))
        refused = await peer.next(Input)
        assert "not read here" in refused.body["response"]["error"]
        reading.cancel()


@pytest.mark.parametrize("told", [b"x" * 101, b"x" * 101 + b"\n\n"])
async def test_what_is_no_connection_of_a_reverse_port_opens_nothing(told: bytes) -> None:
    with server_here() as server:
        async with forwards() as (ports, _, peer):
            port, channel = await reversed_port(ports, peer, server)
            await peer.send(line(99, 0, b"\n\n"), line(channel, 0, told))
            await until(lambda: ports.reverses[port].ended)
            assert not ports.reverses[port].connections
            server.settimeout(0)
            with pytest.raises(BlockingIOError):
                server.accept()


async def test_a_host_that_tells_of_a_thousand_connections_gets_a_bounded_number() -> None:
    with server_here() as server:
        async with forwards() as (ports, _, peer):
            port, first = await reversed_port(ports, peer, server)
            channel = first
            for _ in range(MAX_REVERSED - 1):
                await peer.send(line(channel, 0, b"\n\n"))
                channel = (await peer.next(ChannelOpen)).channel
            await peer.send(line(channel, 0, b"\n\n"))
            await until(lambda: len(ports.reverses[port].connections) == MAX_REVERSED)
            await peer.send(ChannelEnd(first, "reset"))
            channel = (await peer.next(ChannelOpen)).channel
            await peer.send(ChannelEnd(channel, "enough"))
            await until(lambda: ports.reverses[port].ended)
            assert not ports.reverses[port].connections


async def test_a_flood_of_ports_is_bounded_in_the_list_in_the_offers_and_in_what_is_shown() -> None:
    async with forwards() as (ports, session, peer):
        for first in range(1, 60_000, 1000):
            body = {"ports": [{"port": port, "name": "\x1b]0;pwned\x07" * 9} for port in range(first, first + 1000)]}
            await peer.send(Listening(1, body))
        await peer.send(Listening(1, {"ports": [VITE]}))
        await until(lambda: [*ports.listening] == [5173])
        session.warn("the last one")
        said = []
        async for item in session.events():
            if isinstance(item, LaptopNotice) and item.text == "the last one":
                break
            if isinstance(item, LaptopNotice | PortOffer):
                said.append(item.text)
        assert [each.split()[0] for each in said] == [*map(str, range(1, 21)), "Ports"]


@pytest.mark.parametrize("text, ports", [("80", (80, 0)), ("8080:80", (80, 8080))])
def test_a_forward_names_the_port_of_the_host_and_may_name_that_of_this_machine(
    text: str, ports: tuple[int, int]
) -> None:
    assert forward_of(text) == ports


async def test_the_command_lists_forwards_and_ends_what_listens() -> None:
    remote = free_port()
    async with forwards() as (ports, session, peer):
        await peer.send(Listening(1, {"ports": [{**VITE, "port": remote}]}))
        await until(lambda: bool(ports.listening))

        said = partial(command_says, ports, session)
        assert f"{remote} (vite): not forwarded" in await said("")
        assert await said(str(remote)) == f"Port {remote} of the host is http://127.0.0.1:{remote} on this machine."
        assert f"http://127.0.0.1:{remote}, 0 connections" in await said("")
        assert "on this machine already; /ports stop" in await said(f"{free_port()}:{remote}")
        assert "not forwarded any more" in await said(f"stop {remote}")
        own = free_port()
        assert await said(f"{own}:{remote}") == f"Port {remote} of the host is http://127.0.0.1:{own} on this machine."
        assert "not forwarded any more" in await said(f"stop {remote}")
        assert "is no port" in await said("vite") and "is no port" in await said("open 70000")
