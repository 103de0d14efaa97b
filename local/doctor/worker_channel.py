"""The frames between the doctor and its worker on the host."""

from __future__ import annotations

import asyncio
import contextlib

from ccb.tunnel.errors import CcbError, ConnectionLost, ProtocolError
from ccb.tunnel.link.refusals import refusal_error
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire import Bye, Frame, FrameDecoder, FrameError, Refused, Report, Stop, encode_frame

_ANSWER_S = 30.0


class WorkerChannel:
    """Sends frames to the doctor's worker and receives its reports, one at a time."""

    def __init__(self, transport: Transport, pipe: Pipe, rest: bytes) -> None:
        self._host = transport.name
        self._pipe = pipe
        self._data = rest
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self._last = "its start"

    async def send(self, *frames: Frame) -> None:
        """Send frames in order. Raises CcbError."""
        await self._pipe.write(b"".join(line for frame in frames for line in encode_frame(frame)))

    async def report(self, *kinds: str) -> Report:
        """Wait for the next report, which must be of one of `kinds`. Raises CcbError."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                frame = await self._next()
        except TimeoutError:
            raise ConnectionLost(
                f"{self._host} went silent in the middle of its checks",
                evidence="\n".join(
                    [f"The last check that it reported: {self._last}.", self._pipe.stderr_tail().strip()]
                ),
                do="Run it again; look for a file system on the host that does not answer.",
            ) from None
        if isinstance(frame, Refused):
            raise refusal_error(frame, self._host)
        if not isinstance(frame, Report) or frame.kind not in kinds:
            raise ProtocolError(
                f"{self._host} sent a frame that is not a report of its checks", do="Run again with --debug."
            )
        self._last = neutralise(str(frame.body.get("name") or "the measurements"))[:80]
        return frame

    async def _next(self) -> Frame:
        while not self._frames:
            try:
                self._frames = list(self._decoder.feed(self._data))
            except FrameError as error:
                raise ProtocolError(
                    f"{self._host} sent bytes that are not a frame: {error.reason}",
                    do="Run again with --debug.",
                ) from None
            self._data = b""
            if not self._frames:
                self._data = await self._pipe.read()
                if not self._data:
                    return Bye("the channel ended")
        return self._frames.pop(0)

    async def close(self) -> None:
        """End the worker and the channel."""
        with contextlib.suppress(CcbError):
            await self.send(Stop(0))
        await self._pipe.close()
