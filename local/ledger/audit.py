"""The audit of a session: a result that goes to a model must belong to a call that a model was seen to make."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.providers.foreign_api import ForeignApi
from ccb.tunnel.providers.json_fields import objects_in
from ccb.tunnel.proxy.answer_reader import Auditor, WantedCall
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, Success, ToolPermission, answer_in
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, PublicMessage, UserMessage
from ccb.tunnel.wire.outside_messages import TELL_SESSION

from .budgets import LedgerThread
from .call_ledger import AuditEntry, CallLedger, CallPlace

log = logging.getLogger(__name__)

_MAX_TEXT = 4_000
_MAX_CHECKED = 20_000  # results of one request
_MAX_NOTED = 500  # texts and results of one request
_MAX_NOTED_IN_ALL = 100_000  # of all requests: after that only what was tampered with, and how much there was
_MAX_TAMPERING = 20  # of one request
_WARNED_EVERY_S = 60.0
_MAX_KNOWN = 200_000
_MAX_OPEN = 1_000
_VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_MAX_PENDING = 64 * 1024 * 1024  # bytes of requests that wait to be looked at


class SessionAudit(Auditor, AbstractAsyncContextManager["SessionAudit"]):
    """Notes what a session's proxy and client see, in a thread with the ledger: `shared`, or one of its own. A context
    manager. `record`: keep bodies. `decided` hears what is answered here about calls of tools: whether they may run."""

    def __init__(
        self,
        state: Path,
        warn: Callable[[str], None] = log.warning,
        *,
        record: bool = False,
        shared: LedgerThread | None = None,
        decided: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.place = CallPlace()
        self._warn = warn
        self._decided = decided
        self._state = state
        self._recorder = BodyRecorder(state / "recorded") if record else None
        self._told: set[str] = set()  # what the person is told once
        self._thread = shared or LedgerThread(state)
        self._own = self._thread if shared is None else None
        self._seen = _SeenRequests(self._was_wanted)
        self._warned_at = -_WARNED_EVERY_S
        self._questions: dict[str, tuple[str, str]] = {}  # the call and the tool, by request
        self._pending = 0
        self._loop = asyncio.get_running_loop()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wrap_future(self._thread.submit(self._close))
        if self._own is not None:
            await self._own.aclose()

    # What the auth proxy tells.

    def sent(self, call_id: str, body: bytes, digest: str, api: ForeignApi | None = None) -> None:
        if self._pending + len(body) > _MAX_PENDING:
            self._note(AuditEntry("unchecked", time.time(), call_id, text=f"a large request, {digest[:16]}"))
            said = "The host sends more to models than can be looked at: `ccb audit` names what it does not show."
            self._tell_once("unchecked", said)
            return
        self._pending += len(body)
        self._submit(self._look_at, call_id, body, time.time(), api)

    def wanted(self, call_id: str, wanted: WantedCall) -> None:
        """See Auditor. A worker gives another id to a call whose id its model has used before, or may not use."""
        if not wanted.there:
            self._seen.want(wanted.tool_use_id)

    def wanted_whole(self, call_id: str, wanted: WantedCall) -> None:
        text = wanted.input_json[:_MAX_TEXT]
        kind = "there" if wanted.there else "wanted"
        self._note(AuditEntry(kind, time.time(), call_id, wanted.tool_use_id, wanted.name, text))

    def recording(self, call_id: str) -> Callable[[bytes], None] | None:
        recorder = self._recorder
        if recorder is None:
            return None
        return lambda piece: self._submit(recorder.answer, self.place.session, call_id, piece)

    def begins(self) -> None:
        """Note that the session is new: all of its history comes past here, and results of other calls do not."""
        self._seen.first, self._seen.whole = False, True

    def others_drove(self) -> None:
        self._seen.first, self._seen.whole = True, False

    def forget(self, older_s: float, also: Path) -> None:
        """Remove noted texts and recorded bodies that are older, and logs, reports and prompts in `also`."""
        self._submit(self._forget, time.time() - older_s, also)

    def _forget(self, before: float, also: Path) -> None:
        if (ledger := self._opened()) is not None:
            ledger.forget_texts(before)
        kept_here = (path for name in ("reports/*", "prompts/*", "ccb-*.log*") for path in also.glob(name))
        for path in (*self._state.glob("recorded/*/*"), *kept_here):
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()

    def revoked(self) -> None:
        self._note(AuditEntry("revoked", time.time()))

    # What the client of the session sees.

    def asked(self, line: ControlRequest) -> None:
        if line.subtype == CAN_USE_TOOL.name and len(self._questions) < _MAX_OPEN:
            use = str(line.request.get("tool_use_id", ""))[:200]
            self._questions[line.request_id] = use, line.tool_name[:200]

    def withdrawn(self, request_id: str) -> None:
        self._questions.pop(request_id, None)

    def said(self, line: PublicMessage) -> None:
        if isinstance(line, UserMessage):
            self._note(AuditEntry("prompt", time.time(), text=line.text("\n")[:_MAX_TEXT]))
        elif isinstance(line, ControlRequest) and line.subtype == TELL_SESSION.name:
            self._note(AuditEntry("told", time.time(), name=line.text("sender"), text=line.text("text")[:_MAX_TEXT]))
        elif isinstance(line, ControlResponse) and (question := self._questions.pop(line.request_id, None)):
            answer = answer_in(line)
            allows = isinstance(answer, Success) and ToolPermission.from_answer(answer).allow
            self._decided(allows)
            use, name = question
            decision = "allowed" if allows else "denied"
            self._note(AuditEntry("decided", time.time(), tool_use=use, name=name, text=decision))

    # In the thread.

    def _look_at(self, call_id: str, body: bytes, at: float, api: ForeignApi | None) -> None:
        self._loop.call_soon_threadsafe(self._looked_at, len(body))
        if self._recorder is not None:
            said = "Model calls are not recorded any more: this run has kept 4 GB."
            if self._recorder.full and self._tell_once("unrecorded", said):
                self._write([AuditEntry("unrecorded", at, call_id)])
            self._recorder.request(self.place.session, call_id, body)
        entries, unknown = self._seen.entries(request_content(body, call_id, at, api), call_id, at)
        self._write(entries)
        if unknown:
            use = one_line(unknown[0])
            log.warning("%d results belong to no call of a model, the first is %s", len(unknown), use)
            now = time.monotonic()
            if now - self._warned_at >= _WARNED_EVERY_S:
                self._warned_at = now
                said = f"The host sent the model a result ({use}) of a tool call that no model made: tampering."
                self._loop.call_soon_threadsafe(self._warn, f"{said} See: ccb audit {self.place.session[:8]}")

    def _looked_at(self, size: int) -> None:
        self._pending -= size

    def _tell_once(self, what: str, text: str) -> bool:
        if what in self._told:
            return False
        self._told.add(what)
        self._loop.call_soon_threadsafe(self._warn, text)
        return True

    def _was_wanted(self, tool_use_id: str) -> bool:
        ledger = self._opened()
        return ledger is not None and ledger.has_wanted(tool_use_id)

    def _note(self, entry: AuditEntry) -> None:
        self._submit(self._write, [entry])

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            self._thread.submit(self._guarded, work, *arguments)
        except RuntimeError:  # the interpreter ends
            log.warning("an event is not in the audit: the program ends")

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except (CcbError, OSError, sqlite3.Error) as error:
            if self._tell_once("broken", f"What the host asks is not in `ccb audit` any more: {one_line(str(error))}"):
                log.warning("the audit of this session cannot be written: %s", error)
        except Exception:  # nobody reads the result of this thread's work
            log.exception("the audit failed on an event")

    def _write(self, entries: list[AuditEntry]) -> None:
        ledger = self._opened()
        if ledger is not None and entries:
            ledger.note(self.place, entries)

    def _opened(self) -> CallLedger | None:
        return None if "broken" in self._told else self._thread.reservations().ledger

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()


class _SeenRequests:
    """What requests held, and which calls were made. `first`: unseen history comes next. `whole`: all was seen."""

    def __init__(self, was_wanted: Callable[[str], bool]) -> None:
        self.first = True
        self.whole = False
        self._was_wanted = was_wanted
        self._wanted: set[str] = set()
        self._lenient = False  # not every id of a call is known here
        self._answered: dict[str, str] = {}  # what the result of a call was, by its id
        self._texts: set[str] = set()  # the digests of those that were noted
        self._asked = ""
        self._left = _MAX_NOTED_IN_ALL

    def want(self, tool_use_id: str) -> None:
        if tool_use_id in self._wanted or not _VALID_ID.fullmatch(tool_use_id) or len(self._wanted) >= _MAX_KNOWN:
            self._lenient = True
        if len(self._wanted) < _MAX_KNOWN:
            self._wanted.add(tool_use_id)

    def entries(self, found: RequestContent, call_id: str, at: float) -> tuple[list[AuditEntry], list[str]]:
        entries = []
        asked = "\n".join(found.asked)
        if asked and asked != self._asked:
            self._asked = asked
            entries.append(AuditEntry("asked", at, call_id, name=found.model, text=shortened(asked)))
        for text in found.asked:  # they are the earlier texts of the next request
            self._is_new(text)
        changed = [each for each in found.results if self._answered.get(each.tool_use) != each.text]
        results, left = changed[:_MAX_CHECKED], len(changed[_MAX_CHECKED:])
        unknown = [each for each in dict.fromkeys(each.tool_use for each in results) if not self._is_known(each)]
        first, self.first = self.first, False
        self._lenient = self._lenient or (first and bool(unknown))
        kinds = dict.fromkeys(unknown, "unseen" if self._lenient else "tampering")
        noted = self._others(found, first=first)
        noted += [self._result(each, kinds.get(each.tool_use, "result")) for each in results]
        return entries + self._limited(noted, left, call_id, at), [] if self._lenient else unknown

    def _result(self, result: AuditEntry, kind: str) -> AuditEntry:
        if result.tool_use in self._answered or len(self._answered) < _MAX_KNOWN:
            self._answered[result.tool_use] = result.text
        return replace(result, kind=kind)

    def _is_known(self, tool_use_id: str) -> bool:
        if tool_use_id in self._wanted or self.whole:  # a host knows the ids of its other sessions, too
            return tool_use_id in self._wanted
        return self._was_wanted(tool_use_id)

    def _others(self, found: RequestContent, *, first: bool) -> list[AuditEntry]:
        others = [each for each in found.others if self._is_new(each.text)]
        if first and others:  # a session that goes on has a history, which may be long
            size = sum(len(each.text) for each in others)
            text = f"{len(others)} earlier texts and system prompts, {size:,} characters"
            return [replace(others[0], name="", text=text)]
        return [replace(each, text=shortened(each.text)) for each in others]

    def _is_new(self, text: str) -> bool:
        digest = text_digest(text)
        if digest in self._texts:
            return False
        if len(self._texts) < _MAX_KNOWN:
            self._texts.add(digest)
        return True

    def _limited(self, noted: list[AuditEntry], left: int, call_id: str, at: float) -> list[AuditEntry]:
        """Return what is written of a request: a host must not fill the disk. What is left out is counted."""
        noted.sort(key=lambda each: each.kind != "tampering")
        tampered = sum(each.kind == "tampering" for each in noted)
        kept = max(min(len(noted), _MAX_NOTED, self._left), min(tampered, _MAX_TAMPERING))
        self._left = max(0, self._left - kept)
        left += len(noted) - kept
        if not left:
            return noted
        text = f"{left:,} more texts and results of a request"
        return [*noted[:kept], AuditEntry("unchecked", at, call_id, text=text)]


_MAX_FILES = 64  # answers that come at the same time
MAX_RECORDED = 4 * 1024**3  # bytes that one run keeps: a few bytes from a host can make a request of 8 MB
_NAME = re.compile(r"[^A-Za-z0-9-]")


class BodyRecorder:
    """Writes `SESSION/CALL.request.json.gz` and `….answer.gz` for this user alone, up to MAX_RECORDED bytes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left = MAX_RECORDED
        self._answers: dict[Path, gzip.GzipFile] = {}  # open, because pieces are too short to be compressed alone

    @property
    def full(self) -> bool:
        return self._left <= 0

    def request(self, session: str, call_id: str, body: bytes) -> None:
        """Keep a body, on a line of its own if a host gives one ID to several calls. Raise OSError."""
        if self.full:
            return
        path = self._path(session, call_id, "request.json.gz")
        before = path.stat().st_size if path.exists() else 0
        with gzip.open(path, "ab", compresslevel=1) as file:
            file.write(b"\n" + body if before else body)
        self._left -= path.stat().st_size - before

    def answer(self, session: str, call_id: str, piece: bytes) -> None:
        if self.full:
            return
        self._left -= len(piece)
        path = self._path(session, call_id, "answer.gz")
        file = self._answers.pop(path, None) or gzip.GzipFile(path, "ab", compresslevel=1)
        self._answers[path] = file
        if len(self._answers) > _MAX_FILES:
            self._answers.pop(next(iter(self._answers))).close()
        file.write(piece)

    def close(self) -> None:
        while self._answers:
            self._answers.popitem()[1].close()

    def _path(self, session: str, call_id: str, end: str) -> Path:
        directory = self._directory / (_NAME.sub("_", session)[:80] or "unknown")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        return directory / f"{_NAME.sub('_', call_id)[:80] or 'call'}.{end}"


