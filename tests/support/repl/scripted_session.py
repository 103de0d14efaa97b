"""A session in memory that says what a script makes it say: what the REPL's tests, its benchmark and its demo stand on.

`python -m tests.support.repl.scripted_session` opens the REPL on one that plays a small piece of work for every prompt.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.model.model_script import Json

from ccb.local.connect.project_trust import ASK_READER
from ccb.local.session.session_client import (
    AS_PROMPT,
    EventGap,
    FoundNames,
    Item,
    LinkChange,
    LinkState,
    OutputPiece,
    PromptDelivery,
    ReplayEnd,
    SessionEvent,
    parse_output,
)
from ccb.remote.tools.output import Output, OutputFiles
from ccb.tunnel.errors import CcbError, ConnectionLost, UsageError
from ccb.tunnel.link.link import Greeting, limited_hello
from ccb.tunnel.wire.client_requests import LIST_COMMANDS, MOVE_ASYNC_MESSAGE, SET_SANDBOX, SHELL_COMMAND
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    TRUST_PROJECT,
    A,
    P,
    ProjectTrust,
    Request,
    RequestFailed,
    RequestKind,
    Success,
)
from ccb.tunnel.wire.frames import Hello
from ccb.tunnel.wire.mcp_messages import ELICITATION

Play = Callable[["ScriptedSession", str], Coroutine[Any, Any, None]]

MODEL = "claude-sonnet-4-5"


def hello(*, notes: list[str] | None = None, cwd: str = "/srv/shop", storage: str = "disk") -> Greeting:
    """The hello of a session that waits for its first prompt."""
    said = Hello(
        1, "b" * 64, "5e55", 4242, "3.11.2", "Linux x86_64", cwd, 1, 0, "idle", storage=storage, notes=notes or [],
        capabilities=[SHELL_COMMAND, MOVE_ASYNC_MESSAGE.name, SET_SANDBOX.name, "steer"],
    )  # fmt: skip
    return limited_hello(said, "devbox")


@dataclass
class ScriptedTask:
    """What a command in the background has put out, and its public status."""

    text: str = ""
    status: str = "running"
    seconds: float = 65.0
    directory: str = ""  # for the file that has all of it

    def piece(self, after: int, most: int, before: int | None) -> Json:
        output = Output(OutputFiles(self.directory), "task")
        output.add(self.text.encode())
        return {"status": self.status, "seconds": self.seconds, **output.piece(after, most, before)}


class ScriptedSession:
    """A `SessionClient` that keeps what it was told (`prompts` and their `identities`, `controls`, `answers`,
    `interrupts`, `retries`, `take_backs`, `stops`) and says what it is made to say. What is sent without a connection
    (with `swallow`, whatever is sent) waits for `deliver`. With `play`, every prompt starts it; an interrupt or the end
    of the session cancels it. `past` is what `earlier` gives, `page` events at a time."""

    def __init__(self, *, greeting: Greeting | None = None, play: Play | None = None, driving: bool = True) -> None:
        self.hello = greeting or hello()
        self._play = play
        self.state = LinkState.CONNECTED
        self.driving = driving
        self._replaying = False
        self._outbox: list[Json] = []
        self._events: asyncio.Queue[Item | CcbError | None] = asyncio.Queue()
        self._waiting: deque[str] = deque()
        self._player: asyncio.Task[None] | None = None
        self._turn: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._seq = 0
        self._calls = 0
        self._taken = 0
        self.prompts: list[str] = []
        self.placed: list[tuple[str, tuple[str, ...]]] = []  # the prompts that go before others, with those
        self.steering: list[str] = []  # the prompts that do not wait for the end of the turn
        self.contents: list[str | list[Json]] = []  # of the prompts
        self.identities: list[str] = []
        self.controls: list[tuple[str, Json]] = []
        self.answers: dict[str, Json] = {}
        self.interrupts = 0
        self.refuse_controls = ""
        self.control_answers: dict[str, Json] = {}  # by the kind of request
        self.answers_come = asyncio.Event()  # unset: the link is slow, and requests wait for their answers
        self.answers_come.set()
        self.prompt_failure: CcbError | None = None
        self.retries = 0
        self.take_backs = 0
        self.stops = 0
        self.past: list[SessionEvent] = []
        self.page = 10
        self.swallow = False
        self.fetched: list[int] = []
        self.looked_up: list[str] = []
        self.outputs: dict[str, ScriptedTask] = {}  # by the id of the task
        self.outputs_read: list[tuple[str, int]] = []
        self.find_names: Callable[[str], Awaitable[FoundNames | None]] = _finds_nothing
        self.unanswered_s = 0.0
        self.command_lines: list[str] = []  # those of the prompts
        self.round_trip_s: float | None = None
        self.request_bytes = (0, 0)

    @property
    def unsent(self) -> int:
        return len(self._outbox)

    def retry(self) -> None:
        self.retries += 1

    def take_back(self) -> None:
        self.take_backs += 1

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[SessionEvent]:
        self.fetched.append(before)
        if self.state not in (LinkState.CONNECTED, LinkState.FENCED):
            raise ConnectionLost("there is no connection")
        return [each for each in self.past if each.seq < before][-self.page :]

    async def output(self, task_id: str, after: int, most: int, before: int | None = None) -> OutputPiece | None:
        self.outputs_read.append((task_id, after))
        if self.state not in (LinkState.CONNECTED, LinkState.FENCED):
            raise ConnectionLost("there is no connection")
        await self.answers_come.wait()
        return parse_output(self.outputs[task_id].piece(after, most, before)) if task_id in self.outputs else None

    async def names(self, query: str) -> FoundNames | None:
        self.looked_up.append(query)
        if self.state is not LinkState.CONNECTED:
            raise ConnectionLost("there is no connection")
        return await self.find_names(query)

    async def events(self) -> AsyncIterator[Item]:
        while True:
            item = await self._events.get()
            if item is None:
                return
            if isinstance(item, CcbError):
                raise item
            yield item

    async def prompt(
        self, content: str | list[Json], *, uuid: str | None = None, how: PromptDelivery = AS_PROMPT
    ) -> str:
        if self.prompt_failure is not None:
            raise self.prompt_failure
        if not self.driving:
            raise UsageError("another client drives this session")
        text = content if isinstance(content, str) else str(content)
        identity = uuid or _id()
        self.prompts.append(text)
        self.contents.append(content)
        if how.command_line:
            self.command_lines.append(text)
        self.identities.append(identity)
        if how.before:
            self.placed.append((text, how.before))
        if not how.waits:
            self.steering.append(text)
        body = {"type": "user", "message": {"role": "user", "content": content}, "uuid": identity, **how.fields}
        body.pop(SHELL_COMMAND, None)
        self._apply(body)
        if self._play is not None:
            self._waiting.append(text)
            if self._player is None:
                self._player = asyncio.create_task(self._play_all(self._play), name="play")
        return identity

    def _apply(self, body: Json) -> None:
        """An input reaches the worker, now or with the next connection."""
        if self.state is LinkState.CONNECTED and not self.swallow:
            self.input(body)
        else:
            self._outbox.append(body)

    async def _play_all(self, play: Play) -> None:
        while self._waiting:
            self._turn = asyncio.create_task(play(self, self._waiting.popleft()), name="turn")
            await asyncio.wait([self._turn])
            if self._turn.cancelled():
                self.finish(is_error=True, terminal_reason="aborted_tools", subtype="error_during_execution")
            else:
                self._turn.result()
        self._player = None

    async def send(self, body: Json) -> str:
        raise NotImplementedError("the REPL sends nothing raw")

    async def request(self, request: Request[P, A]) -> A:
        if request.kind is LIST_COMMANDS:  # the REPL asks by itself
            return request.kind.read_answer(Success(request.id, self.control_answers.get(request.kind.name, {})))
        self.controls.append((request.kind.name, request.kind.write(request.payload)))
        if self.refuse_controls:
            raise RequestFailed(self.refuse_controls)
        await self.answers_come.wait()
        return request.kind.read_answer(Success(request.id, self.control_answers.get(request.kind.name, {})))

    def register(self, kind: RequestKind[P, A], service: Callable[[P], Awaitable[Json]] | None = None) -> None:
        assert kind in (CAN_USE_TOOL, ELICITATION, TRUST_PROJECT) and service is None, "the REPL answers nothing else"

    async def interrupt(self) -> None:
        if not self.driving:
            raise UsageError("another client drives this session")
        self.interrupts += 1
        for request_id in self._asked:
            self.withdraw_question(request_id)
        self._asked.clear()
        if self._turn is not None:
            self._turn.cancel()

    async def answer(self, request_id: str, response: Json) -> None:
        self.answers[request_id] = response
        self._apply({"type": "control_response", "response": {"request_id": request_id, "response": response}})
        waiting = self._asked.pop(request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    async def stop(self, *, finish: bool = False) -> None:
        self.stops += 1
        if self.state is LinkState.CONNECTED:
            await self.close()

    async def close(self, *, done: bool = False) -> None:
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()
        if self._player is not None:
            await asyncio.gather(self._player, return_exceptions=True)
        self._events.put_nowait(None)

    # What the session says.

    def say(self, body: Json) -> None:
        """A message of the journal."""
        self._seq += 1
        self._events.put_nowait(SessionEvent("message", body, self._seq, self._replaying))

    def progress(self, body: Json) -> None:
        """Something replaceable: a delta, or the output of a running tool."""
        self._events.put_nowait(SessionEvent("progress", body, self._seq))

    def fact(self, kind: str, **body: Any) -> None:
        self._seq += 1
        self._events.put_nowait(SessionEvent(kind, body, self._seq, self._replaying))

    def input(self, body: Json) -> None:
        """The journal's record of an input, of this client or another one."""
        response = body.get("response", {})
        identity = body.get("uuid") or f"answer:{response.get('request_id')}"
        self.fact("input", id=identity, body=body)

    def prompted(self, text: str, identity: str = "") -> str:
        """Another client (or an earlier terminal) sends a prompt; its uuid."""
        identity = identity or _id()
        self.identities.append(identity)
        message = {"role": "user", "content": text}
        self.input({"type": "user", "message": message, "uuid": identity, "priority": "later"})
        return identity

    def answered(self, request_id: str, behavior: str = "allow") -> None:
        self._asked.pop(request_id, None)
        answer = {"subtype": "success", "request_id": request_id, "response": {"behavior": behavior}}
        self.input({"type": "control_response", "response": answer})

    def link(self, state: LinkState, reason: str = "", attempt: int = 0, retry_at: float | None = None) -> None:
        """The connection changes; with FENCED somebody else drives, with CONNECTED this client does."""
        self.state = state
        if state in (LinkState.CONNECTED, LinkState.FENCED):
            self.driving = state is LinkState.CONNECTED
        self._events.put_nowait(LinkChange(state, reason, attempt, retry_at))

    def deliver(self) -> None:
        """What waited for a connection reaches the worker."""
        waiting, self._outbox = self._outbox, []
        for body in waiting:
            self.input(body)

    @contextmanager
    def replay(self) -> Iterator[None]:
        """What is said inside had happened before this client attached."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False
            self._events.put_nowait(ReplayEnd())

    def skip(self, count: int, **body: Any) -> int:
        """So many events are not replayed; `body` is what is said of them. The number of the last one."""
        self._seq += count
        nothing: Json = {"model": MODEL, "permission_mode": "default", "result": None, "todos": None, "asks": []}
        self._put_gap({**nothing, **body})
        return self._seq

    def _put_gap(self, body: Json) -> None:
        self._events.put_nowait(EventGap(self._seq, body))
        if not self._replaying:
            self._events.put_nowait(ReplayEnd())

    def lose(self, count: int) -> None:
        """The host has lost so many events that were said, and goes on as if they had not been."""
        self._seq -= count
        self._put_gap({})

    def fail(self, error: CcbError) -> None:
        """The session is lost for good, which is also said to whoever sends something then."""
        self.prompt_failure = error
        self.state, self.driving = LinkState.LOST, False
        self._events.put_nowait(error)

    def begin(self, *, model: str = MODEL, mode: str = "default") -> None:
        """The start of a turn, with everything the worker says at one."""
        self.fact("turn_start")
        self.fact(
            "prompt", context=[], items=[{"input": each} for each in self.identities[self._taken : self._taken + 1]]
        )
        self._taken += 1
        init = {"type": "system", "subtype": "init", "session_id": "5e55", "cwd": self.hello.cwd.raw}
        self.say({**init, "model": model, "permissionMode": mode, "tools": ["Bash", "Edit"]})

    def take(self, identity: str) -> None:
        """The agent takes a queued prompt into the running turn."""
        self._taken += 1
        self.fact("prompt", context=[], items=[{"input": identity}])

    def event(self, **event: Any) -> None:
        self.progress({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def open_block(self, kind: str, index: int = 0, message_id: str = "msg_1", **fields: Any) -> None:
        """The stream starts a block; block 0 starts the message."""
        if index == 0:
            self.event(type="message_start", message={"id": message_id, "role": "assistant", "content": []})
        self.event(type="content_block_start", index=index, content_block={"type": kind, **fields})

    def streams(self, text: str, index: int = 0, message_id: str = "msg_1", kind: str = "text") -> None:
        """The stream starts a block with some text."""
        self.open_block(kind, index, message_id)
        self.delta(text, index, kind)

    def delta(self, text: str, index: int = 0, kind: str = "text") -> None:
        self.event(type="content_block_delta", index=index, delta={"type": f"{kind}_delta", kind: text})

    def assistant(self, *content: Json, message_id: str = "msg_1", **fields: Any) -> None:
        """Finished blocks, a line each, as the worker says them."""
        for block in content:
            message = {"id": message_id, "role": "assistant", "model": MODEL, "content": [block], "usage": {}}
            self.say({"type": "assistant", "message": message, "uuid": _id(), "parent_tool_use_id": None, **fields})

    def text(self, text: str, message_id: str = "msg_1", **fields: Any) -> None:
        self.assistant({"type": "text", "text": text}, message_id=message_id, **fields)

    def call(self, name: str, message_id: str = "msg_1", tool_id: str | None = None, **tool_input: Any) -> str:
        """A finished tool call; its id."""
        self._calls += 1
        call_id = tool_id or f"toolu_{self._calls}"
        self.assistant({"type": "tool_use", "id": call_id, "name": name, "input": tool_input}, message_id=message_id)
        return call_id

    def run(self, call_id: str, output: str = "", elapsed_s: float = 0, name: str = "Bash") -> None:
        """The tool runs, and has printed `output` so far."""
        self.fact("tool_start", tool_use_id=call_id)
        if output or elapsed_s:
            body = {"type": "tool_progress", "tool_use_id": call_id, "tool_name": name}
            self.progress({**body, "elapsed_time_seconds": elapsed_s, "output": output, "total_bytes": len(output)})

    def done(self, call_id: str, text: str | list[Json], *, is_error: bool = False, structured: Any = None) -> None:
        result = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}
        message = {"role": "user", "content": [result]}
        self.say({"type": "user", "message": message, "uuid": _id(), "tool_use_result": structured})

    def ask(self, request_id: str, tool_name: str, tool_input: Json, **fields: Any) -> asyncio.Future[Json]:
        """Ask for an approval; the answer of the person."""
        self._asked[request_id] = asyncio.get_running_loop().create_future()
        self.say(question(request_id, tool_name, tool_input, **fields))
        return self._asked[request_id]

    def ask_trust(self, about: ProjectTrust, request_id: str = "trust") -> asyncio.Future[Json]:
        """Ask, as this laptop does, whether a project may count; the answer of the person."""
        return self.ask_here(Request(ASK_READER, about, id=request_id))

    def ask_here(self, request: Request[Any, Any]) -> asyncio.Future[Json]:
        """Ask something, as this laptop does; the answer of the person."""
        self._asked[request.id] = asyncio.get_running_loop().create_future()
        self.progress(request.public())
        return self._asked[request.id]

    def withdraw_question(self, request_id: str) -> None:
        self.say({"type": "control_cancel_request", "request_id": request_id})

    def finish(
        self, *, input_tokens: int = 1200, output_tokens: int = 345, cost: float = 0.0123, **fields: Any
    ) -> None:
        usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        result = {"type": "result", "subtype": "success", "is_error": False, "usage": usage, "total_cost_usd": cost}
        self.say({**result, "session_id": "5e55", **fields})
        self.fact("turn_end")


def question(request_id: str, tool_name: str, tool_input: Json, **fields: Any) -> Json:
    request = {"subtype": "can_use_tool", "tool_name": tool_name, "input": tool_input, "tool_use_id": "t", **fields}
    return {"type": "control_request", "request_id": request_id, "request": request}


def session_rule(tool: str, content: str) -> Json:
    rules = [{"toolName": tool, "ruleContent": content}]
    return {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "localSettings"}


async def _finds_nothing(query: str) -> FoundNames | None:
    return FoundNames((), more=False, settled=True, cut=False)


def _id() -> str:
    return str(uuid.uuid4())


def main() -> int:
    from tests.support.repl.attached_repl import run_on
    from tests.support.repl.scripted_work import work

    from ccb import __version__
    from ccb.local.slash_commands.session_api import ReplInfo

    async def run() -> int:
        session = ScriptedSession(play=work)
        info = ReplInfo("devbox", "/srv/shop", MODEL, "default", __version__, first_prompt=" ".join(sys.argv[1:]))
        try:
            return await run_on(session, info)
        finally:
            await session.close()

    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
