"""The auth proxy itself: check the request, hand it to the provider, and keep the response until the worker has it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Self

from ..errors import CcbError, PolicyRefused
from ..providers.api_errors import NO_RETRY, Refusal, read_error
from ..providers.costs import ANSWERED, BilledRequest, billed
from ..providers.foreign_api import ForeignCall
from ..providers.json_fields import dump
from ..providers.model_router import ModelRouter
from ..providers.provider import MAX_BODY, ProviderError, ProviderRequest, WholeBody
from ..providers.request_body import model_of, read_json
from ..wire.model_facts import ModelTable
from .answer_reader import AnswerReader, Auditor
from .body_store import BodyStore
from .metering import Accounts, CallMeter, Reservation
from .policy import MAX_WRONG, CallGrant, CallPace, NonceGuard, Policy, RequestHead, request_headers, response_headers
from .proxied_call import HOLD, CallReader, CallRegistry, ProxiedCall, own_answer

log = logging.getLogger(__name__)

_WARNED_EVERY_S = 60.0
_MAX_IN_MEMORY = 3 * MAX_BODY  # bytes of requests whose answers have not begun, and of what reading them takes


class BodyLost(Exception):
    """Raised by the body of a front when its sender is gone before the end."""


class AuthProxy:
    """Owns the model calls of one session, over any number of connections, and the providers that answer them. A
    context; leaving it aborts the calls that are under way. Calls without a reader are kept for `hold` seconds.
    `accounts` decide whether another call may be paid for, and are told what each has used; `auditor` is told what it
    was about. `models` say what each costs. `warn` tells the person that the worker does more than it should."""

    def __init__(
        self,
        router: ModelRouter,
        policy: Policy | None = None,
        *,
        accounts: Accounts | None = None,
        auditor: Auditor | None = None,
        models: ModelTable | None = None,
        warn: Callable[[str], None] = log.warning,
        hold: float = HOLD,
    ) -> None:
        self._router = router
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
        self._in_memory = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calls.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._router.close()

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
                    text = f"this laptop cannot reach {self._router.main.name}: {failure}"
                    never = NO_RETRY if failure.permanent else {}
                    text += "" if never else f"; check {self._router.main.what_to_check}"
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
        self._router.prepare()

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
        """Note that nobody will ask for a call again. One that costs its whole price anyway goes on, so that its answer
        tells that price."""
        call = self._calls.calls.get(call_id)
        if call is not None and (call.over or not call.in_one_piece):
            self._calls.drop(call)

    def _find_or_start(
        self, head: RequestHead, body: AsyncIterator[bytes], offset: int
    ) -> tuple[ProxiedCall, CallReader]:
        call = self._calls.calls.get(head.id) if head.id else None
        if call is not None and not call.uploaded:
            log.info("model call %s starts again: its request did not arrive whole", head.id)
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
        meter = CallMeter(head.id, ANSWERED if head.answers else head.path.partition("?")[0], self._models)
        work = self._run(call, head, body, meter)
        task = asyncio.get_running_loop().create_task(work, name=f"model call {head.id}")
        self._tasks[call] = task
        task.add_done_callback(lambda task: self._ended(call, meter, given_up=task.cancelled()))
        if head.id:
            self._calls.calls[head.id] = call
        return call, reader

    def _check(self, head: RequestHead, nonce: NonceGuard) -> None:
        if not nonce.matches(head.nonce):
            nonce.wrong += 1
            log.warning("a request with a wrong nonce, number %d on its connection", nonce.wrong)
            if nonce.wrong == 1:
                self._warn("A request with a wrong nonce came from the host: a program there is not the worker.")
            elif nonce.wrong == MAX_WRONG:
                self._warn(f"{MAX_WRONG} requests with wrong nonces: this connection may make no model calls any more.")
            closed = nonce.wrong >= MAX_WRONG
            said = "too many wrong nonces were tried" if closed else "the nonce is missing or wrong"
            raise Refusal(403, f"{said} on this connection", headers=NO_RETRY)
        self._policy.check(head)
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
        try:
            await self._exchange(call, head, body, meter)
            call.finish()
        except (Refusal, ProviderError) as error:
            call.fail(error)
        except PolicyRefused as error:
            call.fail(Refusal(403, error.what, kind="laptop_not_allowed", headers=NO_RETRY))
        except CcbError as error:
            log.warning("no model call: %s", error.what)
            message = f"The laptop has no usable model credential: {error.what}. {error.do}".strip()
            call.fail(Refusal(401, message, headers=NO_RETRY))
        except Exception:
            log.exception("the auth proxy failed on a call")
            text = "the auth proxy on the laptop failed; its log says why"
            call.fail(Refusal(500, text, kind="laptop_failed"))

    async def _exchange(
        self, call: ProxiedCall, head: RequestHead, arriving: AsyncIterator[bytes], meter: CallMeter
    ) -> None:
        received, limit = 0, self._policy.max_answer
        async with AsyncExitStack() as stack:
            audited = stack.enter_context(ExitStack())  # left once the answer has begun, or has failed
            with self._room(head.size):
                request = await self._request(call, head, arriving, meter, audited)
                response = await stack.enter_async_context(self._router.exchange(request))
            meter.status = response.status
            headers, translator = response_headers(response.headers), None
            if head.foreign is not None and not request.api:
                from .gemini_messages import GeminiAnswer

                if response.status != 200:
                    raise read_error(response.status, response.headers, await response.start(), head.foreign.instead)
                translator, head = GeminiAnswer(head.foreign, call.start), replace(head, foreign=None)
            else:
                call.start(response.status, headers)
            reader = _answer_reader(head, meter, self._auditor, headers)
            stack.callback(reader.close)
            async for chunk in response.chunks:
                received += len(chunk)
                if limit is not None and received > limit:
                    text = f"the laptop's settings allow answers of {limit} bytes"
                    raise Refusal(502, text, kind="laptop_not_allowed", headers=NO_RETRY)
                has_room = call.put(translator.feed(chunk) if translator is not None else chunk)
                audited.close()
                reader.feed(chunk)
                if not has_room:
                    await call.room()
            if translator is not None:
                call.complete = True  # for the meter, whatever it says
                call.put(translator.end())

    @contextmanager
    def _room(self, size: int) -> Iterator[None]:
        """Count what a request takes in memory until its answer begins. Raise Refusal if that is too much."""
        if self._in_memory + size > _MAX_IN_MEMORY:
            raise Refusal(529, "too many large requests at once")
        self._in_memory += size
        try:
            yield
        finally:
            self._in_memory -= size

    async def _request(
        self, call: ProxiedCall, head: RequestHead, arriving: AsyncIterator[bytes], meter: CallMeter, audited: ExitStack
    ) -> ProviderRequest:
        """Return a request once all of it is here, allowed, and what it may cost is reserved. `audited` tells the
        auditor of it. Raise Refusal."""
        pieces, digest = await _received(arriving, head.size)
        call.uploaded = True
        meter.uploaded(head.size, digest)
        headers, foreign = request_headers(head.headers), head.foreign
        if head.method == "POST":
            headers["content-type"] = "application/json"  # the provider is to read it as it was checked
        sent = ProviderRequest(head.method, head.path, headers, WholeBody())
        if head.method == "POST":
            pieces = [b"".join(pieces)]
            if head.keep:
                self.bodies.keep(digest, pieces[0])
            with self._room(2 * head.size):  # its text, and its values
                if foreign is None:
                    asked = await self._billed(pieces[0], answers=head.answers)
                else:
                    asked, sent = await self._foreign(foreign, headers, pieces[0])
                    if not sent.api:
                        pieces, foreign = [sent.body.take()], None
            sent = replace(sent, model=asked.model)
            self._router.learn(asked.model)
            meter.asked(asked)
            if head.answers:
                self._reserved[call] = None
                self._reserved[call] = await self._accounts.reserve(asked)
                kept, api = list(pieces), None if foreign is None else foreign.api  # whoever sends it lets pieces go
                audited.callback(lambda: self._auditor.sent(head.id, b"".join(kept), digest, api))
                call.in_one_piece = not asked.streams
        return sent if sent.body.left else replace(sent, body=WholeBody(*pieces))

    async def _billed(self, body: bytes, *, answers: bool) -> BilledRequest:
        """Read a body: nothing of its conversation is held while the call waits for its budget. Raise Refusal."""
        request = await read_json(body)
        self._policy.requests.check(request, answers=answers)
        return billed(request, len(body))

    async def _foreign(
        self, call: ForeignCall, headers: Mapping[str, str], body: bytes
    ) -> tuple[BilledRequest, ProviderRequest]:
        """Read a body in another API than Messages. The body of what is sent is empty if nothing of it has to change.
        Raise Refusal, and CcbError if its provider cannot be used."""
        from .foreign_requests import checked  # most sessions need none of it

        asked = await read_json(body)
        request = checked(call, asked)
        if call.instead:
            from .gemini_messages import translated

            self._router.learn(call.instead)
            longest = self._models.facts(call.instead).max_output
            return await asyncio.to_thread(translated, call, headers, asked, self._policy.requests, longest)
        model = self._router.placed(call.api, call.model or model_of(asked))
        own_name = model.partition("/")[2]
        self._policy.requests.check({"model": model, "max_tokens": request.longest}, answers=call.answers)
        sent = request.sent if call.model else {**request.sent, "model": own_name}
        changed = WholeBody() if sent == asked else WholeBody(dump(sent).encode("utf-8", "replace"))
        path = call.path.format(model=own_name)
        bill = request.billed(model, len(body))
        return bill, ProviderRequest("POST", path, headers, changed, model, call.api.name)


def _answer_reader(head: RequestHead, meter: CallMeter, auditor: Auditor, headers: Mapping[str, str]) -> AnswerReader:
    if head.foreign is None:
        return AnswerReader(head.id, meter, auditor, headers)
    from .foreign_answers import ForeignAnswerReader

    return ForeignAnswerReader(head.foreign.api, head.id, meter, auditor, headers)


async def _received(arriving: AsyncIterator[bytes], size: int) -> tuple[list[bytes], str]:
    """Return a body of `size` bytes as it came, and its SHA-256 in hex. Raise Refusal for one of another length."""
    pieces: list[bytes] = []
    came, digest = 0, hashlib.sha256()
    try:
        while came < size:
            piece = await anext(arriving, None)
            if piece is None:
                raise Refusal(400, "the request body is shorter than announced")
            pieces.append(piece)
            came += len(piece)
            digest.update(piece)
        if isinstance(arriving, AsyncGenerator):  # one that waits to be asked again would hold its last piece
            await arriving.aclose()
    except BodyLost as error:
        raise Refusal(400, "the request body did not arrive whole") from error
    if came > size:
        raise Refusal(400, "the request body is longer than announced")
    return pieces, digest.hexdigest()
