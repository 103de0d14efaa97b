"""Takes what a provider answers to one call: for whoever reads it, then for the meter and the auditor."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..auditing import Auditor
from ..guards.refusal import Refusal
from ..headers import response_headers
from ..metering import CallMeter
from .answer_reader import AnswerReader
from .call import Call, ResponseHead


class AnswerIntake:
    """Fills `call` with an answer of at most `limit` bytes. `answered` is called after each piece has gone
    to its reader."""

    def __init__(
        self, call: Call, meter: CallMeter, auditor: Auditor, limit: int | None, answered: Callable[[], None]
    ) -> None:
        self._call = call
        self._meter = meter
        self._auditor = auditor
        self._limit = limit
        self._answered = answered
        self._received = 0
        self._reader: AnswerReader | None = None

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Take the head."""
        self._meter.answer(status)
        self._call.start(ResponseHead(status, response_headers(headers)))

    async def take(self, chunk: bytes) -> None:
        """Take a piece of the body, and wait until there is room for more. Raise Refusal if the answer is too long."""
        self._received += len(chunk)
        if self._limit is not None and self._received > self._limit:
            text = f"the laptop's settings allow answers of {self._limit} bytes"
            raise Refusal(502, text, kind="laptop_not_allowed", headers={"x-should-retry": "false"})
        has_room = self._call.put(chunk)
        self._answered()
        self._read().feed(chunk)
        if not has_room:
            await self._call.room()

    def close(self) -> None:
        """Note that no more comes."""
        if self._call.head is not None:
            self._read().close()

    def _read(self) -> AnswerReader:
        """Return what reads the answer. It is made when the reader of the call has its first bytes."""
        if self._reader is None:
            assert self._call.head is not None
            self._reader = AnswerReader(self._call.id, self._meter, self._auditor, self._call.head.headers)
        return self._reader
