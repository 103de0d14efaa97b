"""A world for the agent loop in memory: the ports, a clock that only moves when told, tools that say what happens."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, TypeVar, Union, cast

from tests.support.worker.cages import sandbox

from ccb.remote.agent.agent import Agent
from ccb.remote.agent.agent_config import AgentConfig, AgentDeps
from ccb.remote.agent.agent_histories import Ledger
from ccb.remote.agent.conversation import Conversation
from ccb.remote.agent.turn_state import Prompt
from ccb.remote.context.instructions import InstructionFile, NestedInstructions
from ccb.remote.context.system_prompt import SessionPrompt
from ccb.remote.hooks.hook_runner import HookContext, HookRunner
from ccb.remote.model.model_call import Clock
from ccb.remote.model.model_request import WindowSettings
from ccb.remote.model.retry import RetrySettings
from ccb.remote.permissions.engine import LaunchRules, PermissionEngine
from ccb.remote.permissions.matchers import Askable
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.session_store.session_log import SessionLog
from ccb.remote.settings.worker_settings import Layer, WorkerSettings
from ccb.remote.slash_commands.command_registry import CommandCall, SlashCommand
from ccb.remote.tools.output import OutputFiles
from ccb.remote.tools.tasks import TaskRegistry
from ccb.remote.tools.tool_contract import Tool, ToolContext, ToolDeclaration, ToolResult
from ccb.remote.tools.tool_state import AgentTodos, FileState
from ccb.remote.tools.toolset import Toolset
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestKind, ToolPermission
from ccb.tunnel.wire.journal_records import (
    MAIN_AGENT,
    CompactStartRecord,
    Content,
    MessageRecord,
    Record,
    parse_line,
    record_of,
    to_line,
)
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.tool_traits import Effect, ToolTraits

Json = dict[str, Any]
T = TypeVar("T")
Chunk = Union[bytes, Exception, asyncio.Event]


class ManualClock(Clock):
    """Time stands still until `run_until_done` or `advance` moves it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return 1_700_000_000.0 + self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, len(self.slept), future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.time + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self._wake()
            await settle()
        self.time = end

    async def run_until_done(self, work: Awaitable[T]) -> T:
        """Jump from one sleeper to the next whenever nothing else can happen."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await settle()
            if not task.done():
                assert self._sleepers, "everything waits, and not for time"
                self._wake()
        return task.result()

    def _wake(self) -> None:
        due, _, future = heapq.heappop(self._sleepers)
        if not future.done():
            self.time = max(self.time, due)
            future.set_result(None)


async def settle() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while cast(Any, loop)._ready:
        await asyncio.sleep(0)


async def _until(ready: Callable[[], bool], news: asyncio.Event) -> None:
    async def wait() -> None:
        while not ready():
            news.clear()
            await news.wait()

    await asyncio.wait_for(wait(), 60)


@dataclass
class Reply:
    """One scripted answer of the model: bytes are given out, an exception is raised, an Event is waited for."""

    chunks: Sequence[Chunk] = ()
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "text/event-stream", "request-id": "req_1"}
    )
    head_error: Exception | None = None
    head_wait: asyncio.Event | None = None

    async def body(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, asyncio.Event):
                await chunk.wait()
            elif isinstance(chunk, Exception):
                raise chunk
            else:
                yield chunk


def content(reply: Reply) -> bytes:
    return b"".join(chunk for chunk in reply.chunks if isinstance(chunk, bytes))


class ScriptedTransport:
    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.call_ids: list[str] = []
        self.bodies: list[bytes] = []
        self.heads: list[tuple[str, str, Mapping[str, str]]] = []
        self.closed = 0
        self.open = 0
        self.resume: Callable[[str], float] = lambda call_id: 0.0

    @asynccontextmanager
    async def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AsyncIterator[Reply]:
        self.call_ids.append(call_id)
        self.bodies.append(b"".join(body))
        self.heads.append((method, path, headers))
        assert self.replies, "the model was called once too often"
        reply = self.replies.pop(0)
        if reply.head_wait is not None:
            await reply.head_wait.wait()
        if reply.head_error is not None:
            raise reply.head_error
        self.open += 1
        try:
            yield reply
        finally:
            self.open -= 1
            self.closed += 1

    def request_json(self, index: int) -> Json:
        return cast(Json, json.loads(self.bodies[index]))


class MemoryLog(SessionLog):
    """Keeps everything in order. `records` are what a restart would read."""

    def __init__(self) -> None:
        self.session_id = "6f1c1f5e-0000-4000-8000-000000000000"
        self.records: list[Record] = []
        self.all: list[tuple[str, Json]] = []  # progress included
        self.committed = 0
        self.news = asyncio.Event()

    def emit(self, content: Content, agent_id: str = MAIN_AGENT) -> Record:
        record = parse_line(to_line(record_of(content, len(self.records) + 1, agent_id=agent_id)))
        assert record is not None
        self.records.append(record)
        self.all.append((record.kind, record.body))
        self.news.set()
        return record

    def progress(self, key: str, body: Json) -> None:
        self.all.append(("progress", body))
        self.news.set()

    async def commit(self) -> None:
        self.committed = len(self.records)

    def messages(self, kind: str = "", subtype: str = "") -> list[Json]:
        return [
            record.body
            for record in self.records
            if isinstance(record.content, MessageRecord)
            and kind in ("", record.body["type"])
            and subtype in ("", record.body.get("subtype"))
        ]

    def facts(self, kind: str) -> list[Json]:
        return [record.body for record in self.records if record.kind == kind]

    def stream_events(self) -> list[Json]:
        return [b["event"] for k, b in self.all if k == "progress" and b["type"] == "stream_event"]

    def outline(self) -> list[str]:
        return [_word(body) for body in self.messages()]

    async def until(self, ready: Callable[[], bool]) -> None:
        await _until(ready, self.news)


def _word(body: Json) -> str:
    if body["type"] == "system":
        return str(body["subtype"])
    if body["type"] == "result":
        return f"result {body['subtype']}"
    block = body["message"]["content"][0]
    detail = block.get("text") or block.get("thinking") or block.get("id") or block.get("tool_use_id")
    return f"{body['type']} {block['type']} {detail}"


class OpenPermissions(PermissionEngine):
    def __init__(self, decisions: Mapping[str, Decision] | None = None) -> None:
        super().__init__(LaunchRules(sandbox()), cwd="/srv/app", home="/home/ann")
        self.decisions = dict(decisions or {})
        self.hidden: set[str] = set()

    def decide(
        self, tool: Askable, tool_input: Json, *, can_ask: bool = False, shell_cwd: str = "", granted: bool = False
    ) -> Decision:
        return self.decisions.get(tool.traits.name, Decision(Behavior.ALLOW, "allowed"))

    def visible(self, tool_name: str) -> bool:
        return tool_name not in self.hidden


class NoShells:
    """Stands for the shells of a session: none has left its directory."""

    cwd = "/srv/app"

    def directory(self, host: object, roots: Sequence[str]) -> str:
        return roots[0]


class ScriptedBroker:
    def __init__(
        self, answers: Sequence[ToolPermission | asyncio.Event | Exception] = (), can_ask: bool = True
    ) -> None:
        self._can_ask = can_ask
        self.answers = list(answers)
        self.requests: list[Json] = []
        self.withdrawn = 0

    def can_ask(self, kind: RequestKind[P, A]) -> bool:
        return self._can_ask

    def reconsider(self) -> None:
        pass

    async def request(self, request: Request[Any, Any]) -> Any:
        self.requests.append(request.public()["request"])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            try:
                await answer.wait()
            except asyncio.CancelledError:
                self.withdrawn += 1
                raise
            return ToolPermission(True)
        return answer


class FixedPrompts(SessionPrompt):
    def __init__(self, text: str, *first: Json) -> None:
        super().__init__(SessionOptions(), cast(Any, None))
        self._text = text
        self._first = list(first)

    async def system(self) -> list[Json]:
        return [{"type": "text", "text": self._text, "cache_control": {"type": "ephemeral"}}]

    async def first_user_blocks(self) -> list[Json]:
        return list(self._first)

    async def instructions(self) -> Sequence[InstructionFile]:
        return ()


SPY_SCHEMA: Json = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["key"],
    "additionalProperties": False,
}


class SpyTool(Tool):
    """Writes down when its calls start and end; a call waits for the event in `gates` of the same `key`."""

    def __init__(self, name: str, *, read_only: bool, log: list[str]) -> None:
        effect = Effect.READ if read_only else Effect.WRITE
        self.declaration = ToolDeclaration(
            ToolTraits(name, effect, parallel=read_only), "A tool for tests.", SPY_SCHEMA
        )
        self.log = log
        self.gates: dict[str, asyncio.Event] = {}
        self.results: dict[str, ToolResult | Exception] = {}
        self.invalid: dict[str, str] = {}
        self.tidy: set[str] = set()  # keys of calls that answer a cancellation with what they have
        self.printed: dict[str, str] = {}  # what a call says when it is cancelled
        self.changed = asyncio.Event()

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        return self.invalid.get(tool_input.get("key", ""))

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        key = tool_input.get("key", "")
        self._note(f"start {key}")
        context.call.progress({"output": f"working on {key}", "total_bytes": 7, "elapsed_seconds": 1.5})
        try:
            if key in self.gates:
                await self.gates[key].wait()
        except asyncio.CancelledError:
            self._note(f"cancelled {key}")
            if key in self.tidy:
                return ToolResult(f"part of {key}")
            if key in self.printed:
                context.call.stopped(self.printed[key])
            raise
        self._note(f"end {key}")
        result = self.results.get(key, ToolResult(f"did {key}", structured={"key": key}))
        if isinstance(result, Exception):
            raise result
        return result

    def _note(self, text: str) -> None:
        self.log.append(text)
        self.changed.set()

    async def until(self, *wanted: str) -> None:
        await _until(lambda: set(wanted) <= set(self.log), self.changed)


@dataclass
class World:
    agent: Agent
    transport: ScriptedTransport
    journal: MemoryLog
    clock: ManualClock
    broker: ScriptedBroker
    permissions: OpenPermissions
    read: SpyTool
    write: SpyTool
    log: list[str]
    conversation: Conversation
    queue: list[Prompt]

    async def turn(self, text: str = "go") -> Json:
        return await self.clock.run_until_done(self.agent.run_turn([Prompt([{"type": "text", "text": text}])]))

    def start(self, text: str = "go") -> asyncio.Task[Json]:
        return asyncio.ensure_future(self.agent.run_turn([Prompt([{"type": "text", "text": text}])]))

    def history(self) -> list[Json]:
        return [message.api() for message in self.conversation.messages]


def settings_of(window: WindowSettings) -> WorkerSettings:
    """The settings of a session that say this about the model's window."""
    values = {"env": {"CCB_MAX_CONTEXT_TOKENS": str(window.window or "")}, "autoCompactEnabled": window.auto}
    return WorkerSettings((Layer("flag", "", values),))


