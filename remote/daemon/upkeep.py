"""Protect the files of a running daemon from cleaners of /tmp, and create its socket again after a removal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Awaitable
from typing import Callable

from ..sessions import sockets
from ..sessions.paths import SessionPaths, private_directory
from ..system.deadline import within

log = logging.getLogger(__name__)

REFRESH_S = 3600.0
"""Seconds between two touches of the files. Cleaners of /tmp remove files that were not touched for days."""

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def keep_reachable(where: SessionPaths, accept: Accept) -> None:
    """Touch socket and lock every hour until cancelled, and create the socket again when it is gone: a logout
    may remove the whole runtime directory. SIGHUP triggers this at once. A new connection sends SIGHUP when it knows of
    the daemon but finds no socket."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, called.set)
    server: asyncio.AbstractServer | None = None
    try:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(REFRESH_S, called.wait())
            called.clear()
            if where.lock:
                touch(where.lock)
            if sockets.in_memory(where.socket) or touch(where.socket):
                continue
            log.warning("the session's socket was removed; making it again")
            if server is not None:
                server.close()
            try:
                server = await asyncio.start_unix_server(accept, sock=listen_again(where))
            except OSError as error:
                log.error("the session's socket cannot be made again: %s", error)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if server is not None:
            server.close()


def touch(path: str) -> bool:
    """Set the time of a file to now. Return False when it is gone."""
    try:
        os.utime(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s cannot be touched: %s", path, error)
    return True


def listen_again(where: SessionPaths) -> socket.socket:
    """Return a new listening socket at the path of the removed one. Raise OSError."""
    private_directory(where.runtime, os.path.dirname(where.runtime))
    listener = sockets.listen(where.socket)
    listener.setblocking(False)
    return listener
