"""One session: its input queue, its turns, its questions, and the journal all of it goes through."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Callable, Protocol

from ccb.tunnel.wire import SessionOptions

from .agent.agent import Agent
from .agent.ports import Prompt
from .controls import Controls
from .journal import Journal, JournalError
from .ports import Answer

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MAX_SEEN = 20_000  # ids remembered to apply an input once


class Watchers(Protocol):
    """Those who are told what is not in the journal."""

    def progress(self, key: str, body: Json) -> None:
        """Show a public object that may be lost."""


class Session:
    """Emitter and Asker of the agent; owner of its turns. `assemble(session, options)` builds the agent."""

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        watchers: Watchers,
        assemble: Callable[[Session, SessionOptions], Agent],
    ) -> None:
        self.id = session_id
        self.journal = journal
        self.options = SessionOptions()
        self.agent: Agent | None = None
        self.ended = asyncio.Event()
        self._watchers = watchers
        self._assemble = assemble
        self._controls = Controls(self)
        self._queue: deque[tuple[Prompt, str]] = deque()  # prompt, uuid of its message
        self._queued = asyncio.Event()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._asks: OrderedDict[str, asyncio.Future[Json]] = OrderedDict()
        self._finish = False
        self._in_turn = False

    @property
    def has_input(self) -> bool:
        """Whether anybody ever asked something."""
        return bool(self._seen)

    @property
    def state(self) -> str:
        """`idle`, `running` or `requires_action`."""
        if self._asks:
            return "requires_action"
        return "running" if self._in_turn or self._queue else "idle"

    def use_modes(self, set_mode: Callable[[str], None], mode: Callable[[], str]) -> None:
        """Let clients change and read the permission mode."""
        self._controls.set_mode = set_mode
        self._controls.mode = mode

    def begin(self, options: SessionOptions, facts: Json) -> None:
        """Start a new session. Raises ValueError when the options make no sense on this host."""
        self.options = options
        self.agent = self._assemble(self, options)
        self.fact("options", {"options": options.to_json(), **facts})
        self.journal.flush_soon()

    def resume(self) -> None:
        """Go on from the journal, which has records."""
        prompts: dict[str, tuple[Prompt, str]] = {}
        for record in self.journal.read(0, self.journal.seq):
            if record.kind == "options" and isinstance(record.body.get("options"), dict):
                self.options = SessionOptions.from_json(record.body["options"])
            elif record.kind == "input":
                self._remember(str(record.body.get("id")), record.body.get("body"))
                body = record.body.get("body")
                if isinstance(body, dict) and body.get("type") == "user":
                    input_id = str(record.body["id"])
                    prompts[input_id] = (Prompt.from_input(input_id, body), str(body.get("uuid") or ""))
            elif record.kind == "prompt":
                for item in record.body.get("items", ()):
                    prompts.pop(str(item.get("input", "")), None)
        self.agent = self._assemble(self, self.options)
        for damage in self.journal.damaged:
            self.fact("damaged", {"what": damage})
        self._queue.extend(prompts.values())
        if self._queue:
            self._queued.set()

    def message(self, body: Json) -> None:
        """Emitter."""
        self.journal.append("message", {**body, "session_id": self.id, "uuid": body.get("uuid") or str(uuid.uuid4())})
        self.journal.flush_soon()

    def fact(self, kind: str, body: Json) -> None:
        """Emitter."""
        self.journal.append(kind, body)

    def progress(self, key: str, body: Json) -> None:
        """Emitter."""
        self._watchers.progress(key, {**body, "session_id": self.id, "uuid": body.get("uuid") or str(uuid.uuid4())})

    async def commit(self) -> None:
        """Emitter."""
        await self.journal.commit()

    @property
    def can_ask(self) -> bool:
        """Asker."""
        return self.options.permission_prompts == "stdio"

    async def ask(self, request: Json) -> Answer:
        """Asker. The question is in the journal, so whoever attaches later sees it, under the same id."""
        request_id = str(uuid.uuid4())
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asks[request_id] = answer
        try:
            self.message(
                {"type": "control_request", "request_id": request_id, "request": {"subtype": "can_use_tool", **request}}
            )
            await self.commit()
            return _answer(await answer)
        finally:
            if self._asks.pop(request_id, None) is not None and not answer.done():
                self.message({"type": "control_cancel_request", "request_id": request_id})

    def withdraw_asks(self) -> None:
        """Take back every open question; those who wait for the answers are cancelled."""
        asks, self._asks = self._asks, OrderedDict()
        for request_id, answer in asks.items():
            if not answer.done():
                self.message({"type": "control_cancel_request", "request_id": request_id})
                answer.cancel()

    def take_input(self, input_id: str, body: Json) -> int:
        """Apply a client's input once; the seq after which it is in the journal. Raises JournalError."""
        if input_id in self._seen:
            return self.journal.seq
        self.fact("input", {"id": input_id, "body": body})
        message_id = body.get("uuid")
        repeated = isinstance(message_id, str) and f"uuid:{message_id}" in self._seen
        self._remember(input_id, body)
        kind = body.get("type")
        if kind == "user":
            if not repeated:
                self._take_prompt(input_id, body)
        elif kind == "control_request":
            self._controls.take(body)
        elif kind == "control_response":
            self._take_response(body)
        self.journal.flush_soon()
        return self.journal.seq

    def _remember(self, input_id: str, body: object) -> None:
        self._seen[input_id] = None
        if isinstance(body, dict) and isinstance(body.get("uuid"), str):
            self._seen["uuid:" + body["uuid"]] = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)

    def _take_prompt(self, input_id: str, body: Json) -> None:
        if self.options.replay_user_messages:
            self.message({**body, "isReplay": True})
        self._queue.append((Prompt.from_input(input_id, body), str(body.get("uuid") or "")))
        self._queued.set()

    def _take_response(self, body: Json) -> None:
        response = body.get("response")
        request_id = response.get("request_id") if isinstance(response, dict) else None
        answer = self._asks.pop(str(request_id), None)
        if answer is None or answer.done():
            self.fact("late_answer", {"request_id": str(request_id)})
            return
        answer.set_result(response if isinstance(response, dict) else {})

    @property
    def queued_uuids(self) -> list[str]:
        """Message uuids of the prompts that wait."""
        return [message_id for _, message_id in self._queue if message_id]

    def take_queued(self) -> Sequence[Prompt]:
        """Prompts that arrived during the turn, for the agent to fold into it; they leave the queue."""
        prompts = [prompt for prompt, _ in self._queue]
        self._queue.clear()
        self._queued.clear()
        return prompts

    def interrupt(self) -> None:
        """End the running turn, if there is one."""
        if self.agent is not None:
            self.agent.interrupt()

    def finish(self) -> None:
        """End the session once the queue is empty."""
        self._finish = True
        self._queued.set()

    async def run(self) -> None:
        """Run turns until the session ends."""
        try:
            while True:
                while not self._queue:
                    if self._finish:
                        return
                    self._queued.clear()
                    await self._queued.wait()
                prompt, _ = self._queue.popleft()
                await self._turn(prompt)
        finally:
            self.ended.set()

    async def _turn(self, prompt: Prompt) -> None:
        assert self.agent is not None
        self._in_turn = True
        try:
            self.fact("turn_start", {})
            await self.agent.run_turn([prompt])
            self.fact("turn_end", {})
        except JournalError as error:
            log.error("the turn ended: %s", error)
            self.fail(str(error))
        except Exception as error:
            log.exception("the turn ended in a bug")
            self.fail(f"internal error in the worker: {type(error).__name__}: {error}")
        finally:
            self._in_turn = False
            self.journal.flush_soon()

    def fail(self, reason: str) -> None:
        """A result for a turn that could not write its own; shown even when it cannot be journalled."""
        result: Json = {
            "type": "result", "subtype": "error_during_execution", "is_error": True, "duration_ms": 0, "duration_api_ms": 0,
            "num_turns": 0, "stop_reason": None, "total_cost_usd": 0, "usage": {}, "modelUsage": {}, "permission_denials": [],
            "terminal_reason": "model_error", "errors": [reason],
        }  # fmt: skip
        try:
            self.message(result)
        except JournalError:
            self.progress("", result)


def _answer(response: Json) -> Answer:
    """The person's word in a control_response. Anything that is not a clear yes is a no."""
    if response.get("subtype") != "success":
        return Answer(False, "Tool permission request failed: Error: %s" % response.get("error", "no reason given"))
    word = response.get("response")
    if not isinstance(word, dict):
        return Answer(False, "Tool permission request failed: Error: the answer is empty")
    if word.get("behavior") == "allow":
        updated, updates = word.get("updatedInput"), word.get("updatedPermissions")
        return Answer(
            True,
            updated_input=updated if isinstance(updated, dict) else None,
            updates=[each for each in updates if isinstance(each, dict)] if isinstance(updates, list) else (),
        )
    return Answer(False, str(word.get("message") or "The user refused."), interrupt=word.get("interrupt") is True)
