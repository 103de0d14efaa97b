"""The two seams every way to a host goes through: a transport starts a command, a pipe is its bytes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Pipe(Protocol):
    """stdin and stdout of one running command, as bytes. Closing is idempotent and bounded (5 s)."""

    async def read(self, n: int = 65536) -> bytes:
        """At most `n` bytes; b"" at the end of the stream. Raises `ConnectionLost` when the transport is lost."""

    async def write(self, data: bytes) -> None:
        """Send `data`; returns when the transport can take more. Raises `ConnectionLost`."""

    async def close(self) -> None:
        """End the command's stdin and release the channel."""

    async def exit_status(self) -> int | None:
        """Wait for the command to end; its exit code, or None when it was lost or killed by a signal. What it wrote to stderr is
        in `stderr_tail` then, unless something that it has started keeps that open."""

    def stderr_tail(self) -> str:
        """The last lines the command wrote to stderr (at most 8 KiB), for error messages."""


class Transport(Protocol):
    """A way to run commands in a shell on a host. `close` is idempotent."""

    @property
    def name(self) -> str:
        """How messages call the host: `user@devbox`, `local`."""

    async def execute(self, command: str) -> Pipe:
        """Start `command` under the login shell and return its pipe at once, without waiting for output."""

    @property
    def alive(self) -> bool:
        """Whether a command may still be started; a connection that has gone silent counts as alive until that is noticed."""

    @property
    def warm(self) -> bool:
        """Whether one command more needs no login."""

    def abort(self) -> None:
        """Give the connection up without a word; `close` is quick afterwards."""

    async def close(self) -> None:
        """Close the connection and everything on it."""


@runtime_checkable
class RunsBeside(Protocol):
    """A transport on whose connection one command more costs no login."""

    async def output_without_input(self, command: str, most: int) -> bytes:
        """The first `most` bytes that `command` prints when its stdin is at its end from the start. Raises CcbError."""
