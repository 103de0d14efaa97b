"""Read frames from a pipe, one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from ..errors import ConnectionLost, ProtocolError
from ..transports.pipe import Pipe
from ..wire import Frame, FrameDecoder, FrameError


class FrameReader:
    """Decodes what `read` returns: the next bytes of `pipe`, b"" at its end. `rest` are bytes that were read before.

    `memory` is how many bytes the last frame may take in memory, at most.
    """

    def __init__(self, pipe: Pipe, rest: bytes, read: Callable[[], Awaitable[bytes]], host: str) -> None:
        self.memory = 0
        self._pipe = pipe
        self._rest = rest
        self._read = read
        self._host = host
        self._decoder = FrameDecoder()
        self._decoded: Iterator[Frame] = iter(())

    def close(self) -> None:
        """Let go what has arrived of an unfinished frame."""
        self._decoder.drop()

    async def next_frame(self) -> Frame:
        """Return the next frame. Raise ConnectionLost at the end, ProtocolError, and what `read` raises."""
        while True:
            try:
                frame = next(self._decoded, None)  # one at a time: together they could take much memory
            except FrameError as error:
                raise ProtocolError(
                    f"{self._host} sent bytes that are not a frame: {error.reason}",
                    evidence=error.sample.decode("utf-8", "backslashreplace"),
                    do="Something on the host may write into the channel. Run with --debug and report it.",
                ) from None
            if frame is not None:
                self.memory = self._decoder.memory
                return frame
            data = self._rest or await self._read()
            self._rest = b""
            if not data:
                evidence = self._pipe.stderr_tail().strip()
                raise ConnectionLost(f"the connection to {self._host} ended", evidence=evidence, do="Connect again.")
            self._decoded = self._decoder.feed(data)
