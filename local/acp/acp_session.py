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
from ccb.tunnel.wire.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, JsonRpcPeer, RpcError
from ccb.tunnel.wire.mcp_messages import ELICITATION

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import evidence_lines
from ..connect.connect_session import OpenSession, connect_session
from ..connect.host_connection import HostConnection
from ..headless.command_results import command_result
from ..session.session_client import EventGap, LaptopNotice, LinkChange, LinkState, PromptDelivery, SessionEvent
from ..session.turn_outcomes import PendingPrompts
from ..slash_commands.session_api import Place, SessionApi, info_of, laptop_of
from ..transcript.questions import ReplayMonitor
from .acp_options import SessionOptionsDesk
from .acp_paths import PathMap
from .acp_prompt import text_of, user_content
from .acp_questions import QuestionDesk
from .acp_updates import CONFIG_CHANGED, AcpUpdates, ClientAbilities, chunk

log = logging.getLogger(__name__)

AUTH_REQUIRED = -32000
NOT_FOUND = -32002

WHOLE_JOURNAL, ONLY_STATE = 0, 1  # bytes of events to attach with
_TICK_S = 0.05
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
    """`open` connects; then `watch` runs until the session is left or lost. `roots` are the folders of the editor."""

    def __init__(
        self,
        host: HostConnection,
        arguments: Arguments,
        peer: JsonRpcPeer,
        abilities: ClientAbilities,
        paths: PathMap,
        roots: Sequence[str],
    ) -> None:
        self._host = host
        self._arguments = arguments
        self._peer = peer
        self._abilities = abilities
        self._paths = paths
        self._roots = roots
        self._opened: asyncio.Future[OpenSession] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._replayed = asyncio.Event()
        self._fenced = ""  # who drives instead
        self._pending = PendingPrompts()
        self._answers: dict[str, asyncio.Future[Json]] = {}  # to `session/prompt`, by the id of the input
        self._cancelled: set[str] = set()  # those prompts that the person has stopped
        self._task: asyncio.Task[None] | None = None

    # Its life.

    async def open(self, tail: int) -> str:
        """Connect, and return the ID of the session once what it was asked for of its past has been sent. Raise
        CcbError."""
        self._task = asyncio.create_task(self._run(tail), name="acp session")
        waiting = asyncio.create_task(self._replayed.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
                raise RpcError(INTERNAL_ERROR, "the session ended while it was opened: try it again")
        except BaseException:
            await self.close()
            raise
        finally:
            await cancelled(waiting)
        return self._session_id

    async def close(self) -> None:
        """Leave the session, which lives on."""
        self._leave.set()
        if self._task is not None:
            with suppress(CcbError, asyncio.CancelledError):
                await self._task
        self._end_prompts(RpcError(INTERNAL_ERROR, "the session was closed: load it again to go on"))

    @property
    def is_over(self) -> bool:
        return self._task is None or self._task.done()

    async def _run(self, tail: int) -> None:
        async with connect_session(
            self._host, self._arguments, session_id=self._arguments.session.session_id or new_uuid(), tail=tail
        ) as opened:
            self._attached(opened)
            watching = asyncio.create_task(self._watch(), name="acp events")
            leaving = asyncio.create_task(self._leave.wait(), name="acp leaving")
            try:
                await asyncio.wait({watching, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
                else:
                    await opened.session.close(done=True)
            except CcbError as error:
                log.info("the session is lost", exc_info=error)
                self._end_prompts(rpc_error(error))
                with suppress(RpcError):
                    await self._send(self.updates.notice("error", f"{error.what}. {error.do}"))
                raise
            finally:
                await self._questions.pause()
                await cancelled(watching, leaving)

    def _attached(self, opened: OpenSession) -> None:
        session, hello = opened.session, opened.session.hello
        info, laptop = info_of(opened), laptop_of(opened)
        self._session, self._session_id = session, hello.session
        self.updates = AcpUpdates(info, self._abilities, self._paths)
        self._replay = ReplayMonitor()
        self._replay.event_came(0, time.monotonic(), replayed=hello.seq > 0)  # the first of them is on its way
        self._pending.foreign_turn = hello.state != "idle"
        api = SessionApi(session, info, self.updates.reducer, laptop, place=Place.HEADLESS)
        self._options = SessionOptionsDesk(api, bypasses=opened.options.allow_bypass)
        self._questions = QuestionDesk(
            session, self._peer, self._abilities, self._paths, opened.projects.keep, lambda: api.laptop_servers
        )
        self._run_command = partial(command_result, client=session, info=info, laptop=laptop)
        self._warnings = opened.warnings
        session.register(CAN_USE_TOOL)
        session.register(TRUST_PROJECT)
        if self._abilities.forms or self._abilities.links:
            session.register(ELICITATION)
        self._opened.set_result(opened)

    @property
    def cwd(self) -> str:
        return self._session.hello.cwd.raw

    # What the editor asks for.

    async def facts(self) -> Json:
        """Return the fields that the answers to new, load and resume have in common."""
        facts = {"modes": self._options.modes(), "configOptions": await self._options.config()}
        self.updates.settled()
        return facts

    async def announce(self) -> None:
        """Send what the editor takes only once it knows the session."""
        for each in self._warnings:
            await self._send(self.updates.notice("warning", each))
        await self._send_commands()
        self._questions.begin()

    async def prompt(self, blocks: object) -> Json:
        """Send a prompt, and return when its turn has ended, with the reason. Raise RpcError, CcbError."""
        if self._fenced:
            raise RpcError(INTERNAL_ERROR, _TAKEN_OVER.format(self._fenced))
        number = new_uuid()
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            content = await user_content(blocks, self._paths, self._roots)
            text = text_of(content)
            printed = await self._run_command(text) if text.startswith("/") else None
            if printed is not None:
                await self._send([chunk("agent_message_chunk", printed, new_uuid())])
                return {"stopReason": "end_turn"}
            if number in self._cancelled:
                return {"stopReason": "cancelled"}
            self._pending.sent(number)
            self.updates.prompt_sent(text, number)
            await self._session.prompt(content, uuid=number, how=PromptDelivery(waits=True))
            return await answer
        except asyncio.CancelledError:
            if not self._peer.has_ended:  # the editor has cancelled the request; else the session just lives on
                await self.cancel()
            raise
        finally:
            self._answers.pop(number, None)
            self._cancelled.discard(number)

    async def cancel(self) -> None:
        """Stop the turn, and take back the prompts that wait. Their answers come with the result of the turn."""
        self._cancelled |= self._answers.keys()
        try:
            await self._session.request(Request(INTERRUPT, True))
        except (CcbError, RequestFailed) as error:
            log.info("the turn was not stopped: %s", error)

    async def set_mode(self, mode: object) -> None:
        await self._options.set_mode(mode)
        self.updates.settled()

    async def set_option(self, name: object, value: object) -> list[Json]:
        await self._options.set_option(name, value)
        self.updates.settled()
        return await self._options.config()

    # What the session says.

    async def _watch(self) -> None:
        ticking = asyncio.create_task(self._tick(), name="acp replay")
        try:
            async for item in self._session.events():
                if isinstance(item, LinkChange):
                    await self._link_changed(item)
                elif isinstance(item, EventGap):
                    await self._skipped(item)
                elif isinstance(item, LaptopNotice):
                    await self._send(self.updates.notice("warning", item.text))
                else:
                    await self._received(item)
        finally:
            await cancelled(ticking)
        self._end_prompts(RpcError(INTERNAL_ERROR, "the session has ended on the host: load it again to go on"))

    async def _tick(self) -> None:
        """Note when all that had happened before has come: the last events may be none that a reader gets."""
        over = False
        while not over:
            await asyncio.sleep(_TICK_S)
            over = self._replay.over(self._session.hello.seq, time.monotonic())
        self._replayed.set()

    async def _skipped(self, gap: EventGap) -> None:
        self._replay.event_came(gap.seq, time.monotonic(), replayed=gap.seq < self._session.hello.seq)
        running = self._session.hello.state != "idle"
        await self._send(self.updates.skipped(gap, running=running))
        asks = [messages.parse_message(each) for each in messages.as_blocks(gap.body.get("asks"))]
        self._questions.replace_all([each for each in asks if isinstance(each, messages.ControlRequest)])

    async def _received(self, event: SessionEvent) -> None:
        over = event.seq >= self._session.hello.seq
        self._replay.event_came(event.seq, time.monotonic(), replayed=event.replayed and not over)
        self.updates.own_turn = bool(self._answers)
        await self._send(self.updates.take(event))
        content = event.record.content
        public = event.public if event.kind == "progress" else getattr(content, "public", None)
        if isinstance(public, messages.ControlRequest):
            self._questions.opened(public)
        elif isinstance(public, messages.ControlCancel | messages.ControlResponse):
            self._questions.closed(public.request_id)
        elif isinstance(public, messages.ResultMessage) and not event.record.agent_id:
            self._turn_result(public)
        elif not event.record.agent_id:
            self._turn_news(content)

    def _turn_news(self, content: object) -> None:
        match content:
            case records.PromptRecord(input_ids=taken):
                self._pending.taken(taken)
            case records.TakenRecord(input_id=taken):
                self._pending.taken([taken])
            case records.TurnStartRecord() | records.TurnEndRecord():
                self._pending.turn_began_or_ended()
            case records.UnqueuedRecord(id=number):
                self._pending.taken_back(number)
                self._resolve(number, {"stopReason": "cancelled"})

    def _turn_result(self, result: messages.ResultMessage) -> None:
        answered = self._pending.answered()
        self._pending.result_came()
        for number in answered:
            if number in self._cancelled:
                self._resolve(number, {"stopReason": "cancelled"})
            else:
                self._resolve(number, _ending(result))

    def _resolve(self, number: str, answer: Json | Exception) -> None:
        future = self._answers.get(number)
        if future is None or future.done():
            return
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _end_prompts(self, error: RpcError) -> None:
        for number in list(self._answers):
            self._resolve(number, error)

    async def _link_changed(self, change: LinkChange) -> None:
        log.info("link %s: %s", change.state.value, change.reason)
        if change.state is LinkState.FENCED:
            self._fenced = change.reason
            await self._questions.pause()
            await self._send(self.updates.notice("warning", _TAKEN_OVER.format(change.reason)))
            for number in list(self._answers):
                self._resolve(number, {"stopReason": "end_turn", "_meta": {"ccb": {"takenOver": change.reason}}})
        elif change.state is LinkState.CONNECTED:
            await self._send(self.updates.notice("info", "Connected again."))
        elif change.state is LinkState.RECONNECTING and change.attempt == 1 and change.retry_at is not None:
            self.updates.link_lost()
            lost = f"{change.reason}; the work on the host goes on, and ccb connects again."
            await self._send(self.updates.notice("warning", lost))

    # To the editor.

    async def _send(self, updates: Sequence[Mapping[str, object]]) -> None:
        for each in updates:
            update = dict(each)
            if update == CONFIG_CHANGED:
                update["configOptions"] = await self._options.config()
            await self._peer.notify("session/update", {"sessionId": self._session_id, "update": update})

    async def _send_commands(self) -> None:
        commands = await self._options.commands()
        await self._send([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])


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
