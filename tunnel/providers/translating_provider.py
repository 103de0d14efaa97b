"""A provider whose API a dialect translates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from . import openai_responses
from .anthropic_events import PING, WRONG, AnswerError, whole_message
from .api_errors import NO_RETRY, Refusal, read_error
from .credential import Credential, CredentialSource, key_headers
from .dialect import Dialect, DialectCall, ModelTarget, StreamReader
from .http_client import Provider, ProviderClient
from .json_fields import Json, dump
from .model_traits import ModelTraits
from .provider import ProviderError, ProviderRequest, ProviderResponse, WholeBody
from .request_body import model_of
from .request_content import Untranslatable, estimated_count, estimated_tokens

MAX_EVENT = 16 * 1024 * 1024  # bytes of one event. A line that is longer ends the answer


class StreamTranslator:
    """Takes the bytes of one answer as they arrive, split anywhere, and feeds the data of each event to its reader.
    Comments and names of events are left out: the data says what it is. Each line of data stands alone, because some
    servers leave out the empty line behind it. A line of JSON is an error, or an answer in one piece."""

    def __init__(self, reader: StreamReader) -> None:
        self.answer = reader.answer
        self._reader = reader
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        lines: list[bytes] = []
        if b"\n" in chunk:
            lines = (bytes(self._rest) + chunk).split(b"\n")
            self._rest = bytearray(lines.pop())
        else:
            self._rest += chunk
        try:
            for line in lines:
                if data := _data(line):
                    self._reader.feed(data)
            if len(self._rest) > MAX_EVENT:
                raise AnswerError(WRONG, "the provider sent an event that is too long")
        except AnswerError as error:
            self.answer.fail(error.kind, str(error))
        return self.answer.take()

    def end(self) -> bytes:
        """The stream has ended. Return the last events: the end of the answer, or an error."""
        data = _data(bytes(self._rest))
        try:
            if data == b"[DONE]" or _object(data) is not None:  # else it was cut, which another try may mend
                self._reader.feed(data)
            self._reader.end()
        except AnswerError as error:
            self.answer.fail(error.kind, str(error))
        return self.answer.take()


def _data(line: bytes) -> bytes:
    if line.startswith(b"data:"):
        return line[5:].strip()
    return line.strip() if line[:1] in (b"{", b"[") else b""


def _object(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


COUNT_PATH = "/v1/messages/count_tokens"

PING_EVERY_S = 20.0  # seconds of silence before a sign of life to the worker: a model may think for minutes

_OPTIONS = (b"stream_options", b"include_usage")
_MAX_WHOLE = 64 * 1024 * 1024
_STREAM = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


class TranslatedProvider(Provider):
    """See `Provider`. Models are asked for as `given_name/model`. `counts`: the API counts tokens."""

    def __init__(
        self,
        given_name: str,
        dialect: Dialect,
        client: ProviderClient,
        credential: CredentialSource | None,
        traits: Callable[[str], ModelTraits],
        *,
        counts: bool = False,
        key_header: str = "authorization",
    ) -> None:
        super().__init__(credential, client, given_name)
        self._dialect = dialect
        self._traits = traits
        self._counts = counts
        self._key_header = key_header
        self._plain = False  # the server refuses `stream_options`

    @asynccontextmanager
    async def exchange(self, request: ProviderRequest) -> AsyncIterator[ProviderResponse]:
        credential = await self.credential.get() if self.credential is not None else None
        asked = await self._asked(request, credential)
        if isinstance(asked, ProviderResponse):
            yield asked
            return
        call, streams = asked
        reader = call.reader
        async with AsyncExitStack() as stack:
            response, error_text = await self._sent(call, credential, stack)
            del asked, call  # nothing of the request is held while the answer streams
            if response.status != 200:
                error = read_error(response.status, response.headers, error_text, self.given_name)
                if response.status == 401 and credential is not None:
                    again = await self._may_have_another(credential)
                    error.headers = {"x-should-retry": "true"} if again else {}
                yield error_answer(error)
                return
            stream = self._events(response, reader)
            if streams:
                async with aclosing(stream):
                    yield ProviderResponse(200, _STREAM, stream)
            else:
                yield await _whole(stream)

    async def _asked(
        self, request: ProviderRequest, credential: Credential | None
    ) -> tuple[DialectCall, bool] | ProviderResponse:
        """Return the request in the provider's language, and whether its answer streams; or the answer to a question
        that the provider is not asked. Raise Untranslatable."""
        asked, model = await self._read(request)
        if not model:
            raise Untranslatable("model: Field required")
        target = ModelTarget(self.given_name, model, model_of(asked), self._traits(model))
        if request.path.partition("?")[0] == COUNT_PATH:
            tokens = await self._count(asked, target, credential) if self._counts else 0
            return json_answer({"input_tokens": tokens} if tokens else estimated_count(asked))
        call = self._dialect(asked, target)
        call.reader.answer.prompt = estimated_tokens(asked)
        return call, bool(asked.get("stream"))

    async def _sent(
        self, call: DialectCall, credential: Credential | None, stack: AsyncExitStack
    ) -> tuple[ProviderResponse, bytes]:
        """Send a request, once more to a server that refuses `stream_options`. Return the response and, if it is an
        error, the start of its body."""
        body = dict(call.body)
        while True:
            if self._plain:
                body.pop("stream_options", None)
            sent = self._request(call.path, body, credential)
            response = await stack.enter_async_context(self.client.request(sent))
            start = await response.start() if response.status != 200 else b""
            refused = response.status in (400, 422) and any(map(start.__contains__, _OPTIONS))
            if not refused or "stream_options" not in body:
                return response, start
            self._plain = True

    def _request(self, path: str, body: Json, credential: Credential | None) -> ProviderRequest:
        data = dump(body).encode("utf-8", "replace")
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream" if body.get("stream") else "application/json",
            "accept-encoding": "identity",
            "user-agent": "ccb",
            **key_headers(credential, self._key_header),
        }
        return ProviderRequest("POST", path, headers, WholeBody(data))

    async def _count(self, asked: Json, target: ModelTarget, credential: Credential | None) -> int:
        sent = self._request(openai_responses.COUNT_PATH, openai_responses.count_body(asked, target), credential)
        try:
            async with self.client.request(sent) as response:
                data = _object(await response.start()) if response.status == 200 else None
        except ProviderError:
            return 0
        tokens = data.get("input_tokens") if isinstance(data, dict) else 0
        return tokens if isinstance(tokens, int) else 0

    async def _events(self, response: ProviderResponse, reader: StreamReader) -> AsyncGenerator[bytes]:
        translator = StreamTranslator(reader)
        async with aclosing(_with_pauses(response.chunks)) as arriving:
            async for chunk in arriving:
                made = translator.feed(chunk) if chunk is not None else PING if translator.answer.begun else b""
                if made:
                    yield made
                if translator.answer.over:
                    return
        yield translator.end()


async def _with_pauses(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes | None]:
    following: asyncio.Future[bytes] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(chunks))
            await asyncio.wait((following,), timeout=PING_EVERY_S)
            if not following.done():
                yield None
                continue
            done, following = following, None
            try:
                chunk = done.result()
            except StopAsyncIteration:
                return
            yield chunk
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait((following,))


async def _whole(stream: AsyncIterator[bytes]) -> ProviderResponse:
    """Return an answer in one piece. The provider streams all the same, so that a long answer does not look dead."""
    pieces, size = [], 0
    async for piece in stream:
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_WHOLE:
            raise ProviderError("the answer is too long", permanent=True)
    message, failed = whole_message(b"".join(pieces))
    if message is not None:
        return json_answer(message)
    error = (failed or {}).get("error") or {}
    kind = str(error.get("type") or "api_error")
    status = {WRONG: 400, "overloaded_error": 529, "rate_limit_error": 429}.get(kind, 500)
    text = str(error.get("message") or "")
    return error_answer(Refusal(status, text, kind=kind, headers=NO_RETRY if status == 400 else None))


def json_answer(data: Json) -> ProviderResponse:
    headers = [("content-type", "application/json")]
    return ProviderResponse(200, headers, WholeBody(dump(data).encode("utf-8", "replace")))


def error_answer(error: Refusal) -> ProviderResponse:
    headers = [("content-type", "application/json"), *error.headers.items()]
    return ProviderResponse(error.status, headers, WholeBody(error.body()))
