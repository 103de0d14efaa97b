"""One session that the editor has open: its events as updates, its prompts until their turns end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from ccb.tunnel.errors import CcbError, CredentialError, NoSuchPath, NoSuchSession, UsageError
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, INTERRUPT, TRUST_PROJECT, Request, RequestFailed, new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, RpcError
from ccb.tunnel.wire.mcp_messages import ELICITATION

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import evidence_lines
from ..connect.connect_session import OpenSession, connect_session
from ..connect.host_connection import HostConnection
from ..headless.command_results import command_result
from ..session.session_client import (
    EventGap,
    LaptopNotice,
    LinkChange,
    LinkState,
    PortOffer,
    PromptDelivery,
    SessionEvent,
)
from ..session.turn_outcomes import PendingPrompts
from ..slash_commands.session_api import Place, SessionApi, info_of, laptop_of
from ..terminal.console import say
from ..transcript.questions import ReplayMonitor
from .acp_options import SessionOptionsDesk
from .acp_prompt import text_of, user_content
from .acp_questions import EditorQuestions
from .acp_updates import CONFIG_CHANGED, AcpUpdates, Editor, chunk

log = logging.getLogger(__name__)

AUTH_REQUIRED = -32000

_TICK_S = 0.05
_READ_OUT_S = 300.0  # for the rest of an answer, once the editor has ended
_CANCELLED: Json = {"stopReason": "cancelled"}
_STOP_REASONS = {"max_tokens": "max_tokens", "refusal": "refusal"}
_TAKEN_OVER = "{}. This editor only watches now; loading the session again takes it back."


def rpc_error(error: Exception) -> RpcError:
    """Return an error of ccb as the editor gets it: what happened, and what to do."""
    if not isinstance(error, CcbError):
        return RpcError(INTERNAL_ERROR, str(error))
    evidence = evidence_lines(error)
    what = f"{error.what} ({evidence[0]})" if len(evidence) == 1 else error.what
    message, data = f"{what}. {error.do}".rstrip(), {"ccb": error.exit_name, "evidence": "\n".join(evidence)}
    if isinstance(error, CredentialError):
        return RpcError(AUTH_REQUIRED, message, {**data, "authMethods": []})
    if isinstance(error, NoSuchSession):
        return RpcError(NOT_FOUND, message, data)
    wrong = isinstance(error, UsageError | NoSuchPath)
    return RpcError(INVALID_PARAMS if wrong else INTERNAL_ERROR, message, data)


class AcpSession:
    """The life of a session: `open` connects, `close` leaves it. In between its `conversation` does the work."""

    def __init__(self, host: HostConnection, arguments: Arguments, editor: Editor) -> None:
        self._host = host
        self._arguments = arguments
        self._editor = editor
        self._conversation: EditorConversation | None = None
        self._leave = asyncio.Event()
        self._reads_out = False
        self._task: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()

    @property
    def conversation(self) -> EditorConversation:
        assert self._conversation is not None, "open the session first"
        return self._conversation

    @property
    def is_over(self) -> bool:
        return self._task is None or self._task.done()

    async def open(self, tail: int) -> str:
        """Connect, and return the ID of the session once what it was asked for of its past has been sent. Raise
        CcbError, RpcError."""
        self._task = asyncio.create_task(self._run(tail), name="acp session")
        waiting = asyncio.create_task(self._opened.wait())
        is_open = False
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
                raise RpcError(INTERNAL_ERROR, "the session ended while it was opened: try it again")
            is_open = True
            self._task.add_done_callback(_log_bug)
        finally:
            await cancelled(waiting)
            if not is_open:
                await self.close()
        return self.conversation.id

    async def close(self, *, reads_out: bool = False) -> None:
        """Leave the session, which lives on. With `reads_out`, read the model's answer to its end first, for a limited
        time: who attaches next would pay for it again."""
        self._reads_out = reads_out
        self._leave.set()
        if self._conversation is None:  # it may connect for long
            await cancelled(self._task)
        elif self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self, tail: int) -> None:
        async with connect_session(
            self._host, self._arguments, session_id=self._arguments.session.session_id or new_uuid(), tail=tail
        ) as opened:
            self._conversation = conversation = EditorConversation(opened, self._editor)
            watching = asyncio.create_task(conversation.watch(self._opened), name="acp events")
            leaving = asyncio.create_task(self._leave.wait(), name="acp leaving")
            try:
                await asyncio.wait({watching, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
                else:
                    if self._reads_out and opened.session.reading:
                        say("ccb: the editor has ended; this ccb ends when it has read the answer that it asked for")
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_READ_OUT_S):
                                await opened.session.read_out()
                    await opened.session.close(done=True)
            finally:
                await conversation.close()
                await cancelled(watching, leaving)


def _log_bug(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, CcbError | RpcError):
        log.error("a bug", exc_info=error)


class PromptAnswers:
    """The prompts of the editor that wait for the end of their turns."""

    def __init__(self, *, foreign_turn: bool) -> None:
        self._pending = PendingPrompts()
        self._pending.foreign_turn = foreign_turn
        self._answers: dict[str, asyncio.Future[Json]] = {}  # to `session/prompt`, by the id of the input
        self._cancelled: set[str] = set()  # those that the person has stopped

    def __bool__(self) -> bool:
        return bool(self._answers)

    def begin(self, number: str) -> asyncio.Future[Json]:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        return answer

    def end(self, number: str) -> None:
        self._answers.pop(number, None)
        self._cancelled.discard(number)

    def sent(self, number: str) -> None:
        self._pending.sent(number)

    def cancel(self) -> None:
        self._cancelled |= self._answers.keys()

    def is_cancelled(self, number: str) -> bool:
        return number in self._cancelled

    def news(self, record: records.Record) -> None:
        self._pending.record(record)
        if isinstance(record.content, records.UnqueuedRecord):
            self._resolve(record.content.id, _CANCELLED)

    def result(self, result: messages.ResultMessage) -> None:
        answered = self._pending.answered()
        self._pending.result_came()
        for number in answered:
            self._resolve(number, _CANCELLED if number in self._cancelled else _ending(result))

    def end_all(self, answer: Json | RpcError) -> None:
        for number in list(self._answers):
            self._resolve(number, answer)

    def _resolve(self, number: str, answer: Json | RpcError) -> None:
        future = self._answers.get(number)
        if future is None or future.done():
            return
        if isinstance(answer, RpcError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class EditorConversation:
    """What the editor asks of an attached session, and what the session says."""

    def __init__(self, opened: OpenSession, editor: Editor) -> None:
        session, hello = opened.session, opened.session.hello
        info, laptop = info_of(opened), laptop_of(opened)
        self.id = hello.session
        self._session = session
        self._editor = editor
        self._warnings = opened.warnings
        self._fenced = ""  # who drives instead
        self._prompts = PromptAnswers(foreign_turn=hello.state != "idle")
        self._updates = AcpUpdates(info, editor.abilities, editor.paths)
        self._replay = ReplayMonitor()
        self._replay.event_came(0, time.monotonic(), replayed=hello.seq > 0)  # the first of them is on its way
        api = SessionApi(session, info, self._updates.reducer, laptop, place=Place.HEADLESS)
        self._options = SessionOptionsDesk(api, bypasses=opened.options.allow_bypass)
        self._questions = EditorQuestions(
            session, editor, opened.projects.keep, lambda: api.laptop_servers, self._prompts.cancel
        )
        self._run_command = partial(command_result, client=session, info=info, laptop=laptop)
        session.register(CAN_USE_TOOL)
        session.register(TRUST_PROJECT)
        if editor.abilities.forms or editor.abilities.links:
            session.register(ELICITATION)

    @property
    def cwd(self) -> str:
        return self._session.hello.cwd.raw

    async def close(self) -> None:
        self._prompts.end_all(RpcError(INTERNAL_ERROR, "the session was closed: load it again to go on"))
        await self._questions.pause()

    # What the editor asks for.

    async def facts(self) -> Json:
        """Return the fields that the answers to new, load and resume have in common."""
        facts = {"modes": self._options.modes(), "configOptions": await self._options.config()}
        totals = self._updates.reducer.totals
        totals.window = totals.window or self._options.window  # until the first result tells it
        self._updates.settled()
        return facts

    async def announce(self) -> None:
        """Send what the editor takes only once it knows the session."""
        for each in self._warnings:
            await self._send(self._updates.notice("warning", each))
        commands = await self._options.commands()
        await self._send([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])
        self._questions.begin()

    async def prompt(self, blocks: object) -> Json:
        """Send a prompt, and return when its turn has ended, with the reason. Raise RpcError, CcbError."""
        if self._fenced:
            raise RpcError(INTERNAL_ERROR, _TAKEN_OVER.format(self._fenced))
        number = new_uuid()
        answer = self._prompts.begin(number)
        try:
            content = await user_content(blocks, self._editor.paths, self._editor.roots)
            text = text_of(content)
            printed = await self._run_command(text) if text.startswith("/") else None
            if printed is not None:
                await self._send([chunk("agent_message_chunk", printed, new_uuid())])
                return {"stopReason": "end_turn"}
            if self._prompts.is_cancelled(number):
                return _CANCELLED
            self._prompts.sent(number)
            self._updates.prompt_sent(text, number)
            await self._session.prompt(content, uuid=number, how=PromptDelivery(waits=True))
            return await answer
        except asyncio.CancelledError:
            if not self._editor.peer.has_ended:  # the editor cancels the request; else the session just lives on
                await self.cancel()
            raise
        finally:
            self._prompts.end(number)

    async def steer(self, blocks: object) -> Json:
        """Send a prompt into the running turn. Without one, the editor is to send it as an ordinary prompt."""
        if not self._prompts or self._fenced:
            return {"outcome": "promptRequired", "reason": "noRunningTurn"}
        content, number = await user_content(blocks, self._editor.paths, self._editor.roots), new_uuid()
        self._updates.prompt_sent(text_of(content), number)
        await self._session.prompt(content, uuid=number)
        return {"outcome": "injected"}

    async def cancel(self) -> None:
        """Stop the turn, and take back the prompts that wait. Their answers come with the result of the turn, or at
        once while there is no connection; the turn ends with the next one then."""
        self._prompts.cancel()
        if self._session.state is not LinkState.CONNECTED:
            self._prompts.end_all(_CANCELLED)
        try:
            await self._session.request(Request(INTERRUPT, True))
        except (CcbError, RequestFailed) as error:
            log.info("the turn was not stopped: %s", error)

    async def set_mode(self, mode: object) -> None:
        await self._options.set_mode(mode)
        self._updates.settled()

    async def set_option(self, name: object, value: object) -> list[Json]:
        await self._options.set_option(name, value)
        self._updates.settled()
        return await self._options.config()

    # What the session says.

    async def watch(self, replayed: asyncio.Event) -> None:
        """Pass on what the session says, until it ends. `replayed` is set when all that had happened before has come.
        Raise CcbError when the session is lost."""
        ticking = asyncio.create_task(self._tick(replayed), name="acp replay")
        try:
            async for item in self._session.events():
                if isinstance(item, LinkChange):
                    await self._link_changed(item)
                elif isinstance(item, EventGap):
                    await self._skipped(item)
                elif isinstance(item, LaptopNotice):
                    severity = "info" if isinstance(item, PortOffer) else "warning"
                    await self._send(self._updates.notice(severity, item.text))
                else:
                    await self._received(item)
        except CcbError as error:
            log.info("the session is lost", exc_info=error)
            self._prompts.end_all(rpc_error(error))
            await self._send(self._updates.notice("error", f"{error.what}. {error.do}"))
            raise
        finally:
            await cancelled(ticking)
        self._prompts.end_all(RpcError(INTERNAL_ERROR, "the session has ended on the host: load it again to go on"))

    async def _tick(self, replayed: asyncio.Event) -> None:
        """The last events before may be none that a reader gets."""
        over = False
        while not over:
            await asyncio.sleep(_TICK_S)
            over = self._replay.over(self._session.hello.seq, time.monotonic())
        replayed.set()

    async def _skipped(self, gap: EventGap) -> None:
        self._replay.event_came(gap.seq, time.monotonic(), replayed=gap.seq < self._session.hello.seq)
        running = self._session.hello.state != "idle"
        asks = [messages.parse_message(each) for each in messages.as_blocks(gap.body.get("asks"))]
        await self._send(self._updates.skipped(gap, asks, running=running))
        self._questions.replace_all([each for each in asks if isinstance(each, messages.ControlRequest)])

    async def _received(self, event: SessionEvent) -> None:
        over = event.seq >= self._session.hello.seq
        self._replay.event_came(event.seq, time.monotonic(), replayed=event.replayed and not over)
        self._updates.own_turn = bool(self._prompts)
        await self._send(self._updates.take(event))
        content = event.record.content
        public = event.public if event.kind == "progress" else getattr(content, "public", None)
        if isinstance(public, messages.ControlRequest):
            self._questions.opened(public)
        elif isinstance(public, messages.ControlCancel | messages.ControlResponse):
            self._questions.closed(public.request_id)
        elif event.record.agent_id:
            return
        elif isinstance(public, messages.ResultMessage):
            self._prompts.result(public)
        else:
            self._prompts.news(event.record)

    async def _link_changed(self, change: LinkChange) -> None:
        log.info("link %s: %s", change.state.value, change.reason)
        if change.state is LinkState.FENCED:
            self._fenced = change.reason
            await self._questions.pause()
            await self._send(self._updates.notice("warning", _TAKEN_OVER.format(change.reason)))
            self._prompts.end_all({"stopReason": "end_turn", "_meta": {"ccb": {"takenOver": change.reason}}})
        elif change.state is LinkState.CONNECTED:
            await self._send(self._updates.notice("info", "Connected again."))
        elif change.state is LinkState.RECONNECTING and change.attempt == 1 and change.retry_at is not None:
            self._updates.link_lost()
            lost = f"{change.reason}; the work on the host goes on, and ccb connects again."
            await self._send(self._updates.notice("warning", lost))

    async def _send(self, updates: Sequence[Mapping[str, object]]) -> None:
        for each in updates:
            update = dict(each)
            if update == CONFIG_CHANGED:
                update["configOptions"] = await self._options.config()
            await self._editor.peer.notify("session/update", {"sessionId": self.id, "update": update})


def _ending(result: messages.ResultMessage) -> Json | RpcError:
    """Return how a turn has ended: the answer to its prompt, or the error."""
    if result.subtype == "error_max_turns":
        return {"stopReason": "max_turn_requests"}
    reason = _STOP_REASONS.get(messages.as_text(result.body.get("stop_reason")))
    if reason is not None:
        return {"stopReason": reason}
    if result.is_error:
        said = "\n".join(result.errors) or messages.as_text(result.body.get("result")) or result.subtype
        return RpcError(INTERNAL_ERROR, said[:2_000], {"ccb": result.subtype})
    return {"stopReason": "end_turn"}
