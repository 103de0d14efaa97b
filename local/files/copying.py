"""Copy files between the laptop and a host: orders, progress, and several copies at once."""

from __future__ import annotations

import ast
import asyncio
import errno
import itertools
import logging
import posixpath
import shlex
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from datetime import timedelta
from functools import cache
from pathlib import Path

from ccb.deploy.bootstrap import launch_program
from ccb.tunnel import errors
from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, NoStorage, NoSuchPath, UsageError
from ccb.tunnel.plain_text import HostText, make_directory, one_line
from ccb.tunnel.reconnecting import waits
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.spelling import spelled, unspelled

from ..terminal.stdio import in_thread
from .both_ends.copy_channel import (
    MAX_PIECE,
    CannotCopy,
    CopyChannel,
    CopyProgress,
    OtherEndFailed,
    StreamEnded,
    write_all,
)
from .both_ends.receiver import Receiver
from .both_ends.sender import Sender

log = logging.getLogger(__name__)

_AT_ONCE = 256 * 1024  # bytes that are carried at once, and that a socket holds where the system allows it
SILENCE_S = 30.0  # the half on the host says something every 5 s
PATIENCE_S = 600.0  # seconds to try again after the last byte that arrived
_EXIT_S = 5.0

OpenTransport = Callable[[bool], Awaitable[Transport]]  # the argument: whether the last one failed. Raises CcbError


@dataclass(frozen=True)
class CopyOrder:
    """What the person wants copied, to the host with `upload`. `private`: from other users, and not executable."""

    upload: bool
    local: str
    remote: str
    private: bool = False
    most: int = 0

    @property
    def name(self) -> str:
        path = self.local if self.upload else self.remote
        name = posixpath.basename(path.rstrip("/"))
        return "" if name in (".", "..", "~") else name

    @property
    def shown(self) -> str:
        return spelled(self.name or self.remote)


async def copy(order: CopyOrder, opens: OpenTransport, progress: CopyProgress, *, patience: float = PATIENCE_S) -> str:
    """Copy, over as many connections as it takes. Return the path that was written here. Raise CcbError."""
    delays = waits()
    most, moved_at, again = 0, time.monotonic(), False
    while True:
        try:
            return await _attempt(order, await opens(again), progress)
        except (ConnectionLost, errors.Unreachable, errors.DeployError) as error:
            wraps = isinstance(error, errors.DeployError)
            cut_off = error.__cause__ if wraps else error
            if not isinstance(cut_off, ConnectionLost | errors.Dropped) and (wraps or not again):
                raise
            log.info("the copy broke off at %d bytes: %s", progress.done, error.what)
            if progress.done > most:
                most, moved_at, delays = progress.done, time.monotonic(), waits()
            if time.monotonic() - moved_at > patience:
                share = f" at {progress.done / progress.size:.0%}" if progress.size else ""
                raise ConnectionLost(
                    f"the copy was given up{share}: {error.what}",
                    evidence=error.evidence,
                    do="Give the same command again: it goes on where it broke off.",
                ) from error
            progress.waiting = f"{error.what}; trying again"
            again = True
            await asyncio.sleep(next(delays))


async def _attempt(order: CopyOrder, transport: Transport, progress: CopyProgress) -> str:
    progress.restart()
    launched = await launch_program(transport, host_program())
    pipe = launched.pipe
    try:
        return await _over_socket(pipe, launched.rest, lambda channel: _half(order, channel, progress))
    except StreamEnded:
        raise await _ended(transport, pipe) from None
    except OtherEndFailed as error:
        raise _failed(transport.name, error.path, error.why, error.code, is_target=order.upload) from None
    except CannotCopy as error:
        raise _failed("", error.path, error.why, 0) from None
    except OSError as error:
        path, why, code = str(error.filename or order.local), error.strerror or "", error.errno or 0
        raise _failed("", path, why, code, is_target=not order.upload) from error
    except ValueError as error:
        raise CopyFailed(
            f"{transport.name} does not keep to the rules of a copy",
            evidence=f"{HostText(str(error))}",
            do="Look for something that rewrites the output of commands on the host, then try again.",
        ) from error
    finally:
        await pipe.close()


