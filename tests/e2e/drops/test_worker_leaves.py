"""A worker that can do nothing any more leaves, and its session goes on in the next one."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from tests.support.network.held_wire import in_process_host

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.link.link import Link, new_nonce
from ccb.tunnel.wire.frames import Applied, Bye, Event, Input


async def test_a_journal_that_can_hold_nothing_any_more_ends_the_worker_and_not_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a worker that starts again reads what is on the disk; its clients come back to that one."""

    def failing(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with in_process_host() as host, Link(await host.connect(free=True)) as link:
        await link.hello()
        await link.attach(nonce=new_nonce(), options={}, calls=None)
        frames = link.frames()
        while not isinstance(await anext(frames), Event):
            pass
        monkeypatch.setattr(os, "fdatasync", failing)
        await link.send(Input(link.epoch, "x", {"type": "control_request", "request_id": "x", "request": {}}))
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(60):
                async for frame in frames:
                    assert not isinstance(frame, Bye | Applied)
        monkeypatch.undo()