_MAX_ID = 200
_MAX_BESIDE = 500  # characters of a part of the request that are told in full
_CONVERSATION = frozenset(("messages", "system", "model"))
_NOTED_ELSEWHERE = frozenset(("tool_result", "tool_use", "thinking", "redacted_thinking"))


class RequestContent(NamedTuple):
    """`asked` are the texts of the last user message, `others` all other texts that no model has written: `name` is
    whose they are said to be; `assistant`: to go on with; `request`: beside messages."""

    model: str = ""
    asked: tuple[str, ...] = ()
    others: tuple[AuditEntry, ...] = ()
    results: tuple[AuditEntry, ...] = ()


def request_content(body: bytes, call_id: str, at: float, api: ForeignApi | None = None) -> RequestContent:
    """Read the body of a request. What is not as it should be is passed over: the provider will refuse it."""
    try:
        # A hook makes other threads run in between: to read 30 MB in one go holds up the screen for most of a second.
        request: Any = json.loads(body, object_hook=lambda found: found)
    except (ValueError, RecursionError):
        request = None
    if api is not None and isinstance(request, dict):
        from ccb.tunnel.proxy.foreign_requests import as_messages  # only foreign agents need it

        request = as_messages(api, request)
    messages = objects_in(request, "messages")
    if not messages:
        return RequestContent()
    said = [each for each in messages if each.get("role") != "assistant"]
    last = next((each for each in reversed(said) if each.get("role") == "user"), {})
    earlier = [each for each in said if each is not last]
    if messages[-1] not in said:
        earlier.insert(0, messages[-1])
    results = [block for each in said for block in _blocks(each) if block.get("type") == "tool_result"]
    return RequestContent(
        str(request.get("model", ""))[:_MAX_ID],
        tuple(_said(last)),
        tuple(AuditEntry("also", at, call_id, name=role, text=text) for role, text in _others(request, earlier)),
        tuple(_result(each, call_id, at) for each in results),
    )