async def _over_socket(pipe: Pipe, first: bytes, work: Callable[[CopyChannel], str]) -> str:
    """Run `work` in a thread, over a socket that leads to `pipe`. `first` has arrived already. Raise ConnectionLost."""
    ours, its = socket.socketpair()
    for each in (ours, its):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _AT_ONCE)

    def write(data: bytes) -> None:
        try:
            write_all(its.fileno(), data)
        except ConnectionError:
            if not its.recv(1, socket.MSG_PEEK):  # what the host has said before it went is read first
                raise

    with ours, its:
        channel = CopyChannel(lambda: its.recv(MAX_PIECE), write)
        carrying = asyncio.create_task(_carry(pipe, first, ours), name="bytes of a copy")
        working = asyncio.create_task(in_thread(lambda: work(channel)), name="copy")
        try:
            return await asyncio.shield(working)
        except StreamEnded:
            await carrying  # which knows why
            raise
        finally:
            await cancelled(carrying)
            ours.close()  # a thread that still works finds its stream ended
            await asyncio.gather(working, return_exceptions=True)


async def _carry(pipe: Pipe, first: bytes, ours: socket.socket) -> None:
    """Carry bytes both ways until those of the host end, then close `ours`. Raise ConnectionLost, also for silence."""
    loop = asyncio.get_running_loop()
    ours.setblocking(False)

    async def send() -> None:
        while data := await loop.sock_recv(ours, _AT_ONCE):
            await pipe.write(data)

    sending = asyncio.create_task(send(), name="bytes to the host")
    try:
        data = first
        while True:
            await loop.sock_sendall(ours, data)
            async with asyncio.timeout(SILENCE_S):
                data = await pipe.read(_AT_ONCE)
            if not data:
                return
    except TimeoutError:
        raise ConnectionLost(f"the host has said nothing for {SILENCE_S:.0f} s") from None
    finally:
        await cancelled(sending)
        ours.close()


def _half(order: CopyOrder, channel: CopyChannel, progress: CopyProgress) -> str:
    if order.upload:
        channel.say("put", path=order.remote, name=order.name)
        Sender(channel, progress).send(order.local)
        return ""
    channel.say("get", path=order.remote)
    return Receiver(channel, progress, private=order.private, most=order.most).receive(order.local, order.name)


async def _ended(transport: Transport, pipe: Pipe) -> CcbError:
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


def _failed(where: str, path: str, why: str, code: int, *, is_target: bool = False) -> CcbError:
    place = f" on {where}" if where else " on this machine"
    what = f"{HostText(spelled(path)).path}{place}: {HostText(why).cell}"
    if code in (errno.ENOENT, errno.ENOTDIR):
        make = make_directory(path) if is_target and code == errno.ENOENT else ""
        return NoSuchPath(what, do=make or "Check the path.")
    if code in (errno.ENOSPC, errno.EDQUOT):
        return NoStorage(what, do="Make room there, then try again: the copy goes on where it broke off.")
    return CopyFailed(what, do="Mend that, then try again.")


@cache
def host_program() -> bytes:
    """Return the modules of `both_ends` as one module that starts the half on the host."""
    modules = ["from __future__ import annotations\n"]
    for name in ("copy_channel", "sender", "receiver", "copy_host"):
        source = Path(__file__).with_name("both_ends").joinpath(f"{name}.py").read_text(encoding="utf-8")
        lines: list[str] = source.splitlines(keepends=True)
        for node in reversed(ast.parse(source).body):
            if isinstance(node, ast.ImportFrom) and (node.level or node.module == "__future__"):
                del lines[node.lineno - 1 : node.end_lineno]
        modules.append("".join(lines))
    return ("\n".join(modules) + 'serve(sys.argv[1], wait=sys.argv[2] == "wait")\n').encode()


def get_order(argument: str, cwd: str) -> CopyOrder:
    """Return what `/get REMOTE [LOCAL]` asks for; `cwd` is the directory of the session. Raise UsageError."""
    words = _words(argument, "/get REMOTE [LOCAL]", most=2)
    return CopyOrder(False, words[1] if len(words) == 2 else ".", remote_path(words[0], cwd))


def put_order(argument: str, cwd: str) -> CopyOrder:
    words = _words(argument, "/put LOCAL [REMOTE]", most=2)
    return CopyOrder(True, words[0], remote_path(words[1] if len(words) == 2 else "", cwd))


def open_path(argument: str, cwd: str) -> str:
    return remote_path(_words(argument, "/open PATH", most=1)[0], cwd)


def remote_path(path: str, cwd: str) -> str:
    """Return the path on the host that a person spells, as one that means the same everywhere there."""
    path = unspelled(path)
    if path.startswith("~"):
        return path
    whole = posixpath.normpath(posixpath.join(cwd, path))
    return whole + "/" if path.endswith("/") and whole != "/" else whole


