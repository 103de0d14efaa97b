"""A request body on its way from the worker to the provider: counted, limited, and ended with a clear error."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

from ..providers.api_errors import Refusal
from ..providers.costs import ANSWERED
from .policy import Policy, RequestHead
from .proxied_call import ProxiedCall

_IN_THREAD = 64 * 1024  # bytes from which on a body is checked in a thread: it takes a millisecond and more


class BodyLost(Exception):
    """Raised by the body of a front when its sender is gone before the end."""


class RequestUpload:
    """Passes one request body on, and remembers in `failure` what was wrong with it.

    `most_kept` are the bytes of a body that are kept to be looked at. A provider reads `pieces`. The exception that
    ends them may reach the auth proxy changed (an HTTP client wraps it); `failure` is the original. `sent` are the
    bytes so far.
    """

    def __init__(
        self, call: ProxiedCall, body: AsyncIterator[bytes], head: RequestHead, policy: Policy, most_kept: int
    ) -> None:
        self._call = call
        self._body = body
        self._size = head.size
        self._answers = head.path.partition("?")[0] == ANSWERED
        self._policy = policy
        self._most_kept = most_kept
        self.failure: Refusal | None = None
        self._kept: list[bytes] | None = []
        self.keeps_body = True  # False once `forget_body` was called
        self.sent = 0
        self.digest = ""
        """The SHA-256 of the bytes in hex, once it is all of them."""

        call.uploaded = head.size == 0

    def kept_body(self) -> bytes | None:
        """Return the body that has been sent; None if it was too large to keep."""
        return None if self._kept is None else b"".join(self._kept)

    def forget_body(self) -> None:
        """Keep the body no longer."""
        self._kept, self.keeps_body = None, False

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body: piece by piece, or in one piece if the policy has to see all of it first.

        Raise Refusal if it is too large, not allowed, differs from its announced length, or is no longer wanted.
        """
        return self._checked() if self._policy.requests else self._received()

    async def _checked(self) -> AsyncIterator[bytes]:
        body = b"".join([piece async for piece in self._received(held=True)])
        try:
            if len(body) > _IN_THREAD:
                await asyncio.to_thread(self._policy.requests.check, body, answers=self._answers)
            else:
                self._policy.requests.check(body, answers=self._answers)
        except Refusal as refusal:
            self.failure = refusal
            raise
        self._call.uploaded = True
        yield body

    async def _received(self, *, held: bool = False) -> AsyncIterator[bytes]:
        """Yield what arrives. `held`: the provider gets nothing of it yet."""
        digest, size = hashlib.sha256(), self._size
        try:
            while size is None or self.sent < size:
                piece = await anext(self._body, None)
                if piece is None:
                    break
                self._note(piece)
                digest.update(piece)
                if size is not None and self.sent >= size:
                    self._call.uploaded = self._call.uploaded or not held
                    self.digest = digest.hexdigest()
                    if self.sent > size:
                        raise Refusal(400, "the request body is longer than announced")
                yield piece
            if isinstance(self._body, AsyncGenerator):  # one that waits to be asked again would hold its last piece
                await self._body.aclose()
            if size is not None and self.sent < size:
                raise Refusal(400, "the request body is shorter than announced")
        except Refusal as refusal:
            self.failure = refusal
            raise
        except BodyLost as error:
            self.failure = Refusal(400, "the request body did not arrive whole")
            raise self.failure from error
        self._call.uploaded = not held
        self.digest = digest.hexdigest()

    def _note(self, piece: bytes) -> None:
        if self._call.over:  # a provider would bill a whole request, although nobody reads the answer
            raise Refusal(400, "the call was given up while its request was sent")
        self.sent += len(piece)
        self._policy.check_size(self.sent)
        if self.sent > self._most_kept:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(piece)
