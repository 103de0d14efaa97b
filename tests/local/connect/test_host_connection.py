"""One login for all sessions of a host, before and after a cut, over a real OpenSSH server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import psutil
import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.network.relay import Relay, relay

from ccb.local.command_line.parser import parse_arguments
from ccb.local.connect import dialer
from ccb.local.connect.connect_session import OpenSession, connect_session
from ccb.local.connect.host_connection import HostConnection
from ccb.local.session.session_client import LinkChange, SessionEvent
from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.transports.login_prompts import NobodyToAsk

pytestmark = pytest.mark.visited


@asynccontextmanager
async def three_sessions(host: Host) -> AsyncIterator[tuple[Relay, HostConnection, list[OpenSession]]]:
    host.model.add({"text": "Here.", "times": 0})
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        between = await stack.enter_async_context(relay(host.server.port))
        arguments = parse_arguments(host.ssh(port=between.port))
        connection = await stack.enter_async_context(HostConnection(arguments, NobodyToAsk(), host.laptop.env))
        connecting = (connect_session(connection, arguments) for _ in range(3))
        opened = await asyncio.gather(*(stack.enter_async_context(each) for each in connecting))
        for each in opened:
            stack.push_async_callback(ended, each)
        yield between, connection, opened


async def ended(opened: OpenSession) -> None:
    with suppress(CcbError):
        await opened.session.stop()
        await opened.session.ended()


async def answer(opened: OpenSession) -> object:
    await opened.session.prompt("hi")
    async for item in opened.session.events():
        if isinstance(item, SessionEvent) and item.body.get("type") == "result":
            return item.body["result"]
    raise AssertionError("the session has ended")


async def test_three_sessions_have_one_login_and_after_a_cut_one_more(host: Host) -> None:
    async with three_sessions(host) as (between, connection, opened):
        assert await asyncio.gather(*map(answer, opened)) == ["Here."] * 3
        assert host.server.logins == 1
        between.cut()
        assert await asyncio.gather(*map(answer, opened)) == ["Here."] * 3
        assert (host.server.logins, between.connections) == (2, 2)
        rows = await (await connection.sessions()).listed()
        assert {row.session for row in rows} == {each.session.hello.session for each in opened}
        assert host.server.logins == 2


async def test_a_login_that_outlives_the_connection_leaves_nothing_open(host: Host) -> None:
    async with asyncio.timeout(60), relay(host.server.port) as between:
        arguments = parse_arguments(host.ssh(port=between.port))
        async with HostConnection(arguments, NobodyToAsk(), host.laptop.env) as connection:
            between.freeze()
            login = asyncio.create_task(connection.connected())
            await connection.loader.loaded()
            await until(lambda: between.connections)
        between.thaw()
        with pytest.raises(ConnectionLost):
            await login
        assert connection.current is None


async def test_a_transport_that_is_silent_is_given_up_once_for_all(host: Host) -> None:
    async with three_sessions(host) as (between, connection, opened):
        between.freeze()
        for each in opened:
            each.session.doubt("a test")
        await until(lambda: connection.current is None)
        between.thaw()
        assert await asyncio.gather(*map(answer, opened)) == ["Here."] * 3
        assert host.server.logins == 2


async def test_a_worker_that_stands_still_costs_the_other_sessions_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "WARM_HELLO_S", 1.0)
    async with three_sessions(host) as (_, connection, opened):
        frozen, *others = opened
        transport = connection.current
        worker = psutil.Process(frozen.session.hello.pid)
        worker.suspend()
        frozen.session.doubt("a test")
        async for item in frozen.session.events():
            if isinstance(item, LinkChange) and "did not say hello" in item.reason:
                break
        assert await asyncio.gather(*map(answer, others)) == ["Here."] * 2
        worker.resume()
        assert await answer(frozen) == "Here."
        assert connection.current is transport and host.server.logins == 1
