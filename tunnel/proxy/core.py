"""The auth proxy itself: policy first, then the credential, then the provider; the same for every front."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

from ..errors import CcbError
from ..secret import Secret
from .call import BUFFER, Call, Reader, ResponseHead
from .call_registry import HOLD, Ledger
from .credential import CredentialSource
from .headers import request_headers, response_headers
from .policy import Policy, Refusal, RequestHead
from .upstream import Upstream, UpstreamError

log = logging.getLogger(__name__)

_PIECE = 64 * 1024


class BodyLost(Exception):
    """Raised by a request body whose sender is gone before its end."""


class ProxiedResponse:
    """The answer to one call, from the provider or from the proxy itself (`refusal`). `offset` is the position of the next
    byte of `read`. Bytes stay in memory until `ack`, or until `body` is asked for more."""

    def __init__(self, head: ResponseHead, source: Reader | bytes, refusal: Refusal | None = None) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self.refusal = refusal
        self._source = source
        self._offset = 0

    @property
    def offset(self) -> int:
        return self._source.offset if isinstance(self._source, Reader) else self._offset

    async def read(self, limit: int = _PIECE) -> bytes:
        """At most `limit` bytes; b"" at the end. Raises `UpstreamError` when the provider broke off, `Superseded` when the
        call was asked for again elsewhere."""
        if isinstance(self._source, Reader):
            return await self._source.read(limit)
        piece = self._source[self._offset : self._offset + limit]
        self._offset += len(piece)
        return piece

    def ack(self, offset: int) -> None:
        """The worker has everything before `offset`."""
        if isinstance(self._source, Reader):
            self._source.ack(offset)

    async def body(self) -> AsyncIterator[bytes]:
        """The bytes as they come; asking for the next piece acknowledges the one before."""
        while piece := await self.read():
            yield piece
            self.ack(self.offset)


class AuthProxy:
    """Owns the calls of one session, over any number of connections. Use as a context; leaving it aborts what runs."""

    def __init__(
        self, credential: CredentialSource, upstream: Upstream, policy: Policy | None = None, *, hold: float = HOLD
    ) -> None:
        self._credential = credential
        self._upstream = upstream
        self._policy = policy or Policy()
        self._ledger = Ledger(self._abort, hold)
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._upstream.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ledger.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._upstream.__aexit__(None, None, None)

    @property
    def under_way(self) -> int:
        """Calls that the provider has not finished."""
        return len(self._tasks)

    @property
    def keeps_calls(self) -> bool:
        """Whether there are answers that a worker may read on."""
        return len(self._ledger) > 0

    @asynccontextmanager
    async def call(
        self, head: RequestHead, body: AsyncIterator[bytes], *, nonce: Secret, offset: int = 0, keep: bool = False
    ) -> AsyncIterator[ProxiedResponse]:
        """Answer one request of a connection that was given `nonce`. Refusals and an unreachable provider are answers too.

        The same `head.id` asked again reads on at `offset` and is not sent again; its `body` is not touched. On leaving,
        the call is aborted, or goes on unread with `keep` and an id, once its body has been sent.
        """
        call: Call | None = None
        try:
            try:
                self._policy.check(head, nonce)
                call, reader = self._find_or_start(head, body, offset, keep=keep)
                response = ProxiedResponse(await reader.head(), reader)
            except Refusal as refusal:
                response = _own_answer(refusal)
            except UpstreamError as error:
                response = _own_answer(self._unreachable(error))
            yield response
        finally:
            if call is not None:
                self._leave(call, reader, keep)

    def link_up(self) -> None:
        """A connection serves the worker: unread calls are kept for so long, and no longer."""
        self._ledger.link_up()

    def link_down(self) -> None:
        """No connection serves the worker: its calls go on and are kept until one does."""
        self._ledger.link_down()

    def knows(self, call_id: str) -> bool:
        """Whether asking for `call_id` reads on in a call that was sent before."""
        call = self._ledger.find(call_id)
        return call is not None and call.uploaded

    def discard(self, call_id: str) -> None:
        """The worker does not want the call any more: abort and forget it."""
        call = self._ledger.find(call_id)
        if call is not None:
            self._ledger.drop(call)

    def _find_or_start(
        self, head: RequestHead, body: AsyncIterator[bytes], offset: int, *, keep: bool
    ) -> tuple[Call, Reader]:
        call = self._ledger.find(head.id) if head.id else None
        if call is not None and not call.uploaded:
            log.info("model call %s starts again: its request did not reach the provider whole", head.id)
            self._ledger.drop(call)
        elif call is not None:
            reader = call.attach(offset)
            self._ledger.taken(call)
            log.info("model call %s goes on at byte %d", head.id, offset)
            return call, reader
        if offset:
            raise Refusal(410, "the laptop that read this answer is gone, and the answer cannot be resumed")
        if len(self._tasks) >= self._policy.max_calls:
            raise Refusal(529, f"more than {self._policy.max_calls} model calls at once", headers={"retry-after": "1"})
        log.info("model call %s", head.id)
        call = Call(head.id, BUFFER if keep else _PIECE)
        reader = call.attach(0)
        task = asyncio.create_task(self._run(call, head, body), name=f"model call {head.id}")
        self._tasks[call] = task
        task.add_done_callback(lambda _: self._tasks.pop(call, None))
        if head.id:
            self._ledger.add(call)
        return call, reader

    def _leave(self, call: Call, reader: Reader, keep: bool) -> None:
        if not reader.current:
            return
        if not (keep and call.id and call.uploaded):
            log.info("model call %s is given up: uploaded %s, %s", call.id, call.uploaded, call.state.value)
            self._ledger.drop(call)
            self._abort(call)
        else:
            self._ledger.leave(call)

    def _abort(self, call: Call) -> None:
        call.fail(
            UpstreamError("the call was aborted")
        )  # here, because a task that has not started yet runs no handler
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    def _unreachable(self, error: UpstreamError) -> Refusal:
        text, kind = f"this laptop cannot reach {self._upstream.host}: {error}", "laptop_unreachable"
        if error.permanent:
            return Refusal(502, text, kind=kind, headers={"x-should-retry": "false"})
        return Refusal(503, f"{text}; check ANTHROPIC_BASE_URL, the network, HTTPS_PROXY", kind=kind)

    async def _run(self, call: Call, head: RequestHead, body: AsyncIterator[bytes]) -> None:
        """Send the call and fill `call` with what comes back."""
        upload = _Upload(call, body, head.size, self._policy)
        try:
            await self._exchange(call, head, upload)
            call.finish()
        except Refusal as refusal:
            call.fail(refusal)
        except UpstreamError as error:
            call.fail(upload.failure or error)
        except CcbError as error:
            log.warning("no model call: %s", error.what)
            message = f"The laptop has no usable model credential: {error.what}. {error.do}".strip()
            call.fail(Refusal(401, message, headers={"x-should-retry": "false"}))
        except Exception:
            log.exception("the auth proxy failed on a call")
            text = "the auth proxy on the laptop failed; its log says why"
            call.fail(Refusal(500, text, kind="laptop_failed"))

    async def _exchange(self, call: Call, head: RequestHead, upload: _Upload) -> None:
        credential = await self._credential.get()
        headers = {**request_headers(head.headers), **credential.headers()}
        async with self._upstream.request(head.method, head.path, headers, upload.pieces(), head.size) as response:
            answer = response_headers(response.headers)
            if response.status == 401 and await self._credential.refused(credential):
                answer["x-should-retry"] = "true"
            call.start(ResponseHead(response.status, answer))
            async for chunk in response.chunks:
                await call.put(chunk)


class _Upload:
    """Counts a request body on its way and remembers what was wrong with it."""

    def __init__(self, call: Call, body: AsyncIterator[bytes], size: int | None, policy: Policy) -> None:
        self._call = call
        self._body = body
        self._size = size
        self._policy = policy
        self.failure: Refusal | None = None
        call.uploaded = size == 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. Ends with an error, which aborts the request, when it is too large or not as long as announced."""
        sent = 0
        try:
            while self._size is None or sent < self._size:
                piece = await anext(self._body, None)
                if piece is None:
                    break
                if self._call.over:  # given up: not a byte more, or the provider would bill what nobody reads
                    raise Refusal(400, "the call was given up while its request was sent")
                sent += len(piece)
                self._policy.check_size(sent)
                if self._size is not None and sent >= self._size:
                    self._call.uploaded = True
                if self._size is not None and sent > self._size:
                    raise Refusal(400, "the request body is longer than announced")
                yield piece
            if self._size is not None and sent < self._size:
                raise Refusal(400, "the request body is shorter than announced")
            self._call.uploaded = True
        except Refusal as refusal:
            self.failure = refusal
            raise
        except BodyLost as error:
            self.failure = Refusal(400, "the request body did not arrive whole")
            raise self.failure from error


def _own_answer(refusal: Refusal) -> ProxiedResponse:
    body = refusal.body()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    return ProxiedResponse(ResponseHead(refusal.status, headers), body, refusal)
