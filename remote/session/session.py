"""One session: its input queue, its turns, its questions, and the journal all of it goes through."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Callable

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.messages import ResultLine
from ccb.tunnel.wire.projection import Projection, replay
from ccb.tunnel.wire.records import (
    MAIN_AGENT,
    Content,
    DamagedRecord,
    InputRecord,
    MessageRecord,
    OptionsRecord,
    PromptRecord,
    Record,
    TurnEndRecord,
    TurnStartRecord,
)
from ccb.tunnel.wire.requests import AnsweredBy, parse_answer, public_withdrawal

from ..agent.agent import Agent
from ..agent.deps import Prompt
from ..agent.usage import SessionUsage, zero_usage
from ..journal.journal import Journal, JournalError
from ..journal.summary import JournalSummary
from ..ports import PromptSource
from ..sessions.refusal import Refusal
from .broker import RequestBroker, Watchers
from .controls import Controls
from .inputs import Inputs
from .partial import Partial
from .recovery import Recovered, UnfinishedPrompts
from .snapshot import SnapshotProjection

Json = dict[str, Any]

log = logging.getLogger(__name__)

_MOST_TOLD = 20
_MOST_LAUNCHES = 32
_MOST_NAME = 100
_OF_THE_SESSION = ("model", "permission_mode", "system_prompt", "append_system_prompt", "add_dirs")
_CUT_OFF = "The worker was stopped in the middle of this turn. What its tools had done until then stays done."

_DOUBTFUL = (
    "This prompt may have been answered or not: the session's journal on the host is damaged. It was not run again."
)


class Session:
    """The journal of the agents, and owner of the turns. `assemble(session, options)` builds the agent."""

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
        self.summary = JournalSummary()
        self.usage = SessionUsage()
        self.partial = Partial()
        self._launches: OrderedDict[str, Json] = OrderedDict()  # what client processes brought, by their names
        self._snapshot = SnapshotProjection()
        self._derived: tuple[Projection, ...] = (self.summary, self.usage, self.partial, self._snapshot)
        self._watchers = watchers
        self._assemble = assemble
        self.broker = RequestBroker(self, watchers, self._can_ask)
        self._controls = Controls(self, self.broker)
        self._inputs = Inputs()
        self._replays: dict[str, Json] = {}  # prompts that wait, to be shown again when their turn takes them
        self._result_due = False
        self._finish = False
        self._in_turn = False

    @property
    def has_input(self) -> bool:
        """Whether anybody ever prompted."""
        return self._inputs.any_prompt

    @property
    def state(self) -> str:
        """`idle`, `running` or `requires_action`."""
        if self.broker.waits_for(AnsweredBy.PERSON):
            return "requires_action"
        return "running" if self._in_turn or self._inputs else "idle"

    def use_modes(self, set_mode: Callable[[str], None], mode: Callable[[], str]) -> None:
        """Let clients change and read the permission mode."""
        self._controls.set_mode = set_mode
        self._controls.mode = mode

    def begin(self, options: SessionOptions, facts: Json) -> None:
        """Start a new session. Raises ValueError when the options make no sense on this host."""
        self.options = options
        self.agent = self._assemble(self, options)
        self.emit(OptionsRecord(options.to_json(), self.id, round(time.time(), 3), **facts))
        self._remember_launch(options)
        self.journal.flush_soon()

    def relaunched(self, given: Json) -> SessionOptions:
        """The options when a new client process drives and says `given`: what belongs to a process comes from it, what
        belongs to the session stays unless it is named. Raises FrameError, and Refusal when the process cannot be asked what
        is asked already: somebody may still answer that, and going on would mean to deny it."""
        sent, old = SessionOptions.from_json(given), self.options
        waits = self.broker.waits_for(AnsweredBy.PERSON)
        if waits and sent.permission_prompts != "stdio":
            about = ", ".join(each[:_MOST_NAME] for each in self.broker.subjects(AnsweredBy.PERSON))
            text = "this session waits for an answer about %s" % about
            raise Refusal("waits_for_answer", text, {"session": self.id})
        return replace(
            sent,
            model=sent.model or old.model,
            permission_mode=sent.permission_mode if "permission_mode" in given else self._controls.mode(),
            allow_bypass=sent.allow_bypass or old.allow_bypass,
            system_prompt=sent.system_prompt if "system_prompt" in given else old.system_prompt,
            append_system_prompt=sent.append_system_prompt
            if "append_system_prompt" in given
            else old.append_system_prompt,
            add_dirs=sent.add_dirs or old.add_dirs,
        )

    def relaunch(self, options: SessionOptions, given: Json, prompts: PromptSource | None) -> None:
        """Go on with `options`, which are journalled. Raises JournalError."""
        assert self.agent is not None
        self.emit(OptionsRecord(options.to_json()))
        self.options = options
        self._remember_launch(options)
        config = self.agent.config
        self.agent.configure(
            replace(
                config,
                model=options.model,
                max_turns=options.max_turns,
                partial_messages=options.partial_messages,
                api_key_source=options.api_key_source,
                prompts=prompts or config.prompts,
            )
        )
        if "model" in given:
            self.agent.set_model(options.model)
        self.journal.flush_soon()

    def _remember_launch(self, options: SessionOptions) -> None:
        self._launches.pop(options.client, None)
        self._launches[options.client] = options.to_json()
        while len(self._launches) > _MOST_LAUNCHES:
            self._launches.popitem(last=False)

    def launch_of(self, client: str) -> Json | None:
        """What the process of this name brought itself, when another one's command line is in force now: a client that takes
        back is to be asked, and to see answers grow, as before."""
        if client == self.options.client or client not in self._launches:
            return None
        return {name: value for name, value in self._launches[client].items() if name not in _OF_THE_SESSION}

    def resume(self) -> Recovered:
        """Go on from the journal, which has records: no tool runs again, what was open is closed. What the caller has to
        restore of it: permission updates, and an end to the processes that the worker before may have left."""
        recovered, prompts = Recovered(), UnfinishedPrompts(self._inputs)
        replay(self.journal.read(0, self.journal.seq), *self._derived, recovered, prompts)
        self.options = recovered.options
        for options in recovered.launches:
            self._remember_launch(options)
        doubtful = self._tell_damage(recovered, prompts)
        for request_id in recovered.open_asks:
            self._say(public_withdrawal(request_id))
        self.agent = self._assemble(self, self.options)
        if recovered.result_due:
            self._result_due = True
            self.fail(_CUT_OFF)
            prompts.answered()
        for _ in range(len(doubtful & prompts.unanswered.keys())):  # who sent it waits for one
            self._result_due = True
            self.fail(_DOUBTFUL)
        if recovered.turn_open:
            self.emit(TurnEndRecord())
        for input_id, line in prompts.waiting.items():
            self._put(input_id, line.body)
        self.journal.flush_soon()
        return recovered

    def _tell_damage(self, recovered: Recovered, prompts: UnfinishedPrompts) -> set[str]:
        """Report the damage that no worker has reported before. Return the ids of the doubtful prompts that are reported now."""
        told = [damage for damage in self.journal.damaged if damage not in recovered.damage]
        if len(told) > _MOST_TOLD:
            told[_MOST_TOLD:] = ["%d more damaged lines were passed over" % (len(told) - _MOST_TOLD)]
        doubtful = set()
        for input_id, text in prompts.doubtful.items():
            what = "a prompt may have been answered or not, and was not run again: %s" % text
            if what not in recovered.damage:
                told.append(what)
                doubtful.add(input_id)
        for what in told:
            self.emit(DamagedRecord(what))
        return doubtful

    def emit(self, content: Content, agent_id: str = MAIN_AGENT) -> Record:
        """Append a record of an agent to the journal, and let everything that is derived from the journal know it. A public
        message gets the session's id, and an id of its own when it has none. Raises JournalError."""
        if isinstance(content, MessageRecord):
            content = MessageRecord(self._whole(content.body))
        record = self.journal.append(content, agent_id)
        for projection in self._derived:
            projection.apply(record)
        if isinstance(content, MessageRecord):
            if isinstance(content.public, ResultLine) and agent_id == MAIN_AGENT:
                self._result_due = False
            self.journal.flush_soon()
        elif isinstance(content, PromptRecord):
            for input_id in content.input_ids:
                prompt = self._replays.pop(input_id, None)
                if prompt is not None:
                    self._say({**prompt, "isReplay": True})
        return record

    def _whole(self, body: Json) -> Json:
        return {**body, "session_id": self.id, "uuid": body.get("uuid") or str(uuid.uuid4())}

    def _say(self, body: Json) -> None:
        """Emit a public message of the session."""
        self.emit(MessageRecord(body))

    def progress(self, key: str, body: Json) -> None:
        """Show a public object that is not journalled; see `Emitter.progress`."""
        whole = self._whole(body)
        self.partial.take(key, whole)
        self._watchers.progress(key, whole)

    def snapshot(self, seq: int) -> Json:
        """What a client has to know of everything up to `seq`."""
        model = self.agent.model if self.agent is not None else ""
        return self._snapshot.body(seq, model=model, mode=self._controls.mode())

    async def commit(self) -> None:
        """Return when every record so far is durable. Raises JournalError."""
        await self.journal.commit()

    def _can_ask(self, answered_by: AnsweredBy) -> bool:
        """Whether somebody answers; the person does if the command line of the driver says so."""
        return answered_by is not AnsweredBy.PERSON or self.options.permission_prompts == "stdio"

    def take_input(self, input_id: str, body: Json) -> int:
        """Apply a client's input once; the seq after which it is in the journal. Raises JournalError, TooManyInputs."""
        if self._inputs.knows(input_id):
            return self.journal.seq
        kind = body.get("type")
        if kind == "user":
            self._inputs.check_room()
        repeated = self._inputs.knows_message(body)
        self.emit(InputRecord(input_id, body))
        self._inputs.remember(input_id, body)
        if kind == "user":
            if not repeated:
                self._put(input_id, body)
                self._watchers.changed()
            elif self.options.replay_user_messages:
                self._say({**body, "isReplay": True})
        elif kind == "control_request":
            self.broker.take_request(body)
        elif kind == "control_response":
            self.broker.take_answer(parse_answer(body))
        self.journal.flush_soon()
        return self.journal.seq

    def _put(self, input_id: str, body: Json) -> None:
        if self.options.replay_user_messages:
            self._replays[input_id] = body
        self._inputs.put(input_id, body)

    @property
    def queued_uuids(self) -> list[str]:
        """Message uuids of the prompts that wait."""
        return self._inputs.waiting_uuids

    def take_queued(self) -> Sequence[Prompt]:
        """Prompts that arrived during the turn, for the agent to fold into it; they leave the queue."""
        return self._inputs.take_all()

    def interrupt(self) -> None:
        """End the running turn, if there is one."""
        if self.agent is not None:
            self.agent.interrupt()

    def finish(self) -> None:
        """End the session once the queue is empty."""
        self._finish = True
        self._inputs.wake()

    def go_on(self) -> None:
        """Take back `finish`: somebody else still needs the session."""
        self._finish = False

    async def run(self) -> None:
        """Run turns until the session ends."""
        while True:
            while not self._inputs:
                if self._finish:
                    return
                await self._inputs.wait()
            await self._turn(self._inputs.pop())

    async def _turn(self, prompt: Prompt) -> None:
        assert self.agent is not None
        self._in_turn = self._result_due = True
        try:
            self.emit(TurnStartRecord())
            await self.agent.run_turn([prompt])
        except JournalError as error:
            log.error("the turn ended: %s", error)
            self.fail(str(error), full=error.full, unkept=error.result)
        except Exception as error:
            log.exception("the turn ended in a bug")
            self.fail(f"internal error in the worker: {type(error).__name__}: {error}")
        finally:
            self._in_turn = False
            self._watchers.changed()
        with contextlib.suppress(JournalError):
            self.emit(TurnEndRecord())
            self.journal.flush_soon()

    def fail(self, *reasons: str, full: bool = False, unkept: Json | None = None) -> None:
        """The result of a turn that could not write its own; shown even when it cannot be journalled. A turn that has its
        result gets no second one. `full`: for want of room on the host; `unkept` is the result it wanted to write."""
        if not self._result_due:
            log.error("after the result: %s", " ".join(reasons))
            return
        self._result_due = False
        result: Json = {
            "type": "result", "subtype": "error_during_execution", "is_error": True, "duration_ms": 0, "duration_api_ms": 0,
            "num_turns": 0, "stop_reason": None, **self.usage.spent, "usage": zero_usage(), "permission_denials": [],
            "terminal_reason": "storage_full" if full else "model_error", "errors": [*reasons], **(unkept or {}),
        }  # fmt: skip
        try:
            self._say(result)
        except JournalError:
            self.progress("", result)

    def refuse_input(self, body: Json, error: JournalError) -> bool:
        """An input could not be journalled. Whether it is settled: a prompt outside of a turn has failed, which is told; nothing
        else may get lost, and is to be tried again."""
        if self._in_turn or body.get("type") != "user":
            return False
        self._result_due = True
        told = "This prompt was not taken."
        if error.full and self.journal.path:
            host = "--local" if self.options.host == "local" else self.options.host or "HOST"
            told = "This prompt was not taken: make room (`ccb gc %s`), then send it again." % host
        self.fail(str(error), told, full=error.full)
        return True
