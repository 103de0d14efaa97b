"""The SSH transport, on asyncssh: one connection, authenticated as ssh would, on which commands run as pipes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import CcbError, ConnectionLost, Unreachable
from ..login.prompter import Prompts, tell_once
from ..login.server_messages import Overheard
from ..plain_text import neutralise
from ..ssh_config.resolve import SshTarget
from ..ssh_config.unsupported import of_consequence, only_openssh
from ..transports.stderr_tail import LAST_WORDS_S, StderrTail
from .jumps import Hop, route
from .proxy_command import FirstLine

if TYPE_CHECKING:
    import asyncssh

log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_OPEN_S = 30.0
_HEAD_START_S = 0.1  # longer than `ssh -G` takes where it asks nobody


async def connect(target: SshTarget, prompts: Prompts, busy: Callable[[], None] = lambda: None) -> SshTransport:
    """Log in to `target` with what `ssh -G` resolves for it; jump hosts are logged in to one by one, each host key checked.
    `busy` is called when the first packet is about to leave, or `ssh -G` takes its time: now there is time for other work.

    Raises Unreachable, AuthFailed, HostKeyError, ConfigError.
    """
    line: FirstLine | None = None
    sock: Overheard | None = None
    hops: list[asyncssh.SSHClientConnection] = []
    try:
        waiting = asyncio.get_running_loop().call_later(_HEAD_START_S, busy)
        try:
            way = await route(target)
        finally:
            waiting.cancel()
        busy()
        loading = asyncio.create_task(asyncio.to_thread(_load))
        try:
            for name, config in way:
                of_its_own = name is target  # nothing is forwarded or run on the way
                _say_what_has_no_effect(
                    name, config.no_effect if of_its_own else only_openssh(config.no_effect), prompts
                )
            line = FirstLine(way[0][1], prompts)
            with _said_of(way[0], target):
                sock = await line.open()
        finally:
            await loading
        from .login import log_in

        for number, hop in enumerate(way):
            with _said_of(hop, target):
                if hops:
                    hops.append(await log_in(hop, prompts, hops[-1], through=way[number - 1][0]))
                else:
                    taken, sock = sock, None
                    hops.append(await log_in(hop, prompts, None, line, taken))
    except BaseException:
        if sock is not None:
            sock.close()
        try:
            await _close_all(hops[::-1])
        finally:
            if line is not None:
                await line.close()
        raise
    return SshTransport(target.shown, hops[-1], hops[:-1], line)


@contextlib.contextmanager
def _said_of(hop: Hop, target: SshTarget) -> Iterator[None]:
    """An error on the way to `target` names the jump host as the person wrote it: its address alone says nothing to anybody."""
    name, config = hop
    try:
        yield
    except CcbError as error:
        if name is not target:
            address = f" ({config.hostname})" if config.hostname != name.host else ""
            error.what = f"jump host {name.shown}{address}: {error.what}"
        raise


def _say_what_has_no_effect(target: SshTarget, options: Sequence[str], prompts: Prompts) -> None:
    if options:
        log.info("without effect on %s: %s", target.shown, ", ".join(options))
    options = of_consequence(options)
    if not options:
        return
    honoured = only_openssh(options)
    way_out = f" (`--transport ssh` honours {', '.join(honoured)})" if honoured else ""
    tell_once(prompts, f"Without effect on {target.shown}: {', '.join(options)}{way_out}.")


def _load() -> None:
    """Import asyncssh while the network is busy."""
    import asyncssh

    from . import algorithms, client

    assert asyncssh and algorithms and client


class SshTransport:
    """An authenticated connection (and the jump hosts under it)."""

    def __init__(
        self,
        name: str,
        connection: asyncssh.SSHClientConnection,
        hops: list[asyncssh.SSHClientConnection],
        line: FirstLine,
    ) -> None:
        self._name = name
        self._line = line
        self._connection = connection
        self._hops = hops

    @property
    def name(self) -> str:
        return self._name

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """The connection to the host itself, for who looks into it."""
        return self._connection

    async def execute(self, command: str) -> SshPipe:
        import asyncssh

        try:
            async with asyncio.timeout(_OPEN_S):
                process = await self._connection.create_process(command, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if not self.alive:
                raise _lost(self._name, error) from error
            raise Unreachable(
                f"{self._name} refused to run a command",
                evidence=neutralise(error.reason),
                do="Raise MaxSessions in its sshd_config: it allows no session, or all of them are in use.",
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error
        return SshPipe(self._name, process)

    async def output_without_input(self, command: str, most: int) -> bytes:
        pipe = await self.execute(command)
        try:
            pipe.end_input()
            said = b""
            while len(said) < most and (data := await pipe.read(most - len(said))):
                said += data
            return said
        finally:
            await pipe.close()

    @property
    def alive(self) -> bool:
        return not self._connection.is_closed()

    @property
    def warm(self) -> bool:
        return True

    def abort(self) -> None:
        for connection in (self._connection, *reversed(self._hops)):
            connection.abort()

    async def close(self) -> None:
        try:
            await _close_all([self._connection, *reversed(self._hops)])
        finally:
            await self._line.close()


class SshPipe:
    """One exec channel."""

    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._drain_stderr())

    async def _drain_stderr(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            await self._tail.drain(self._process.stderr.read)

    async def read(self, n: int = 65536) -> bytes:
        import asyncssh

        try:
            return await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error

    def end_input(self) -> None:
        """Nothing more will be written."""
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    async def close(self) -> None:
        self._process.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait_closed(), _CLOSE_S)
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def exit_status(self) -> int | None:
        await self._process.wait_closed()
        await asyncio.wait({self._stderr_task}, timeout=LAST_WORDS_S)
        status = self._process.exit_status
        return status if status is not None and status >= 0 else None  # asyncssh says -1 for a signal

    def stderr_tail(self) -> str:
        return self._tail.text()


def _lost(name: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {name} was lost", evidence=neutralise(str(error) or type(error).__name__))


async def _close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    for connection in connections:
        connection.close()
        try:
            await asyncio.wait_for(connection.wait_closed(), _CLOSE_S)
        except TimeoutError:
            connection.abort()
