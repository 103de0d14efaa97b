"""What an earlier connection had under way arrives late: it must not count against the one that lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.hosts.scripted_host import no_calls
from tests.support.network.held_wire import Wire, in_process_host
from tests.support.network.link_peer import link_pair
from tests.tunnel.link.test_interleavings import Player

from ccb.local.session.session_client import LinkState
from ccb.tunnel.link.link import Link, new_nonce
from ccb.tunnel.wire.frames import Attached, Event, Fenced, Snapshot


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_grants_and_fences_of_an_earlier_epoch_are_ignored() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(epoch=4)
        await link.hello()
        await link.attach(nonce=new_nonce(), options={}, calls=no_calls)
        await peer.send(Fenced(4, "bob"), Attached(4, "viewer", 0, "bob"), Snapshot(4, 9, {}))
        await peer.send(Attached(5, "driver", 0), Event(1, 5, "message", {}), Fenced(6, "bob"))
        frames = link.frames()
        async with asyncio.timeout(60):
            assert [await anext(frames) for _ in range(3)] == [
                Attached(5, "driver", 0), Event(1, 5, "message", {}), Fenced(6, "bob"),
            ]  # fmt: skip


async def test_a_client_whose_own_earlier_attach_arrives_late_still_drives() -> None:
    async with in_process_host() as host:
        player = Player(host, "A", "driver")
        player.free = False
        try:
            first = await _attaching(player, None)
            first.cut(0, 0, host_knows=False)
            second = await _attaching(player, first)
            first.move(100, 0)
            await until(lambda: host.daemon.journal.seq)
            player.free = True
            second.release(free=True)
            session = player.session
            assert session is not None
            await until(lambda: session.driving and session.state is LinkState.CONNECTED and player.have)
        finally:
            await player.end()


async def _attaching(player: Player, before: Wire | None) -> Wire:
    """The next connection of a player, with its attach under way."""
    await until(lambda: player.wire is not before and player.wire is not None and player.wire.down)
    wire = player.wire
    assert wire is not None
    wire.move(0, 100)
    await until(lambda: wire.up)
    return wire
