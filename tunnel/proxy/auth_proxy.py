"""The auth proxy itself: check the request, hand it to the provider, and keep the response until the worker has it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from ..errors import CcbError
from ..providers.api_errors import Refusal
from ..providers.costs import ANSWERED, BilledRequest
from ..providers.provider import Provider, ProviderError, ProviderRequest
from ..wire.model_facts import ModelTable
from .answer_reader import AnswerReader, Auditor
from .body_store import BodyStore
from .metering import Accounts, CallMeter, Reservation
from .policy import (
    MAX_WRONG,
    CallGrant,
    CallPace,
    NonceGuard,
    Policy,
    RequestHead,
    WrongNonce,
    request_headers,
    response_headers,
)
from .proxied_call import HOLD, CallReader, CallRegistry, ProxiedCall, ResponseHead, own_answer

log = logging.getLogger(__name__)

_WARNED_EVERY_S = 60.0
_IN_THREAD = 64 * 1024  # bytes from which on a body is checked in a thread: it takes a millisecond and more


class BodyLost(Exception):
    """Raised by the body of a front when its sender is gone before the end."""


class RequestUpload:
    """Passes one request body on: counted, limited, and ended with a clear error, which is in `failure` too, because an
    HTTP client may wrap it. A provider reads `pieces`. `most_kept` are the bytes that are kept to be looked at, `sent`
    the bytes so far; `digest` is their SHA-256 in hex, once it is all of them."""

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
        self.keeps_body = True
        self.sent = 0
        self.digest = ""
        call.uploaded = head.size == 0

    def taken_body(self) -> bytes | None:
        """Return the body that was sent, None if it was too large to keep. It is not kept any longer."""
        kept, self._kept, self.keeps_body = self._kept, None, False
        return None if kept is None else b"".join(kept)

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body: piece by piece, or in one piece if the policy has to see all of it first. Raise Refusal if it
        is too large, not allowed, differs from its announced length, or is no longer wanted."""
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
            while self.sent < size:
                piece = await anext(self._body, None)
                if piece is None:
                    raise Refusal(400, "the request body is shorter than announced")
                self._note(piece)
                digest.update(piece)
                if self.sent >= size:
                    self._call.uploaded = self._call.uploaded or not held
                    self.digest = digest.hexdigest()
                    if self.sent > size:
                        raise Refusal(400, "the request body is longer than announced")
                yield piece
            if isinstance(self._body, AsyncGenerator):  # one that waits to be asked again would hold its last piece
                await self._body.aclose()
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
        if self.sent > self._most_kept:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(piece)


