"""The output formats of headless runs: text, json, stream-json, and the mirrored transcript."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, escaped_json, neutralise
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.model_facts import ESTIMATED
from ccb.tunnel.wire.ndjson import dump, dump_line, to_bytes
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION

from ..session.model_waits import retry_text, silence_text
from ..session.turn_outcomes import has_answer
from ..terminal.console import say
from ..terminal.stdio import Writer

if TYPE_CHECKING:
    from ccb.tunnel.wire.journal_records import DamagedRecord

    from ..session.remote_session import RemoteSession
    from ..session.session_client import Json


_LAST_PAGE = 64 * 1024  # bytes of earlier events to search for the start of the worker
_LONG_MS = 4_000
MAX_LINE = 1_000_000  # the most characters of a line
_STEPS = (200_000, 20_000, 2_000)
_MAX_NAME = 200
_NO_USAGE: Json = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "server_tool_use": {"web_search_requests": 0},
    "service_tier": "standard",
}
_FACTS = ("contextWindow", "maxOutputTokens", "canonicalModel", "costBasis", ESTIMATED)


def report(text: str) -> None:
    """Write one line to stderr, whatever the text. What comes from the host in it cannot drive the terminal."""
    say(f"ccb: {text}")


class RetryReports:
    """Reports that the model is asked again, and what the worker warns of, unless `quiet`: a stream contains both."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._retrying = False

    def system(self, message: messages.SystemMessage) -> None:
        """Report the first retry of a model call, each that waits for long, and what the worker warns of."""
        if self._quiet:
            return
        if message.subtype == "informational" and message.body.get("level") == "warning":
            report(f"the host warns: {HostText(str(message.body.get('content')))}")
        if message.subtype == "model_silent" and (text := silence_text(message)):
            report(text)
        if message.subtype != "api_retry":
            return
        if message.attempt != 1 and messages.as_number(message.body.get("retry_delay_ms")) < _LONG_MS:
            return
        self._retrying = True
        last = message.attempt == message.body.get("max_retries")  # it may be the end of the turn
        report(retry_text(message) if last else f"{retry_text(message)}; trying again")

    def assistant(self, message: messages.AssistantMessage) -> None:
        if not message.is_api_error:
            self._retrying = False

    def turn_ended(self, result: Json) -> None:
        """Handle the end of a turn: if no retry reached the model, report what to check."""
        if self._retrying and result.get("is_error") and result.get("api_error_status") is None:
            report("the model was not reached; check the network, the proxy and ANTHROPIC_BASE_URL here (`ccb doctor`)")
        self._retrying = False


def report_damage(damage: DamagedRecord) -> None:
    """Report damage in the journal, unless its worker has reported it already."""
    if damage.what:
        report(f"on the host: the session's journal is damaged: {HostText(damage.what)}")


async def report_earlier_damage(session: RemoteSession, before: int) -> None:
    """Report damage that the worker found before event `before`, when nobody was attached yet."""
    from ccb.tunnel.wire.journal_records import DamagedRecord, InputRecord, TurnStartRecord, WorkerRecord

    with suppress(CcbError):
        found: list[DamagedRecord] = []
        workers = 0
        for event in reversed(await session.earlier(before, _LAST_PAGE)):
            content = event.record.content
            workers += isinstance(content, WorkerRecord)
            if workers > 1 or isinstance(content, InputRecord | TurnStartRecord):  # from here on a client was attached
                break
            if isinstance(content, DamagedRecord):
                found.append(content)
        for damage in reversed(found):
            report_damage(damage)


def add_unsent(error: CcbError, session: RemoteSession) -> None:
    if session.unsent:
        unsent = f"{session.unsent} input(s) were not confirmed by the host and may be lost."
        error.evidence = f"{error.evidence}\n{unsent}" if error.evidence else unsent


def limited_line(body: Json) -> str:
    """Return a message as JSON. If it is too long, long texts in it are cut and images are left out."""
    line = dump_line(body)
    for most in _STEPS:
        if len(line) <= MAX_LINE:
            break
        short = _cut(body, most)
        assert isinstance(short, dict)
        line = dump_line(short)
    return line