def _others(request: Json, earlier: list[Json]) -> Iterator[tuple[str, str]]:
    yield from (("system", text) for text in _texts(request.get("system")))
    if beside := ", ".join(_beside(request)):
        yield "request", beside
    yield from ((str(each.get("role", ""))[:_MAX_ID], text) for each in earlier for text in _said(each))


def shortened(text: str) -> str:
    """Return a text as it stands in the audit: a long one is cut, and what it is in whole is said."""
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]} … [cut: {len(text):,} characters, SHA-256 {text_digest(text)[:16]}]"


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _beside(request: Json) -> Iterator[str]:
    for name, value in request.items():
        if name not in _CONVERSATION and isinstance(value, (str, list, dict)) and value:
            text = json.dumps(value)
            shown = text if len(text) <= _MAX_BESIDE else f"{len(text):,} characters, {text_digest(text)[:16]}"
            yield f"{name[:_MAX_ID]}: {shown}"


def _said(message: Json) -> Iterator[str]:
    """Yield what a message says, apart from results of tool calls. Only the digest is told of pictures and files."""
    for block in _blocks(message):
        source = block.get("source")
        if block.get("type") == "text":
            yield str(block.get("text", ""))
        elif isinstance(source, dict) and source.get("type") == "base64":
            data = str(source.get("data", ""))
            yield f"({str(block.get('type'))[:_MAX_ID]} of {len(data):,} characters, {text_digest(data)[:16]})"
        elif block.get("type") not in _NOTED_ELSEWHERE:
            only_text = isinstance(source, dict) and source.get("type") == "text"
            kept = {name: value for name, value in block.items() if name != "cache_control"}  # the mark moves on
            yield str(source.get("data", "")) if only_text and isinstance(source, dict) else json.dumps(kept)


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    items = content if isinstance(content, list) else [content] if content else []
    return [each if isinstance(each, dict) else {"type": "text", "text": str(each)} for each in items]


def _result(block: Json, call_id: str, at: float) -> AuditEntry:
    content = "".join(_texts(block.get("content")))
    how = "error" if block.get("is_error") else "ok"
    text = f"{how}, {len(content):,} characters, {text_digest(content)[:16]}"
    return AuditEntry("result", at, call_id, str(block.get("tool_use_id", ""))[:_MAX_ID], text=text)


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for each in content if isinstance(content, list) else ():
        if not isinstance(each, dict):
            yield str(each)
        else:
            yield str(each.get("text", "")) if each.get("type") == "text" else json.dumps(each)
