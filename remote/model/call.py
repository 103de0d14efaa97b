"""A model call: attempts until one counts, with the pauses of the retry policy between them.

When streams of one call were cut again and again, the call asks for its answer in one piece: something between the
laptop and the model may not be able to stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ccb.tunnel.wire.dataclass import dataclass

from .attempt import Attempt, CallSettings, Listener, MessageEnd
from .errors import ModelError
from .request import without_stream
from .retry import RetryPolicy
from .stream import MessageHead

_MAX_CUT_STREAMS = 2
"""How many streams of one call may be cut before the call does without."""

_WHOLE_SILENCE = 600.0
"""Seconds that an answer in one piece may take at least: nothing of it comes before its end."""


@dataclass(frozen=True)
class Retrying:
    """An attempt failed, and another one follows after `delay` seconds. `attempt` counts from 1."""

    attempt: int
    max_retries: int
    delay: float
    failure: ModelError


class CallListener(Listener, Protocol):
    """A Listener that is also told about failed attempts."""

    def retrying(self, retry: Retrying) -> None:
        """An attempt failed; another one follows."""


class ModelCall:
    """One model call, with all its attempts. To interrupt it, cancel `run`, then call `salvage`."""

    def __init__(self, settings: CallSettings, listener: CallListener, policy: RetryPolicy) -> None:
        self._settings = settings
        self._listener = listener
        self._policy = policy
        self._attempt: Attempt | None = None

    async def run(self) -> MessageEnd:
        """Return the end of the answer. Raise the ModelError of the last attempt when the policy gives up."""
        cut, settings = 0, self._settings
        while True:
            self._attempt = Attempt(settings, self._listener)
            try:
                return await self._attempt.run()
            except ModelError as failure:
                self._attempt.discard()
                self._attempt = None
                cut += failure.cut_stream
                if cut == _MAX_CUT_STREAMS:
                    silence = max(settings.silence, _WHOLE_SILENCE)
                    settings = replace(settings, body=without_stream(self._settings.body), silence=silence)
                delay = self._policy.delay(failure)
                if delay is None:
                    raise
                self._listener.retrying(
                    Retrying(self._policy.attempt, self._policy.max_retries_for(failure), delay, failure)
                )
                await self._settings.clock.sleep(delay)

    def salvage(self) -> tuple[MessageHead, str, str] | None:
        """Call this after a cancelled `run`. Pass the finished block to the listener, and return (head, text, request
        id) of an unfinished answer, or None."""
        return self._attempt.salvage() if self._attempt is not None else None

    def close_events(self) -> None:
        """Close the events of the interrupted answer for clients that watch them."""
        if self._attempt is not None:
            self._attempt.close_events()