def _cut(value: object, most: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… ({len(value) - most} characters left out)"
    if isinstance(value, list):
        return [_cut(each, most) for each in value]
    if isinstance(value, dict):
        data = messages.as_dict(value.get("source")).get("data")
        if value.get("type") in ("image", "document") and isinstance(data, str) and len(data) > most:
            return {"type": "text", "text": f"({value['type']} left out: the message is too long)"}
        return {name: _cut(each, most) for name, each in value.items()}
    return value


class TranscriptMirror:
    """`environ` is the environment of the client's process, which looks for the transcript in the same directories."""

    def __init__(self, output: HeadlessOutput, environ: Mapping[str, str], cwd: Path) -> None:
        home = environ.get("CLAUDE_CONFIG_DIR") or str(Path(environ.get("HOME") or Path.home()) / ".claude")
        self._output = output
        self._cwd = unicodedata.normalize("NFC", os.path.realpath(cwd))
        self._folder = Path(unicodedata.normalize("NFC", home)) / "projects" / _folder_name(self._cwd)
        self._session = ""
        self._last: str | None = None
        self._prompts: dict[str, Json] = {}

    def begin(self, session_id: str) -> None:
        self._session = session_id
        try:
            *_, last = self._path.read_text(encoding="utf-8").rstrip("\n").split("\n")
            self._last = str(json.loads(last)["uuid"])
        except (OSError, ValueError, KeyError, TypeError):
            self._last = None

    def sent(self, input_id: str, body: Json) -> None:
        self._prompts[input_id] = body

    async def taken(self, input_id: str) -> None:
        body = self._prompts.pop(input_id, None)
        if body is not None:
            await self._print({**body, "uuid": body.get("uuid") or input_id})

    async def message(self, public: messages.PublicMessage, body: Json) -> None:
        of_main = not body.get("parent_tool_use_id")
        if of_main and (
            isinstance(public, messages.AssistantMessage)
            or (isinstance(public, messages.UserMessage) and not public.is_replay)
        ):
            await self._print(body)

    async def _print(self, body: Json) -> None:
        identity = str(body.get("uuid") or new_uuid())
        entry = {
            "type": body["type"],
            "uuid": identity,
            "parentUuid": self._last,
            "sessionId": self._session,
            "timestamp": body.get("timestamp") or datetime.now(UTC).isoformat(timespec="milliseconds")[:23] + "Z",
            "cwd": self._cwd,
            "version": CLAUDE_CODE_VERSION,
            "isSidechain": False,
            "userType": "external",
            "message": body["message"],
            **({"isMeta": True} if body.get("isSynthetic") else {}),
            **({"toolUseResult": body["tool_use_result"]} if "tool_use_result" in body else {}),
        }
        self._last = identity
        await self._output.message({"type": "transcript_mirror", "filePath": str(self._path), "entries": [entry]})

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._session}.jsonl"


