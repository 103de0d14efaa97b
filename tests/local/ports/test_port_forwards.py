"""Ports of the host on this machine: what is offered, where a forward listens, and when it ends."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, session_on
from tests.support.machine.waiting import until
from tests.support.network.link_peer import Peer
from tests.support.repl.paper import Paper

from ccb.local.ports import port_forwards
from ccb.local.ports.port_forwards import PortForwards, forward_of
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import LaptopNotice
from ccb.local.slash_commands.command_table import find_command
from ccb.local.slash_commands.registry import Rows, Text
from ccb.local.slash_commands.session_api import LaptopSide, Place, ReplInfo, SessionApi
from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.frames import CHANNELS, ChannelData, ChannelEnd, ChannelOpen, Listening

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


async def test_a_forward_has_the_same_number_if_that_is_free_and_carries_both_ways() -> None:
    remote = free_port()
    async with forwards() as (ports, _, peer):
        forward = await ports.forward(remote)
        assert forward.url == f"http://127.0.0.1:{remote}"
        reader, writer = await asyncio.open_connection("127.0.0.1", remote)
        writer.write(b"GET")
        opened = await peer.next(ChannelOpen)
        assert (opened.kind, opened.body) == ("port", {"port": remote})
        assert base64.b64decode((await peer.next(ChannelData)).b64) == b"GET"
        await peer.send(ChannelData(opened.channel, 0, base64.b64encode(b"OK").decode()), ChannelEnd(opened.channel))
        assert await reader.read() == b"OK"
        writer.close()
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            taken = busy.getsockname()[1]
            assert (await ports.forward(taken)).local not in (0, taken)
            with pytest.raises(UsageError, match="cannot be used"):
                await ports.forward(1, taken)


async def test_a_forward_ends_with_its_program_and_comes_back_with_it_unless_the_person_ends_it() -> None:
    remote = free_port()
    vite = {**VITE, "port": remote}
    async with forwards() as (ports, _, peer):
        await peer.send(Listening(1, {"ports": [vite]}))
        await until(lambda: remote in ports.listening)
        await ports.forward(remote)
        for _ in range(2):
            await peer.send(Listening(1, {"ports": []}))
            await until(lambda: not listens(remote))
            await peer.send(Listening(1, {"ports": [{**vite, "pid": 8}]}))
            await until(lambda: listens(remote))
        await ports.stop(remote)
        assert not listens(remote) and not ports.forwards
        with pytest.raises(UsageError, match="is not forwarded"):
            await ports.stop(remote)


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

        async def said(line: str) -> str:
            api = SessionApi(session, INFO, Paper().reducer, LaptopSide(ports=ports), place=Place.LINES)
            command = find_command("ports")
            assert command is not None
            reply = await command.run(api, line)
            text = reply.text if isinstance(reply, Rows) else reply
            assert isinstance(text, Text)
            return "\n".join(text.lines)

        assert f"{remote} (vite): not forwarded" in await said("")
        assert await said(str(remote)) == f"Port {remote} of the host is http://127.0.0.1:{remote} on this machine."
        assert f"http://127.0.0.1:{remote}, 0 connections" in await said("")
        assert "not forwarded any more" in await said(f"stop {remote}")
        assert "is no port" in await said("vite") and "is no port" in await said("open 70000")
