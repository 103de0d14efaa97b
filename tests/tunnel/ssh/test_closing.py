"""Closing SSH connections that do not answer any more."""

from __future__ import annotations

import asyncio
from typing import cast

import asyncssh

from ccb.tunnel.ssh.asyncssh_transport import close_all


class Closing:
    """The part of a connection that is used when it is closed. It is closed when `closed` is set."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def close(self) -> None: ...

    def abort(self) -> None: ...

    async def wait_closed(self) -> None:
        await self.closed.wait()


async def test_who_leaves_while_a_connection_ends_is_not_kept() -> None:
    first, second = Closing(), Closing()
    closing = asyncio.ensure_future(close_all([cast(asyncssh.SSHClientConnection, each) for each in (first, second)]))
    for _ in range(3):
        await asyncio.sleep(0)
    first.closed.set()
    await asyncio.sleep(0)
    closing.cancel()
    done, _ = await asyncio.wait({closing}, timeout=1)
    second.closed.set()
    assert done
    assert closing.cancelled()