def _folder_name(directory: str) -> str:
    """Return the name under which the official SDKs look for the sessions of a directory."""
    name = re.sub(r"[^a-zA-Z0-9]", "-", directory)
    if len(name) <= _MAX_NAME:
        return name
    value = 0
    for char in directory:
        value = (value * 31 + ord(char)) & 0xFFFFFFFF
    value = abs(value - 0x100000000 if value & 0x80000000 else value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{name[:_MAX_NAME]}-{digits}"


class HeadlessOutput:
    """Prints the messages of a session in the form that `text_of` gives them. This base prints nothing."""

    def __init__(self, writer: Writer, text_of: Callable[[Json], str]) -> None:
        self._writer = writer
        self._text_of = text_of

    async def message(self, body: Json) -> None: ...

    async def progress(self, body: Json) -> None: ...  # what is not in the journal, such as a streaming event

    async def result(self, body: Json) -> None:
        await self.message(body)

    async def finish(self) -> None:
        """Print what comes at the end of the run."""


class LastResultOutput(HeadlessOutput):
    _last: Json | None = None

    async def result(self, body: Json) -> None:
        self._last = body

    async def finish(self) -> None:
        text = self._text_of(self._last) if self._last is not None else ""
        if text.strip():
            await self._writer.write(to_bytes(text if text.endswith("\n") else text + "\n"))


class JsonArrayOutput(HeadlessOutput):
    _started = False

    async def message(self, body: Json) -> None:
        await self._writer.write(to_bytes((",\n" if self._started else "[") + self._text_of(body)))
        self._started = True

    async def finish(self) -> None:
        await self._writer.write(b"]\n" if self._started else b"[]\n")


class StreamOutput(HeadlessOutput):
    async def message(self, body: Json) -> None:
        await self._writer.write(to_bytes(self._text_of(body) + "\n"))

    async def progress(self, body: Json) -> None:
        await self.message(body)


def make_output(output_format: str, writer: Writer, *, verbose: bool, terminal: bool) -> HeadlessOutput:
    """Return the output for a value of `--output-format`. `terminal`: stdout is a terminal."""
    if output_format == "text":
        return LastResultOutput(writer, lambda body: neutralise(answer_in(body)) if terminal else answer_in(body))
    text_of = dump_line if output_format == "json" else limited_line
    if terminal:
        text_of = lambda body: escaped_json(dump_line(body))  # noqa: E731
    if output_format == "stream-json":
        return StreamOutput(writer, text_of)
    return JsonArrayOutput(writer, text_of) if verbose else LastResultOutput(writer, text_of)


def usage_between(before: Json, now: Json) -> Json:
    found: Json = {}
    for model, sums in now.items():
        old = before.get(model) or {}
        added = {name: value for name, value in sums.items() if name not in _FACTS and isinstance(value, (int, float))}
        counts = {**sums, **{name: value - old.get(name, 0) for name, value in added.items()}}
        if any(counts[name] for name in counts if name not in _FACTS):
            found[model] = counts
    return found


def answer_in(result: Json) -> str:
    """Return the answer of a result. The reason for a missing answer goes to stderr: scripts read stdout."""
    if has_answer(result):
        return result_text(result)
    for line in result_text(result).splitlines():
        report(line)
    return ""


def result_text(result: Json) -> str:
    text = result.get("result")
    if isinstance(text, str) and not text.strip() and "structured_output" in result:
        return dump(result["structured_output"])
    if isinstance(text, str) and (text.strip() or has_answer(result)):
        return text
    if isinstance(text, str):
        reason = str(result.get("terminal_reason") or "completed").replace("_", " ")
        return f"The turn ended without an answer{'' if reason == 'completed' else f' ({reason})'}."
    errors = result.get("errors")
    lines = [str(line) for line in errors] if isinstance(errors, list) and errors else [str(result.get("subtype"))]
    return "\n".join(f"Error: {line}" for line in lines)


def command_message(session_id: str, text: str, before: Json) -> Json:
    """Make the result of a slash command of this machine. The sums of the result `before` still hold."""
    made = local_result(session_id, [], reason="completed", duration_ms=0)
    del made["errors"]
    sums: Json = {name: before[name] for name in ("total_cost_usd", "modelUsage") if name in before}
    return {**made, **sums, "subtype": "success", "is_error": False, "result": text}


def local_result(session_id: str, errors: list[str], *, reason: str, duration_ms: int) -> Json:
    """Make a result for a turn that got none from the host. `reason` goes into `terminal_reason`."""
    return {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "duration_ms": duration_ms,
        "duration_api_ms": 0,
        "num_turns": 0,
        "stop_reason": None,
        "session_id": session_id,
        "total_cost_usd": 0,
        "usage": _NO_USAGE,
        "modelUsage": {},
        "permission_denials": [],
        "errors": errors,
        "terminal_reason": reason,
        "uuid": new_uuid(),
    }