class AuthProxy:
    """Owns the model calls of one session, over any number of connections, and the provider that answers them. A
    context; leaving it aborts the calls that are under way. Calls without a reader are kept for `hold` seconds.
    `accounts` decide whether another call may be paid for, and are told what each has used; `auditor` is told what it
    was about. `models` say what each costs. `warn` tells the person that the worker does more than it should."""

    def __init__(
        self,
        provider: Provider,
        policy: Policy | None = None,
        *,
        accounts: Accounts | None = None,
        auditor: Auditor | None = None,
        models: ModelTable | None = None,
        warn: Callable[[str], None] = log.warning,
        hold: float = HOLD,
    ) -> None:
        self._provider = provider
        self._policy = policy or Policy()
        self._accounts = accounts or Accounts()
        self._auditor = auditor or Auditor()
        self._models = models or ModelTable()
        self._epoch = 0
        self._calls = CallRegistry(self._abort, hold)
        self._tasks: dict[ProxiedCall, asyncio.Task[None]] = {}
        self._reserved: dict[ProxiedCall, Reservation | None] = {}  # None until it is, so for ever where it is refused
        self.grant = CallGrant(self._policy.lasts_s)
        self._pace = CallPace(self._policy.max_burst, self._policy.max_per_minute, time.monotonic())
        self._warned_at = -_WARNED_EVERY_S
        self.bodies = BodyStore()
        self._warn = warn

    async def __aenter__(self) -> Self:
        await self._provider.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._provider.__aexit__(None, None, None)

    @property
    def under_way(self) -> int:
        """The number of calls that the provider has not finished."""
        return len(self._tasks)

    @property
    def keeps_calls(self) -> bool:
        """Whether there are responses that a worker may still read."""
        return bool(self._calls.calls)

    def revoke(self) -> None:
        """Let the worker call no models any more. Calls under way end with the next byte."""
        self.grant.revoked = True
        refusal = self.grant.refusal()
        assert refusal is not None
        log.warning("the person has revoked the model calls of this session")
        for call in {*self._tasks, *self._calls.calls.values()}:
            call.revoke(refusal)
            self._abort(call)

    @asynccontextmanager
    async def call(
        self, head: RequestHead, body: AsyncIterator[bytes], *, nonce: NonceGuard, offset: int = 0
    ) -> AsyncIterator[CallReader]:
        """Answer one request of the connection that `nonce` guards, and yield what reads the answer, once its head is
        there. A refusal is an answer, and so is an unreachable provider. A request with the `head.id` of an earlier one
        reads that response on at `offset`; nothing is sent again. Leaving the context aborts the call, unless it has an
        id and its body has been sent: then it goes on without a reader."""
        call: ProxiedCall | None = None
        try:
            try:
                self._check(head, nonce)
                call, reader = self._find_or_start(head, body, offset)
                response = reader
                await reader.head()
            except (Refusal, ProviderError) as failure:
                if isinstance(failure, ProviderError):
                    text = f"this laptop cannot reach {self._provider.name}: {failure}"
                    never = {"x-should-retry": "false"} if failure.permanent else {}
                    text += "" if never else f"; check {self._provider.what_to_check}"
                    failure = Refusal(502 if never else 503, text, kind="laptop_unreachable", headers=never)
                response = own_answer(failure)
            yield response
        finally:
            if call is not None:
                self._leave(call, reader)

    def driven_at(self, epoch: int) -> None:
        """Note the number of the client that drives the session from now on; it counts all of them."""
        if self._epoch and epoch > self._epoch + 1:
            self._auditor.others_drove()
        self._epoch = epoch

    def prepare(self) -> None:
        self._provider.prepare()

    def link_up(self) -> None:
        """Note that a connection serves the worker. From now on the clocks of unread calls run."""
        self.prepare()
        self._calls.link_up()

    def link_down(self) -> None:
        """Note that no connection serves the worker. Its calls go on, and are kept until a connection does."""
        self._calls.link_down()

    def knows(self, call_id: str) -> bool:
        """Return whether a request with `call_id` would read an earlier call on instead of starting a new one."""
        call = self._calls.calls.get(call_id)
        return call is not None and call.uploaded

    def discard(self, call_id: str) -> None:
        call = self._calls.calls.get(call_id)
        if call is not None:
            self._calls.drop(call)

    def _find_or_start(
        self, head: RequestHead, body: AsyncIterator[bytes], offset: int
    ) -> tuple[ProxiedCall, CallReader]:
        call = self._calls.calls.get(head.id) if head.id else None
        if call is not None and not call.uploaded:
            log.info("model call %s starts again: the provider did not get its whole request", head.id)
            self._calls.drop(call)
        elif call is not None:
            reader = call.attach(offset)
            self._calls.reader_came(call)
            log.info("model call %s goes on at byte %d", head.id, offset)
            return call, reader
        if offset:
            raise Refusal(410, "the laptop that read this answer is gone, and the answer cannot be resumed")
        if len(self._tasks) >= self._policy.max_calls:
            raise Refusal(529, f"more than {self._policy.max_calls} model calls at once", headers={"retry-after": "1"})
        self._check_pace()
        log.info("model call %s", head.id)
        call = ProxiedCall(head.id)
        reader = call.attach(0)
        meter = CallMeter(head.id, head.path.partition("?")[0], self._models)
        work = self._run(call, head, body, meter)
        task = asyncio.get_running_loop().create_task(work, name=f"model call {head.id}")
        self._tasks[call] = task
        task.add_done_callback(lambda task: self._ended(call, meter, given_up=task.cancelled()))
        if head.id:
            self._calls.calls[head.id] = call
        return call, reader

    def _check(self, head: RequestHead, nonce: NonceGuard) -> None:
        try:
            self._policy.check(head, nonce)
        except WrongNonce:
            log.warning("a request with a wrong nonce, number %d on its connection", nonce.wrong)
            if nonce.wrong == 1:
                self._warn("A request with a wrong nonce came from the host: a program there is not the worker.")
            elif nonce.wrong == MAX_WRONG:
                self._warn(f"{MAX_WRONG} requests with wrong nonces: this connection may make no model calls any more.")
            raise
        refusal = self.grant.refusal()
        if refusal is not None:
            raise refusal

    def _check_pace(self) -> None:
        now = time.monotonic()
        wait = self._pace.wait(now)
        if not wait:
            return
        limit = f"more than {self._policy.max_per_minute:g} model calls in a minute"
        log.warning("%s: held back", limit)
        if now - self._warned_at >= _WARNED_EVERY_S:
            self._warned_at = now
            self._warn(f"The host makes {limit}; ccb holds them back. If this is not your agent's work, end it: /stop.")
        after = {"retry-after": str(math.ceil(wait))}
        raise Refusal(529, f"{limit}: the laptop holds them back", kind="laptop_rate_limit", headers=after)

    def _leave(self, call: ProxiedCall, reader: CallReader) -> None:
        if not reader.current:
            return
        if not (call.id and call.uploaded):
            log.info("model call %s is given up: uploaded %s, over %s", call.id, call.uploaded, call.over)
            self._calls.drop(call)
            self._abort(call)
        else:
            self._calls.reader_left(call)

    def _abort(self, call: ProxiedCall) -> None:
        # A task that has not started yet runs no handler when it is cancelled, so the call fails here.
        call.fail(ProviderError("the call was aborted"))
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    def _ended(self, call: ProxiedCall, meter: CallMeter, *, given_up: bool) -> None:
        self._tasks.pop(call, None)
        reserved = self._reserved.pop(call, Reservation())
        if reserved is not None:
            self._accounts.ended(meter.report(complete=call.complete, given_up=given_up), reserved)

    async def _run(self, call: ProxiedCall, head: RequestHead, body: AsyncIterator[bytes], meter: CallMeter) -> None:
        upload = RequestUpload(call, body, head, self._policy, self._auditor.max_body)
        try:
            await self._exchange(call, head, upload, meter)
            call.finish()
        except Refusal as refusal:
            call.fail(refusal)
        except ProviderError as error:
            call.fail(upload.failure or error)
        except CcbError as error:
            log.warning("no model call: %s", error.what)
            message = f"The laptop has no usable model credential: {error.what}. {error.do}".strip()
            call.fail(Refusal(401, message, headers={"x-should-retry": "false"}))
        except Exception:
            log.exception("the auth proxy failed on a call")
            text = "the auth proxy on the laptop failed; its log says why"
            call.fail(Refusal(500, text, kind="laptop_failed"))
        finally:
            if self._reserved.get(call) is not None:  # it has gone out, also if nobody has waited for its answer
                self._look_at(upload, head.id, answers=True)
            meter.uploaded(upload.sent, upload.digest)

    async def _exchange(self, call: ProxiedCall, head: RequestHead, upload: RequestUpload, meter: CallMeter) -> None:
        answers = head.path.partition("?")[0] == ANSWERED

        async def asks(asked: BilledRequest) -> None:
            meter.asked(asked)
            if answers:
                self._reserved[call] = None
                self._reserved[call] = await self._accounts.reserve(asked)

        headers, limit, received = request_headers(head.headers), self._policy.max_answer, 0
        request = ProviderRequest(head.method, head.path, headers, upload.pieces(), head.size, asks)
        async with self._provider.exchange(request) as response:
            meter.status = response.status
            seen = ResponseHead(response.status, response_headers(response.headers))
            call.start(seen)
            reader = AnswerReader(head.id, meter, self._auditor, seen.headers)
            try:
                async for chunk in response.chunks:
                    received += len(chunk)
                    if limit is not None and received > limit:
                        text = f"the laptop's settings allow answers of {limit} bytes"
                        raise Refusal(502, text, kind="laptop_not_allowed", headers={"x-should-retry": "false"})
                    has_room = call.put(chunk)
                    self._look_at(upload, head.id, answers=answers)
                    reader.feed(chunk)
                    if not has_room:
                        await call.room()
            finally:
                reader.close()

    def _look_at(self, upload: RequestUpload, call_id: str, *, answers: bool) -> None:
        """Let the auditor have a request that has been sent, and free its memory. Later calls do nothing."""
        if upload.keeps_body:
            body = upload.taken_body()
            if upload.digest and answers:
                self._auditor.sent(call_id, body, upload.digest)
