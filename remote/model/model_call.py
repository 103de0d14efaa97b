"""A model call: attempts until one counts. The listener hears a block when it counts: when the next one starts or the
stop reason is known. A finished tool_use is heard at once and commits the attempt, because tools start while the model
streams. An attempt that fails before that is withdrawn. After two cut streams the answer is asked for in one piece."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json

from . import answer_stream as answers
from .model_request import PATH, ModelLinkError, ModelResponse, ModelTransport, usage_of, without_stream
from .retry import OF_THE_LAPTOP, ModelError, Retry, RetryPolicy, retry_after

_MAX_ERROR_BODY = 64 * 1024
_MAX_QUOTED = 300
_TOLD_AFTER_S, _TOLD_EVERY_S = 30.0, 60.0  # seconds of silence after which, and then how often, the person is told
_AGAIN = "It was not run. Call it again, in smaller pieces if the input is long."


class ReplyListener:
    """Keeps the blocks of an answer."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []

    @property
    def text(self) -> str:
        return "".join(str(block.get("text", "")) for block in self.blocks if block.get("type") == "text")

    def event(self, event: Json) -> None: ...

    def block(self, head: answers.MessageHead, done: answers.BlockDone, request_id: str) -> None:
        self.blocks.append(done.block)

    def silence(self, silent: float | None, left: float) -> None:
        """The model is silent for `silent` seconds, and given up after `left` more; None: it has gone on."""

    def withdrawn(self, message_id: str) -> None:
        self.blocks.clear()

    def retrying(self, failure: ModelError, attempt: int, most: int, delay: float) -> None: ...


class Clock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True)
class MessageEnd:
    """`lost`: the stream died after a finished tool_use. `withdrawn`: it was cut at the output limit."""

    head: answers.MessageHead
    stop_reason: str | None
    usage: Json
    lost: ModelError | None = None
    withdrawn: bool = False


@dataclass(frozen=True)
class CallSettings:
    """`withdraw_truncated`: the caller asks again with a higher limit. `silence`: seconds, with a link."""

    transport: ModelTransport
    clock: Clock
    silence: float
    headers: Mapping[str, str]
    body: list[bytes]
    withdraw_truncated: bool
    link_up_since: Callable[[], float | None]