def no_hooks(log: SessionLog, permissions: PermissionEngine) -> HookRunner:
    nothing = cast(Any, None)
    return HookRunner(HookContext("/srv/app", nothing, nothing, log, permissions, lambda key, text: None))


def make_world(
    *replies: Reply,
    decisions: Mapping[str, Decision] | None = None,
    answers: Sequence[ToolPermission | asyncio.Event | Exception] = (),
    can_ask: bool = True,
    partial: bool = False,
    max_turns: int | None = None,
    max_retries: int = 10,
    link_up_since: Callable[[], float | None] = lambda: 0.0,
    conversation: Conversation | None = None,
    ledger: Ledger | None = None,
    model: str | None = None,
    heartbeat_s: float = 30.0,
    spill: OutputFiles | None = None,
    window: WindowSettings | None = None,
) -> World:
    log: list[str] = []
    read, write = SpyTool("Look", read_only=True, log=log), SpyTool("Change", read_only=False, log=log)
    write.changed = read.changed
    clock, journal, transport = ManualClock(), MemoryLog(), ScriptedTransport(replies)
    broker, permissions = ScriptedBroker(answers, can_ask), OpenPermissions(decisions)
    history = conversation or Conversation()
    queue: list[Prompt] = []

    def take_queued(agent_id: str) -> list[Prompt]:
        taken = list(queue)
        queue.clear()
        return taken

    nothing = cast(Any, None)
    context = ToolContext(
        nothing, "/srv/app", [], FileState(), cast(Any, NoShells()), spill or nothing, AgentTodos(),
        sandbox().cages, nothing, TaskRegistry(), nothing, nothing, nothing,
    )  # fmt: skip
    config = AgentConfig(
        prompts=FixedPrompts("You are a test.", {"type": "text", "text": "CLAUDE.md says hi"}),
        tools=Toolset([read, write]),
        permissions=permissions,
        context=context,
        options=SessionOptions(model=model, max_turns=max_turns, partial_messages=partial),
        take_queued=take_queued,
        settings=settings_of(window or WindowSettings()),
    )
    deps = AgentDeps(
        log=journal,
        transport=transport,
        broker=broker,
        version="9.9.9",
        hooks=no_hooks(journal, permissions),
        nested=NestedInstructions("/srv/app", "/home/ann", ()),
        link_up_since=link_up_since,
        heartbeat_s=heartbeat_s,
        limits=RetrySettings(max_retries=max_retries),
        clock=clock,
    )
    agent = Agent(config, deps, history, ledger or Ledger())

    def compact(call: CommandCall) -> Awaitable[str]:
        return agent.running_turn.compact(CompactStartRecord("manual", call.arguments))

    deps.commands.register(SlashCommand("compact", "", compact, local=True))
    return World(agent, transport, journal, clock, broker, permissions, read, write, log, history, queue)


