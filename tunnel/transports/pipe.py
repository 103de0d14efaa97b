"""The interfaces of transports and pipes, and which connections a run may share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import CcbError
from ..wire.dataclass import dataclass


@dataclass(frozen=True)
class Sharing:
    """What is allowed: to use a live master of the person, to keep a connection for `keep_s` seconds, if any, and
    logins that are `pipelined`. `admit` raises an error for a way that must not be taken: of each hop the address
    that is then used, and its ProxyCommand or ""."""

    own_master: bool = True
    keep_s: float = 0
    pipelined: bool = True
    admit: Callable[[Sequence[tuple[str, str]]], None] = lambda way: None


DEFAULT_SHARING = Sharing()
NOTHING_SHARED = Sharing(own_master=False)
THIS_MACHINE = "this machine"


class Pipe(Protocol):
    """stdin and stdout of one running command, as bytes. Closing can be repeated and takes at most 5 s."""

    async def read(self, n: int = 65536) -> bytes:
        """Return at most `n` bytes, b"" at the end of the stream. Raise ConnectionLost when the connection is lost."""

    async def write(self, data: bytes) -> None:
        """Send `data`. Return when the transport can take more. Raise ConnectionLost."""

    async def close(self) -> None:
        """End the command's stdin and release the channel."""

    async def exit_status(self) -> int | None:
        """Wait for the command to end. Return its exit code, None if it was lost or killed by a signal."""

    def stderr_tail(self) -> str:
        """Return the end of what the command wrote to stderr (at most 8 KiB), for error messages."""


class Transport(ABC):
    """Runs commands in a shell on a host. `python` is the interpreter for the worker; "" to search for one."""

    name: str  # of the host in messages, such as `user@devbox` or THIS_MACHINE
    python = ""

    @abstractmethod
    async def execute(self, command: str) -> Pipe:
        """Start `command` in the login shell and return its pipe without waiting for output. Raise CcbError."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether a command may still be started. A silent connection counts as alive until its silence is detected."""

    @property
    def warm(self) -> bool:
        """Whether another command needs no new login."""
        return True

    @property
    def on_trial(self) -> bool:
        """Whether the next command may be given up before its first output, and run again in another way."""
        return False

    def failure(self, status: int | None, said: str) -> CcbError | None:
        """Return the error for a command that ended without any output; None if the caller has to decide."""
        return None

    async def logged_in(self) -> None:  # noqa: B027 - most log in before the transport is there
        """Wait for the end of a login that the first command does not wait for. Raise CcbError."""

    @abstractmethod
    def abort(self) -> None:
        """Give the connection up at once, without telling the other end. `close` is quick afterwards."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and everything on it."""
