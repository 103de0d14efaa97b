"""One copy between the laptop and a host, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import errno
import logging
import posixpath
import time
from collections.abc import Awaitable, Callable

from ccb.deploy.bootstrap import launch_program
from ccb.tunnel.errors import (
    CcbError,
    ConnectionLost,
    CopyFailed,
    DeployError,
    Dropped,
    NoStorage,
    NoSuchPath,
    Unreachable,
)
from ccb.tunnel.link.backoff import waits
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.spelling import spelled

from .both_ends.channel import CannotCopy, CopyChannel, OtherEndFailed, StreamEnded
from .both_ends.receiving import Receiver
from .both_ends.sending import Sender
from .host_program import host_program
from .progress import CopyProgress
from .thread_pipe import ThreadPipe

log = logging.getLogger(__name__)

PATIENCE_S = 600.0
"""Seconds to try again after the last byte that arrived."""

_EXIT_S = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MISSING = (errno.ENOENT, errno.ENOTDIR)

OpenTransport = Callable[[bool], Awaitable[Transport]]
"""Returns a transport that is alive. The argument says whether the last one has failed. Raises CcbError."""


@dataclass(frozen=True)
class CopyOrder:
    """What the person wants copied: `remote` on the host and `local` on the laptop, to the host with `upload`.

    A target that is a directory gets the source under its own name. `private` keeps what arrives on the laptop from
    other users, and from being executed. If `most` is set, only one file of at most so many bytes is taken.
    """

    upload: bool
    local: str
    remote: str
    private: bool = False
    most: int = 0

    @property
    def name(self) -> str:
        """The name of the source, "" if its path does not tell."""
        path = self.local if self.upload else self.remote
        name = posixpath.basename(path.rstrip("/"))
        return "" if name in (".", "..", "~") else name

    @property
    def shown(self) -> str:
        """The name for lines: what is no text in it is spelled out."""
        return spelled(self.name or self.remote)


async def copy(
    order: CopyOrder, open_transport: OpenTransport, progress: CopyProgress, *, patience: float = PATIENCE_S
) -> str:
    """Copy, and return the path that was written, if that is on the laptop. After a lost connection go on where it
    broke off. Raise CopyFailed, NoSuchPath, NoStorage, ConnectionLost, and what opening a transport raises."""
    delays = waits()
    most, moved_at, again = 0, time.monotonic(), False
    while True:
        try:
            return await _attempt(order, await open_transport(again), progress)
        except (ConnectionLost, Unreachable, DeployError) as error:
            if not _is_drop(error, again):
                raise
            log.info("the copy broke off at %d bytes: %s", progress.done, error.what)
            if progress.done > most:
                most, moved_at, delays = progress.done, time.monotonic(), waits()
            if time.monotonic() - moved_at > patience:
                raise _gave_up(error, progress) from error
            progress.waiting = f"{error.what}; trying again"
            again = True
            await asyncio.sleep(next(delays))


def _is_drop(error: CcbError, again: bool) -> bool:
    """Return whether another attempt may go better. A host that was there once may be out of reach for a while."""
    if isinstance(error, DeployError):
        return isinstance(error.__cause__, ConnectionLost)
    return again or isinstance(error, (ConnectionLost, Dropped))


async def _attempt(order: CopyOrder, transport: Transport, progress: CopyProgress) -> str:
    progress.restart()
    launched = await launch_program(transport, host_program())
    pipe = launched.pipe
    try:
        thread = ThreadPipe(pipe, launched.rest)
        channel = CopyChannel(thread.read, thread.write)
        try:
            return await thread.run(lambda: _half(order, channel, progress))
        except StreamEnded:
            raise await _ended(transport, pipe) from None
        except OtherEndFailed as error:
            raise _failed(transport.name, error.path, error.why, error.code) from None
        except CannotCopy as error:
            raise _failed("", error.path, error.why, 0) from None
        except OSError as error:
            raise _failed("", str(error.filename or order.local), error.strerror or "", error.errno or 0) from error
        except ValueError as error:
            raise CopyFailed(
                f"{transport.name} does not keep to the rules of a copy",
                evidence=f"{HostText(str(error))}",
                do="Look for something that rewrites the output of commands on the host, then try again.",
            ) from error
    finally:
        await pipe.close()


def _half(order: CopyOrder, channel: CopyChannel, progress: CopyProgress) -> str:
    """Be the half on the laptop, in a thread."""
    if order.upload:
        channel.say("put", path=order.remote, name=order.name)
        sender = Sender(channel, progress.moved)
        sender.begun, sender.skipped, sender.copied = progress.begun, progress.left_out, progress.one_is_there
        sender.send(order.local)
        return ""
    channel.say("get", path=order.remote)
    receiver = Receiver(channel, progress.moved, order.private)
    receiver.begun, receiver.skipped, receiver.copied = progress.begun, progress.left_out, progress.one_is_there
    receiver.most = order.most
    return receiver.receive(order.local, order.name)


async def _ended(transport: Transport, pipe: Pipe) -> CcbError:
    """Return what it means that the half on the host has ended without a word."""
    try:
        async with asyncio.timeout(_EXIT_S):
            status = await pipe.exit_status()
    except (TimeoutError, ConnectionLost):
        status = None
    if status is None:
        return ConnectionLost(f"the connection to {transport.name} was lost")
    return CopyFailed(
        f"the copy ended early on {transport.name} (exit code {status})",
        evidence=pipe.stderr_tail()[-1000:],
        do="Try again: it goes on where it broke off.",
    )


def _failed(where: str, path: str, why: str, code: int) -> CcbError:
    """Return the error for a half that cannot go on, on the host `where` or on the laptop ("")."""
    place = f" on {where}" if where else " on this machine"
    what = f"{HostText(spelled(path)).path}{place}: {HostText(why).cell}"
    if code in _MISSING:
        return NoSuchPath(what, do="Check the path.")
    if code in _FULL:
        return NoStorage(what, do="Make room there, then try again: the copy goes on where it broke off.")
    return CopyFailed(what, do="Mend that, then try again.")


def _gave_up(error: CcbError, progress: CopyProgress) -> ConnectionLost:
    share = f" at {progress.done / progress.size:.0%}" if progress.size else ""
    return ConnectionLost(
        f"the copy was given up{share}: {error.what}",
        evidence=error.evidence,
        do="Give the same command again: it goes on where it broke off.",
    )