# The bytes of the API.


def sse(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def opening(message_id: str = "msg_1", tokens: int = 100) -> bytes:
    cached = {"cache_read_input_tokens": 10, "cache_creation_input_tokens": 5}
    usage = {"input_tokens": tokens, "output_tokens": 1, **cached}
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    return sse({"type": "message_start", "message": {**message, "content": [], "usage": usage}})


def _start(index: int, block: Json) -> bytes:
    return sse({"type": "content_block_start", "index": index, "content_block": block})


def _delta(index: int, kind: str, **delta: str) -> bytes:
    return sse({"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **delta}})


def text_block(index: int, text: str) -> bytes:
    return text_start(index) + text_delta(index, text) + block_stop(index)


def text_start(index: int) -> bytes:
    return _start(index, {"type": "text", "text": ""})


def text_delta(index: int, text: str) -> bytes:
    return _delta(index, "text", text=text)


def block_stop(index: int) -> bytes:
    return sse({"type": "content_block_stop", "index": index})


def thinking_block(index: int, text: str, signature: str = "sig") -> bytes:
    begun = _start(index, {"type": "thinking", "thinking": "", "signature": ""})
    deltas = _delta(index, "thinking", thinking=text) + _delta(index, "signature", signature=signature)
    return begun + deltas + block_stop(index)


def tool_start(index: int, tool_use_id: str, name: str) -> bytes:
    return _start(index, {"type": "tool_use", "id": tool_use_id, "name": name, "input": {}})


def json_delta(index: int, piece: str) -> bytes:
    return _delta(index, "input_json", partial_json=piece)


def tool_block(index: int, tool_use_id: str, name: str, tool_input: Json | str) -> bytes:
    text = tool_input if isinstance(tool_input, str) else json.dumps(tool_input)
    half = len(text) // 2
    pieces = json_delta(index, text[:half]) + json_delta(index, text[half:])
    return tool_start(index, tool_use_id, name) + pieces + block_stop(index)


def closing(stop_reason: str = "end_turn", output_tokens: int = 20) -> bytes:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": output_tokens}}
    return sse(end) + sse({"type": "message_stop"})


def says(text: str, message_id: str = "msg_1", stop_reason: str = "end_turn") -> Reply:
    return Reply([opening(message_id), text_block(0, text), closing(stop_reason)])


def calls(*tools: tuple[str, str, Json | str], message_id: str = "msg_1") -> Reply:
    blocks = [tool_block(i, *tool) for i, tool in enumerate(tools)]
    return Reply([opening(message_id), *blocks, closing("tool_use")])


def error_reply(status: int, kind: str = "api_error", message: str = "no", **headers: str) -> Reply:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([body], status, {"content-type": "application/json", **named})


def error_event(kind: str, message: str = "busy") -> bytes:
    return sse({"type": "error", "error": {"type": kind, "message": message}})


def assert_valid(history: Sequence[Json]) -> None:
    """The rules of the Messages API: roles alternate, every tool_use has its one result right after it."""
    assert all(message["content"] for message in history)
    for i, message in enumerate(history):
        assert message["role"] == ("user" if i % 2 == 0 else "assistant")
        uses = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        before = history[i - 1]["content"] if i else []
        expected = [b["id"] for b in before if b["type"] == "tool_use"] if message["role"] == "user" else []
        assert sorted(results) == sorted(expected)
        assert len(set(uses)) == len(uses)
        if uses:
            assert i + 1 < len(history), "a tool_use without an answer"
        kinds = [b["type"] == "tool_result" for b in message["content"]]
        assert kinds == sorted(kinds, reverse=True), "tool results come first"
        if message["role"] == "assistant":
            assert message["content"][-1]["type"] != "thinking"