def _words(argument: str, usage: str, *, most: int) -> list[str]:
    try:
        words = shlex.split(argument)
    except ValueError:  # a quote without its end
        words = []
    if not 0 < len(words) <= most or "" in words or any("\0" in word for word in words):
        raise UsageError(f"this command is {usage}", do="Put a path with blanks in quotes.")
    return words


_BAR = 20
_UNITS = ("B", "KB", "MB", "GB", "TB")


def progress_line(name: str, progress: CopyProgress, width: int) -> str:
    """Return one line about a copy, at most `width` columns: name, bar, percentage, bytes, speed, time left."""
    if progress.waiting:
        return _cut(f"{one_line(name)}  {one_line(progress.waiting)}", width)
    share = min(1.0, progress.done / progress.size) if progress.size else 0.0
    rate = progress.rate(time.monotonic())
    parts = [f"{share:4.0%}", f"{size_of(progress.done)} of {size_of(progress.size)}"]
    if rate:
        left = str(timedelta(seconds=max(0, round((progress.size - progress.done) / rate))))
        parts += [f"{size_of(rate)}/s", f"{left.removeprefix('0:').removeprefix('0')} left"]
    text = "  ".join(parts)
    room = width - len(text) - 4
    filled = round(share * _BAR)
    bar = "█" * filled + "░" * (_BAR - filled)
    if room >= _BAR + 12:
        return f"{_cut(one_line(name), room - _BAR)}  {bar}  {text}"
    return _cut(f"{_cut(one_line(name), max(8, room))}  {text}", width)


def size_of(size: float) -> str:
    """Return a number of bytes as text of at most 7 characters."""
    unit = 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 99.5 else f"{size:.1f} {_UNITS[unit]}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


Opener = Callable[[], AbstractAsyncContextManager[OpenTransport]]  # lends one copy the way to its connections
_COPIES = 3  # at once
_MOST = 20


@dataclass
class Transfer:
    number: int
    order: CopyOrder
    progress: CopyProgress
    task: asyncio.Task[str] = field(init=False)

    @property
    def name(self) -> str:
        return f"{'↑' if self.order.upload else '↓'} {self.order.shown}"

    def done_text(self, path: str) -> list[str]:
        progress, name = self.progress, self.order.shown
        files = f"{progress.copied} files, " if progress.copied != 1 else ""
        target = self.order.remote if self.order.upload else str(Path(path).absolute())
        where = f"{spelled(target)} on the {'host' if self.order.upload else 'laptop'}"
        left_out = [f"  left out: {HostText(spelled(left)).path}: {why[:200]}" for left, why in progress.skipped]
        more = [f"  and {len(left_out) - 10} more"] if len(left_out) > 10 else []
        return [f"Copied {name} ({files}{size_of(progress.done)}) to {where}", *left_out[:10], *more]


class Transfers(AbstractAsyncContextManager["Transfers"]):
    """Runs copies over the connection of a session, a few at a time, until the end of the context."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._room = asyncio.Semaphore(_COPIES)
        self._numbers = itertools.count(1)
        self.running: list[Transfer] = []

    async def __aexit__(self, *_: object) -> None:
        for each in self.running:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in self.running), return_exceptions=True)

    def start(self, order: CopyOrder) -> Transfer:
        if len(self.running) >= _MOST:
            raise UsageError(f"{_MOST} copies are under way or wait", do="Wait until one is done.")
        transfer = Transfer(next(self._numbers), order, CopyProgress(waiting="waiting for the copies before it"))
        transfer.task = asyncio.create_task(self._run(transfer), name=f"copy {transfer.number}")
        self.running.append(transfer)
        transfer.task.add_done_callback(lambda task: self._ended(transfer))
        return transfer

    def cancel_newest(self) -> Transfer | None:
        for each in reversed(self.running):
            if not each.task.cancelling():
                each.progress.waiting = "breaking off"
                each.task.cancel()
                return each
        return None

    def cancel_all(self) -> bool:
        return sum(self.cancel_newest() is not None for _ in self.running) > 0

    async def _run(self, transfer: Transfer) -> str:
        async with self._room:
            transfer.progress.waiting = "connecting"
            async with self._opener() as open_transport:
                return await copy(transfer.order, open_transport, transfer.progress)

    def _ended(self, transfer: Transfer) -> None:
        self.running.remove(transfer)
        if not transfer.task.cancelled():
            transfer.task.exception()  # whoever shows the session says it, unless the session has ended


async def outcome(transfer: Transfer) -> str | CcbError | None:
    """Wait for a copy. Return the path that was written, the error, or None if it was broken off."""
    await asyncio.wait({transfer.task})
    try:
        return None if transfer.task.cancelled() else transfer.task.result()
    except CcbError as error:
        return error
