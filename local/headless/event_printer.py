"""Print the events of a session until it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ccb.tunnel.errors import CcbError
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, HOOK_CALLBACK, RequestKind
from ccb.tunnel.wire.mcp_messages import ELICITATION, MCP_MESSAGE

from ..api.session import Session
from ..api.session_reader import Found, Line, Taken
from ..session.session_client import EventGap, Json, LaptopNotice, LinkChange, LinkState
from . import output_formats as formats
from .output_formats import report
from .own_answers import ClientQuestions, OwnAnswers
from .turn_results import GOODBYE_S, TurnResults

log = logging.getLogger(__name__)

_NO_RESULT = "This prompt was sent to the session before. Its turn has ended without a result."

ANSWERED_ON_STDIN: tuple[RequestKind[Any, Any], ...] = (CAN_USE_TOOL, HOOK_CALLBACK, MCP_MESSAGE)
"""The requests of the worker that the client of this run answers."""

_TO_PERSON = frozenset((CAN_USE_TOOL.name, ELICITATION.name))
_ANSWERED_ON_STDIN = frozenset(kind.name for kind in ANSWERED_ON_STDIN) | _TO_PERSON


@dataclass(eq=False)
class EventPrinter:
    """Prints the events of one session. `own` answers what this machine answers itself, `mirror` copies the transcript
    to the output. `hides` are the ids of requests to which the client does not get the answers of the session; it is
    None in a run with one prompt, which ends with its result."""

    session: Session
    results: TurnResults
    own: OwnAnswers
    mirror: formats.TranscriptMirror | None
    hides: Set[str] | None
    _earlier_damage: asyncio.Task[None] | None = None
    _looking: set[asyncio.Task[None]] = field(default_factory=set)  # for answers that the session gave before this run
    _connected: asyncio.Event = field(default_factory=asyncio.Event)  # again

    def __post_init__(self) -> None:
        remote = self.session.remote
        self.questions = ClientQuestions(remote, self.results.reports)
        for kind in ANSWERED_ON_STDIN:
            remote.register(kind)
        if self.hides is not None:  # nobody fills in forms in a run with one prompt
            remote.register(ELICITATION)

    async def print_all(self) -> None:
        """Print what happens until the session ends. Raises ConnectionLost, also for a prompt without a result."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as watchdog:
                async for found in self.session.found():
                    watchdog.reschedule(None)
                    await self._print(found)
                    self.results.news.set()
                    pending = self.results.pending
                    done = self.questions.ended and self.results.complete and not pending.more_to_come
                    watchdog.reschedule(loop.time() + GOODBYE_S if done else None)
        except TimeoutError:
            log.warning("the host did not end the session within %g s after the last result", GOODBYE_S)
            await self.session.remote.stop()

    async def _print(self, found: Found) -> None:
        match found:
            case Line(kept=False, public=messages.StreamEventMessage(body=body)):
                await self.results.output.progress(body)
            case Line():
                await self._message(found)
            case Taken(inputs=inputs):
                await self._taken(inputs)
            case records.TurnStartRecord():
                await self.results.reports.turn_began()
            case records.TurnEndRecord():
                await self.results.reports.turn_ended(more=bool(self.results.pending))
            case LinkChange():
                self._link_changed(found)
            case EventGap(seq=seq) if self._earlier_damage is None:
                # Another task waits for the page of events with the damage: this loop must go on reading.
                looking = formats.report_earlier_damage(self.session.remote, seq + 1)
                self._earlier_damage = asyncio.create_task(looking, name="earlier damage")
            case LaptopNotice(text=text):
                report(text)
            case records.DamagedRecord():
                formats.report_damage(found)

    async def sent(self, input_id: str, message: messages.UserMessage) -> None:
        """Note a prompt of the client. One whose id the client has chosen may have been answered before."""
        self.results.pending.sent(input_id)
        if self.mirror is not None:
            self.mirror.sent(input_id, message.body)
        await self.results.reports.queued(input_id, message.uuid)
        if message.uuid and self.session.remote.hello.seq > 0:
            self._looking.add(asyncio.create_task(self._look_for(input_id), name=f"answer to {input_id}"))

    async def _taken(self, input_ids: Sequence[str]) -> None:
        await self.results.reports.taken(input_ids)
        if self.mirror is not None:
            for input_id in input_ids:
                await self.mirror.taken(input_id)

    async def stop_session(self) -> None:
        await asyncio.gather(*self._looking)
        if self._earlier_damage is not None:
            await asyncio.wait({self._earlier_damage}, timeout=GOODBYE_S)
        await self.session.remote.stop(finish=True)

    async def stop_early(self) -> None:
        """Ask for the end of the session together with the prompt, so that it costs no round trip after the result.

        If the connection is lost before the result has come, the result is in the journal. A session in memory would be
        gone: it is stopped when the result is here.
        """
        if self.session.remote.hello.storage == "disk":
            await self.session.remote.stop(finish=True)

    async def close(self) -> None:
        await cancelled(*self._looking, self._earlier_damage)

    async def _look_for(self, input_id: str) -> None:
        begun = time.monotonic()
        result, why = None, ""
        while True:
            self._connected.clear()
            try:
                skipped = await self.session.remote.had_before(input_id)
                if skipped is not None:
                    result, why = await self._fate(input_id, skipped)
                break
            except CcbError:
                await self._connected.wait()
        if result is None and why:
            session, took = self.session.remote.hello.session, round((time.monotonic() - begun) * 1000)
            result = formats.local_result(session, [why], reason="answered_before", duration_ms=took)
        if result is not None:
            await self.results.answered_before(input_id, result)

    async def _fate(self, input_id: str, skipped: int) -> tuple[Json | None, str]:
        """Search the journal backwards for the result of a prompt, or why it has none; "" while it waits or runs."""
        result: Json | None = None
        turn_ended, before = False, skipped + 1
        while page := await self.session.remote.earlier(before):
            before = page[0].seq
            for event in reversed(page):
                match event.record.content:
                    case _ if event.record.agent_id:
                        pass
                    case records.TurnEndRecord():
                        turn_ended, result = True, None
                    case records.MessageRecord(public=messages.ResultMessage()) as message:
                        turn_ended, result = True, message.body
                    case records.PromptRecord(input_ids=ids) if input_id in ids:
                        return result, _NO_RESULT if turn_ended else ""
                    case records.TakenRecord(input_id=taken) if taken == input_id:
                        return result, _NO_RESULT if turn_ended else ""
                    case records.UnqueuedRecord(id=unqueued) if unqueued == input_id:
                        return None, "This prompt was sent to the session before, and taken back."
                    case records.InputRecord(id=sent) if sent == input_id:
                        return None, ""
        return None, "This prompt was sent to the session before. Its result is not in the journal."

    def _link_changed(self, change: LinkChange) -> None:
        log.info("link %s: %s", change.state.value, change.reason)
        match change.state:
            case LinkState.RECONNECTING if change.attempt == 1 and change.retry_at is not None:
                report(f"{change.reason}; reconnecting")
            case LinkState.CONNECTED:
                report("connected again")
                self._connected.set()
            case _:
                pass

    async def _result(self, body: Json, *, ours: bool) -> None:
        self.results.denied_unasked |= self.session.reader.denied_unasked
        await self.results.from_host(body, ours=ours)
        if self.hides is None and not self.results.pending:
            tasks = len(self.results.pending.tasks)
            if tasks:
                report(f"waiting for {tasks} background {'task' if tasks == 1 else 'tasks'}")
            await self.stop_session()

    async def _message(self, line: Line) -> None:
        public = line.public
        if isinstance(public, messages.ControlResponse) and (self.hides is None or public.request_id in self.hides):
            return  # without messages on stdin, it answers another client
        body = self.own.heard(public, public.body)
        if isinstance(public, messages.ResultMessage):
            await self._result(body, ours=line.ours)
            return
        if isinstance(public, messages.SystemMessage):
            self.results.retries.system(public)
        elif isinstance(public, messages.AssistantMessage):
            self.results.retries.assistant(public)
            if self._is_hidden(public):
                return
        is_question = isinstance(public, messages.ControlRequest | messages.ControlCancel)
        if not (line.kept or is_question):
            await self.results.output.progress(body)
            return
        await self.results.output.message(body)
        if self.mirror is not None:
            await self.mirror.message(public, body)
        if isinstance(public, messages.ControlRequest) and public.subtype in _ANSWERED_ON_STDIN:
            await self.questions.opened(public.request_id, to_person=public.subtype in _TO_PERSON)
        elif isinstance(public, messages.ControlCancel):
            await self.questions.closed(public.request_id)
        elif isinstance(public, messages.TaskMessage):
            await self.results.reports.background(self.results.pending.tasks.values())

    def _is_hidden(self, message: messages.AssistantMessage) -> bool:
        """Whether a message is only words of a sub-agent, which a client must ask for."""
        of_agent = self.hides is not None and message.body.get("parent_tool_use_id")
        only_words = all(block.get("type") != "tool_use" for block in message.blocks)
        return bool(of_agent) and only_words and not self.own.forwards_text