class Attempt:
    """Call `run` once, then `discard` if it failed or `salvage` if it was cancelled."""

    def __init__(self, settings: CallSettings, listener: ReplyListener) -> None:
        self._settings = settings
        self._listener = listener
        self._assembler = answers.MessageAssembler()
        self._held: tuple[answers.BlockDone, Json] | None = None
        self._heard = False
        self._committed = False
        self._next_index = 0
        self._message_stop_sent = False
        self._request_id = ""
        self._call_id = new_uuid()
        self._last_sound = settings.clock.now()
        self._silence_told = False

    async def run(self) -> MessageEnd:
        reader = asyncio.ensure_future(self._read())
        watchdog = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait({reader, watchdog}, return_when=asyncio.FIRST_COMPLETED)
            if not reader.done():
                watchdog.result()
                begun = self._assembler.head is not None
                phase = "in the middle of an answer" if begun else "before its answer began"
                text = f"the model said nothing for {self._settings.silence:.0f} s {phase}"
                raise ModelError(text, silent=True, cut_stream=begun)
            return reader.result()
        except ModelError as error:
            if self._assembler.stop_reason is not None:
                return self._end()  # only the closing event is missing
            if self._committed:
                return self._end(lost=error)
            raise
        finally:
            for task in (reader, watchdog):
                task.cancel()
            await asyncio.gather(reader, watchdog, return_exceptions=True)

    def discard(self) -> None:
        self.close_events(from_index=0)
        head = self._assembler.head
        if head is not None and self._heard:
            self._listener.withdrawn(head.id)

    def salvage(self) -> tuple[answers.MessageHead, str, str] | None:
        """Release the finished block of an interrupted call, and return (head, text, request id) of the rest."""
        head = self._assembler.head
        if head is None or self._message_stop_sent:
            return None
        self._release()
        return head, self._assembler.partial_text(), self._request_id

    async def _read(self) -> MessageEnd:
        settings = self._settings
        try:
            async with settings.transport.request(
                self._call_id, "POST", PATH, settings.headers, settings.body
            ) as response:
                self._hear()
                self._request_id = response.headers.get("request-id", "")
                if response.status != 200:
                    raise await _http_error(response)
                if _kind(response) == "application/json":
                    async for event in answers.whole_answer(response):
                        self._take(event)
                    return self._end()
                if "event-stream" not in _kind(response):
                    said = " ".join((await _start_of(response)).split())[:_MAX_QUOTED]
                    what = f"the upstream answered with {_kind(response)!r} instead of an event stream"
                    raise ModelError(f"{what}{f' ({said})' if said else ''}; is the base URL right?", retry=Retry.NO)
                return await self._stream(response)
        except ModelLinkError as error:
            raise ModelError(str(error) or "the connection to the model was lost") from error

    async def _stream(self, response: ModelResponse) -> MessageEnd:
        parser, start = answers.SseParser(), b""
        async for chunk in response.body():
            if len(start) < _MAX_ERROR_BODY and self._assembler.head is None:
                start += chunk[:_MAX_ERROR_BODY]
            for event in parser.feed(chunk):
                self._take(answers.decode_event(event.data, event.name))
                if self._assembler.finished:
                    return self._end()
        if self._assembler.stop_reason is not None:
            return self._end()
        if self._assembler.head is None and start.lstrip().startswith(b"{"):  # no event stream, whatever its head says
            failure = answers.error_in(answers.decode_event(start.decode("utf-8", "replace")))
            if failure is not None:
                raise failure
        raise ModelError("the connection was closed in the middle of an answer", cut_stream=True)

    def _take(self, event: Json) -> None:
        assembler, kind, size = self._assembler, event.get("type"), self._assembler.size
        done = assembler.feed(event)
        counts = kind == "content_block_start" or (kind == "message_delta" and assembler.stop_reason is not None)
        if done or counts or kind == "message_start" or assembler.size > size:  # pings and empty deltas say nothing
            self._hear()
        if (counts or assembler.finished) and not self._truncated():
            self._release(cut=answers.CUT.get(assembler.stop_reason or "", ""))
        if done is not None:
            self._hold(done, event)
        elif kind in answers.PUBLIC_EVENTS and not self._truncated():
            self._message_stop_sent = assembler.finished
            self._listener.event(event)

    def _hold(self, done: answers.BlockDone, stop_event: Json) -> None:
        """Hold a finished block until it is known that the answer was not cut there. A whole call counts at once."""
        self._next_index = done.index + 1
        self._release()  # a block is held here only if blocks overlap
        self._held = (done, stop_event)
        if done.block.get("type") == "tool_use" and not (done.broken or done.bare):
            self._release()

    def _truncated(self) -> bool:
        return self._assembler.stop_reason == "max_tokens" and self._settings.withdraw_truncated and not self._committed

    def _release(self, *, cut: str = "") -> None:
        """Pass the held block to the listener. `cut` says why a call may lack a part of its input."""
        if self._held is None:
            return
        (done, stop_event), self._held = self._held, None
        is_call = done.block.get("type") == "tool_use"
        if cut and is_call and (done.bare or done.broken):
            done = replace(done, broken=f"{cut} before the input of this call was whole. {_AGAIN}")
        head = self._assembler.head
        assert head is not None
        self._heard = True
        self._committed = self._committed or (is_call and not done.broken)
        self._listener.block(head, done, self._request_id)
        self._listener.event(stop_event)

    def _end(self, lost: ModelError | None = None) -> MessageEnd:
        head = self._assembler.head
        assert head is not None
        withdrawn = self._truncated()
        if withdrawn:
            self.discard()
        elif lost is not None:
            self._release(cut="the answer broke off")
            self.close_events(from_index=self._next_index)
        else:
            self.close_events()
        usage = self._assembler.final_usage()
        if lost is None:
            usage = usage_of(self._settings.body, usage)
        return MessageEnd(head, self._assembler.stop_reason, usage, lost, withdrawn)

    def close_events(self, from_index: int | None = None) -> None:
        head = self._assembler.head
        if head is None or self._message_stop_sent:
            return
        self._message_stop_sent = True
        open_indices = self._assembler.open_indices
        if self._held is not None:
            open_indices = [self._held[0].index, *open_indices]
        for index in open_indices:
            self._listener.event({"type": "content_block_stop", "index": index})
        stop: Json = {"type": "message_stop"}
        if from_index is not None:
            stop["abandoned_blocks"] = {"api_message_id": head.id, "from_block_index": from_index}
        self._listener.event(stop)

    def _hear(self) -> None:
        self._last_sound = self._settings.clock.now()
        if self._silence_told:
            self._silence_told = False
            self._listener.silence(None, 0)

    async def _watch(self) -> None:
        """Return when the model was silent for too long while the link was up. Before that, count down, and ask the
        laptop once whether it has more of the answer: a new attempt would be paid for again."""
        clock, limit = self._settings.clock, self._settings.silence
        last_look, first_word = limit / 30, min(_TOLD_AFTER_S, limit / 4)
        looked_at = -1.0  # the last sound, at the time when the laptop was asked
        while True:
            up_since, now = self._settings.link_up_since(), clock.now()
            silent = now - max(self._last_sound, up_since) if up_since is not None else 0.0
            if silent >= limit - last_look and looked_at != self._last_sound:
                looked_at = self._last_sound
                self._last_sound = max(looked_at, self._settings.transport.resume(self._call_id))
                await clock.sleep(last_look)
                continue
            if silent >= limit:
                return
            if silent >= first_word:
                self._silence_told = True
                self._listener.silence(silent, limit - silent)
            marks = (first_word, _TOLD_EVERY_S * (silent // _TOLD_EVERY_S + 1), limit - last_look, limit)
            await clock.sleep(max(0.01, min(mark for mark in marks if mark > silent) - silent))


def _kind(response: ModelResponse) -> str:
    return response.headers.get("content-type", "text/event-stream").partition(";")[0].strip().lower()


async def _start_of(response: ModelResponse) -> str:
    pieces, size = [], 0
    async for chunk in response.body():
        pieces.append(chunk)
        size += len(chunk)
        if size >= _MAX_ERROR_BODY:
            break
    return b"".join(pieces)[:_MAX_ERROR_BODY].decode("utf-8", "replace")


async def _http_error(response: ModelResponse) -> ModelError:
    text = await _start_of(response)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    error = data.get("error") if isinstance(data, dict) else None
    fields = error if isinstance(error, dict) else {}
    kind = str(fields.get("type") or "")
    return ModelError(
        str(fields.get("message") or "") or " ".join(text.split())[:_MAX_QUOTED] or "no explanation given",
        status=None if kind.startswith(OF_THE_LAPTOP) else response.status,
        error_type=kind,
        retry_after=retry_after(response.headers.get("retry-after")),
        retry=_SHOULD_RETRY.get(response.headers.get("x-should-retry", ""), Retry.BY_STATUS),
        request_id=response.headers.get("request-id", ""),
    )


_SHOULD_RETRY = {"true": Retry.YES, "false": Retry.NO}
_MAX_CUT_STREAMS = 2  # of one call
_WHOLE_SILENCE = 600.0  # seconds for an answer in one piece


class ModelCall:
    def __init__(self, settings: CallSettings, listener: ReplyListener, policy: RetryPolicy) -> None:
        self._settings, self._listener, self._policy = settings, listener, policy
        self.attempt: Attempt | None = None

    async def run(self) -> MessageEnd:
        cut, settings = 0, self._settings
        while True:
            self.attempt = Attempt(settings, self._listener)
            try:
                return await self.attempt.run()
            except ModelError as failure:
                self.attempt.discard()
                self.attempt = None
                cut += failure.cut_stream
                if cut == _MAX_CUT_STREAMS:
                    silence = max(settings.silence, _WHOLE_SILENCE)
                    settings = replace(settings, body=without_stream(self._settings.body), silence=silence)
                delay = self._policy.delay(failure)
                if delay is None:
                    raise
                self._listener.retrying(failure, self._policy.attempt, self._policy.max_retries_for(failure), delay)
                await self._settings.clock.sleep(delay)


@dataclass(frozen=True)
class ModelQuestion:
    """`tools` are server tools; `model` is "" for the agent's own."""

    text: str
    system: str
    model: str = ""
    tools: Sequence[Json] = ()
