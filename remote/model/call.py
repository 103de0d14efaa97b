"""A model call: attempts until one counts, with the pauses of the retry policy between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .attempt import Attempt, CallSettings, Listener, MessageEnd
from .errors import ModelError
from .retry import RetryPolicy
from .stream import MessageHead


@dataclass(frozen=True)
class Retrying:
    """A failed attempt is about to be followed by another one. `delay` in seconds."""

    attempt: int
    max_retries: int
    delay: float
    failure: ModelError


class CallListener(Listener, Protocol):
    """Hears the attempts as well."""

    def retrying(self, retry: Retrying) -> None: ...


class ModelCall:
    """One call as the loop sees it. Cancel `run` to interrupt it, then `salvage` what was there."""

    def __init__(self, settings: CallSettings, listener: CallListener, policy: RetryPolicy) -> None:
        self._settings = settings
        self._listener = listener
        self._policy = policy
        self._attempt: Attempt | None = None

    async def run(self) -> MessageEnd:
        """Raises the ModelError of the last attempt when the policy gives up."""
        while True:
            self._attempt = Attempt(self._settings, self._listener)
            try:
                return await self._attempt.run()
            except ModelError as failure:
                self._attempt.discard()
                self._attempt = None
                delay = self._policy.delay(failure)
                if delay is None:
                    raise
                self._listener.retrying(Retrying(self._policy.attempt, self._policy.most(failure), delay, failure))
                await self._settings.clock.sleep(delay)

    def salvage(self) -> tuple[MessageHead, str, str] | None:
        """After a cancelled `run`: finished blocks are told; gives head, partial text and request id of the answer."""
        return self._attempt.salvage() if self._attempt is not None else None

    def close_events(self) -> None:
        """Close the events of the interrupted answer for those who watch them."""
        if self._attempt is not None:
            self._attempt.close_events()
