"""Bytes of an upstream stream in, Anthropic events out, however the network splits them."""

from __future__ import annotations

import json

from ..answers.answer import WRONG, AnswerError
from ..answers.lines import DataLines, EventTooLong
from .dialect import StreamReader


class StreamTranslator:
    """Feeds the bytes of one answer to its reader. `provider` is the name for errors."""

    def __init__(self, reader: StreamReader, provider: str) -> None:
        self._reader = reader
        self._answer = reader.answer
        self._provider = provider
        self._lines = DataLines()

    @property
    def begun(self) -> bool:
        """Whether the worker knows that the answer has begun."""
        return self._answer.begun

    @property
    def over(self) -> bool:
        """Whether the answer has ended: what the provider sends behind it is nobody's."""
        return self._answer.over

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes and return the events that they complete."""
        try:
            for data in self._lines.feed(chunk):
                self._reader.feed(data)
        except AnswerError as error:
            self._answer.fail(error.kind, error.message)
        except EventTooLong:
            self._answer.fail(WRONG, f"{self._provider} sent an event that is too long")
        return self._answer.take()

    def end(self) -> bytes:
        """The stream has ended. Return the last events: the end of the answer, or an error."""
        try:
            for data in self._lines.end():
                if _is_json(data):  # else it was cut, which another try may mend
                    self._reader.feed(data)
            self._reader.end()
        except AnswerError as error:
            self._answer.fail(error.kind, error.message)
        return self._answer.take()


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return data == b"[DONE]"
    return True
