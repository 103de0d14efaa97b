"""One session that the editor has open: its events as updates, its prompts until their turns end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from ccb.tunnel.errors import CcbError, ConfigError, CredentialError, NoSuchPath, NoSuchSession, UsageError
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire import messages
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, INTERRUPT, TRUST_PROJECT, Request, RequestFailed, new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND, RpcError
from ccb.tunnel.wire.mcp_messages import ELICITATION

from ..api.questions import AgentQuestions
from ..api.session import Session
from ..api.session_reader import Found, Line
from ..command_line.arguments import Arguments
from ..command_line.exit_codes import evidence_lines
from ..connect.host_connection import HostConnection
from ..headless.command_results import command_result
from ..session.session_client import (
    EventGap,
    Item,
    LaptopNotice,
    LinkChange,
    LinkState,
    PortOffer,
    PromptDelivery,
    ReplayEnd,
    SessionEvent,
)
from ..slash_commands.session_api import Place, SessionApi, info_of, laptop_of
from ..terminal.console import say
from .acp_options import MODE, SessionOptionsDesk
from .acp_prompt import text_of, user_content
from .acp_questions import EditorQuestions
from .acp_updates import CONFIG_CHANGED, AcpUpdates, Editor, chunk

log = logging.getLogger(__name__)

AUTH_REQUIRED = -32000

_READ_OUT_S = 300.0  # for the rest of an answer, once the editor has ended
_CANCELLED: Json = {"stopReason": "cancelled"}
_STOP_REASONS = {"max_tokens": "max_tokens", "refusal": "refusal"}
_TAKEN_OVER = "{}. This editor only watches now; loading the session again takes it back."


def rpc_error(error: CcbError | RequestFailed) -> RpcError:
    """Return an error of ccb as the editor gets it: what happened, and what to do."""
    if not isinstance(error, CcbError):
        return RpcError(INVALID_PARAMS, str(error))  # the worker has refused a request
    evidence = evidence_lines(error)
    what = f"{error.what} ({evidence[0]})" if len(evidence) == 1 else error.what
    message, data = f"{what}. {error.do}".rstrip(), {"ccb": error.exit_name, "evidence": "\n".join(evidence)}
    if isinstance(error, CredentialError):
        return RpcError(AUTH_REQUIRED, message, {**data, "authMethods": []})
    if isinstance(error, NoSuchSession):
        return RpcError(NOT_FOUND, message, data)
    wrong = isinstance(error, UsageError | ConfigError | NoSuchPath)
    return RpcError(INVALID_PARAMS if wrong else INTERNAL_ERROR, message, data)


async def open_session(host: HostConnection, arguments: Arguments, editor: Editor, tail: int) -> AcpSession:
    """Connect, and return the session once what it was asked for of its past has been sent. Raise CcbError,
    RpcError."""
    session = Session(host, arguments, tail=tail)
    await session.open()
    found = AcpSession(session, editor)
    try:
        await found.replayed()
    except BaseException:
        await found.close()
        raise
    return found


class AcpSession:
    """What the editor asks of a session, and what that says. The session lives on when this one is closed."""

    def __init__(self, session: Session, editor: Editor) -> None:
        remote = session.remote
        info, laptop = info_of(session.opened), laptop_of(session.opened)
        self._session = session
        self._remote = remote
        self._editor = editor
        self._fenced = ""  # who drives instead
        self._answers: dict[str, asyncio.Future[Json | RpcError]] = {}  # to `session/prompt`, by the ID of the input
        self._cancelled: set[str] = set()  # those that the person has stopped
        self._updates = AcpUpdates(info, editor)
        self._replayed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        api = SessionApi(remote, info, self._updates.reducer, laptop, place=Place.HEADLESS)
        self._options = SessionOptionsDesk(api, bypasses=session.opened.options.allow_bypass)
        self._asks = EditorQuestions(session, editor, self._cancel_all)
        self._questions = AgentQuestions(remote, self._asks.reply)
        self._run_command = partial(command_result, client=remote, info=info, laptop=laptop)
        remote.register(CAN_USE_TOOL)
        remote.register(TRUST_PROJECT)
        if editor.can("elicitation", "form") or editor.can("elicitation", "url"):
            remote.register(ELICITATION)
        self._ended = RpcError(INTERNAL_ERROR, "the session was left or has ended: load it again to go on")
        self._watching = asyncio.create_task(self._watch(), name="acp events")

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def is_over(self) -> bool:
        return self._watching.done()

    async def replayed(self) -> None:
        """Wait until what it was asked for of its past has been sent. Raise CcbError, RpcError."""
        await asyncio.wait({self._watching, self._replayed}, return_when=asyncio.FIRST_COMPLETED)
        if not self._replayed.done():
            raise self._ended

    async def close(self, *, reads_out: bool = False) -> None:
        """Leave the session, which lives on. With `reads_out`, read the model's answer to its end first, for a limited
        time: who attaches next would pay for it again."""
        if not self.is_over:
            if reads_out and self._remote.reading:
                say("ccb: the editor has ended; this ccb ends when it has read the answer that it asked for")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_READ_OUT_S):
                        await self._remote.read_out()
            await self._remote.close(done=True)
            await self._session.leave(stay=True)
        await cancelled(self._watching)

    # What the editor asks for.

    async def facts(self) -> Json:
        """Return the fields that the answers to new, load and resume have in common."""
        facts = {"modes": self._options.modes(), "configOptions": await self._options.config()}
        totals, model = self._updates.reducer.totals, self._options.model
        totals.window = totals.window or (model.window if model is not None else 0)  # until the first result tells it
        self._updates.settled()
        return facts

    async def announce(self) -> None:
        """Send what the editor takes only once it knows the session."""
        for each in self._session.warnings:
            await self._send(self._updates.notice("warning", each))
        commands = await self._options.commands()
        await self._send([{"sessionUpdate": "available_commands_update", "availableCommands": commands}])
        self._asks.begun.set()

    async def prompt(self, blocks: object) -> Json:
        """Send a prompt, and return when its turn has ended, with the reason. Raise RpcError, CcbError."""
        if self._fenced:
            raise RpcError(INTERNAL_ERROR, _TAKEN_OVER.format(self._fenced))
        number = new_uuid()
        self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            content = await user_content(blocks, self._editor.paths, self._editor.roots)
            text = text_of(content)
            printed = await self._run_command(text) if text.startswith("/") else None
            if printed is not None:
                await self._send([chunk("agent_message_chunk", printed, new_uuid())])
                return {"stopReason": "end_turn"}
            if number in self._cancelled:
                return _CANCELLED
            self._session.pending.sent(number)
            self._updates.prompt_sent(text, number)
            await self._remote.prompt(content, uuid=number, how=PromptDelivery(waits=True))
            answer = await self._answers[number]
            if isinstance(answer, RpcError):
                raise answer
            return answer
        except asyncio.CancelledError:
            if not self._editor.peer.has_ended:  # the editor cancels the request; else the session just lives on
                await self.cancel()
            raise
        finally:
            del self._answers[number]
            self._cancelled.discard(number)

    async def cancel(self) -> None:
        """Stop the turn, and take back the prompts that wait. Their answers come with the result of the turn, or at
        once while there is no connection; the turn ends with the next one then."""
        self._cancel_all()
        if self._remote.state is not LinkState.CONNECTED:
            self._end_all(_CANCELLED)
        try:
            await self._remote.request(Request(INTERRUPT, True))
        except (CcbError, RequestFailed) as error:
            log.info("the turn was not stopped: %s", error)

    async def set_mode(self, mode: object) -> None:
        await self.set_option(MODE, mode)

    async def set_option(self, name: object, value: object) -> Json:
        await self._options.set_option(name, value)
        self._updates.settled()
        return {"configOptions": await self._options.config()}

    def _cancel_all(self) -> None:
        self._cancelled |= self._answers.keys()

    def _end_all(self, answer: Json | RpcError) -> None:
        for number in self._answers:
            self._end(number, answer)

    def _end(self, number: str, answer: Json | RpcError) -> None:
        future = self._answers.get(number)
        if future is not None and not future.done():
            future.set_result(_CANCELLED if number in self._cancelled else answer)

    # What the session says.

    async def _watch(self) -> None:
        """Pass on what the session says, until it ends or the editor does not read any more, and leave it."""
        try:
            async for item in self._remote.events():
                await self._take(item)
        except CcbError as error:
            log.info("the session is lost", exc_info=error)
            self._ended = rpc_error(error)
            with suppress(RpcError):
                await self._send(self._updates.notice("error", f"{error.what}. {error.do}"))
        except RpcError as error:
            log.info("the editor is told no more: %s", error)
        except Exception:
            log.exception("a bug")
        finally:
            self._end_all(self._ended)
            await self._questions.close()
            await self._session.leave(stay=True)

    async def _take(self, item: Item) -> None:
        found = list(self._session.reader.read(item))
        match item:
            case LinkChange():
                await self._link_changed(item)
            case LaptopNotice():
                severity = "info" if isinstance(item, PortOffer) else "warning"
                await self._send(self._updates.notice(severity, item.text))
            case EventGap():
                running = self._remote.hello.state != "idle"
                await self._send(self._updates.skipped(item, running=running))
            case ReplayEnd() if not self._replayed.done():
                self._replayed.set_result(None)
            case SessionEvent():
                self._updates.own_turn = bool(self._answers)
                await self._send(self._updates.take(item))
                content = item.record.content
                if isinstance(content, records.InputRecord) and isinstance(content.public, messages.ControlResponse):
                    self._questions.closed(content.public.request_id)
        for each in found:
            self._act_on(each)

    def _act_on(self, found: Found) -> None:
        match found:
            case Line(public=messages.ControlRequest() as asked) if not self._fenced:
                self._questions.heard(asked)
            case Line(public=messages.ControlCancel(request_id=number)):
                self._questions.closed(number)
            case Line(public=messages.ResultMessage() as result, answers=answered):
                for number in answered:
                    self._end(number, _ending(result))
            case records.UnqueuedRecord(id=number):
                self._end(number, _CANCELLED)

    async def _link_changed(self, change: LinkChange) -> None:
        log.info("link %s: %s", change.state.value, change.reason)
        if change.state is LinkState.FENCED:
            self._fenced = change.reason
            await self._questions.close()
            await self._send(self._updates.notice("warning", _TAKEN_OVER.format(change.reason)))
            self._end_all({"stopReason": "end_turn", "_meta": {"ccb": {"takenOver": change.reason}}})
        elif change.state is LinkState.CONNECTED:
            await self._send(self._updates.notice("info", "Connected again."))
        elif change.state is LinkState.RECONNECTING and change.attempt == 1 and change.retry_at is not None:
            self._updates.reducer.link_lost()
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
