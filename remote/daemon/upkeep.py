"""What keeps a living daemon reachable although others clean up: its socket and its lock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable
from typing import Callable

from ..sessions import sockets
from ..sessions.paths import SessionPaths, private_directory

log = logging.getLogger(__name__)

REFRESH_S = 3600.0
"""Cleaners of /tmp take what was not touched for days."""

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def keep_reachable(where: SessionPaths, accept: Accept) -> None:
    """Until cancelled, touch socket, lock and bundle every hour, and make the socket again when it is gone: a logout may take
    the whole runtime directory. The same at once on SIGHUP, from a connection that knows of the daemon and finds no socket."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, called.set)
    server: asyncio.AbstractServer | None = None
    try:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(called.wait(), REFRESH_S)
            called.clear()
            if sys.path[0].endswith(".zip"):  # our bundle: modules are still read from it, and old bundles are removed
                touch(sys.path[0])
            if where.lock:
                touch(where.lock)
            if sockets.in_memory(where.socket) or touch(where.socket):
                continue
            log.warning("the socket is gone; it is made again")
            if server is not None:
                server.close()
            try:
                server = await asyncio.start_unix_server(accept, sock=listen_again(where))
            except OSError as error:
                log.error("the socket cannot be made again: %s", error)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if server is not None:
            server.close()


def touch(path: str) -> bool:
    """Make it look used; False when it is gone."""
    try:
        os.utime(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s cannot be touched: %s", path, error)
    return True


def listen_again(where: SessionPaths) -> socket.socket:
    """A new socket in the place of one that is gone. Raises OSError."""
    private_directory(where.runtime, os.path.dirname(where.runtime))
    listener = sockets.listen(where.socket)
    listener.setblocking(False)
    return listener
