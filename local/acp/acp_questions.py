"""The questions of a session to the person, put to the editor: permissions with their choices, plans, trust, forms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.control_protocol import TRUST_PROJECT, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import PEER_ENDED, RpcError
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlRequest, as_dict, as_text
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..session.remote_session import RemoteSession
from ..transcript.questions import FormField, OpenQuestions, read_questions, read_server_form
from ..tui.rendering.approval_text import circumstances, place_of_call, trust_lines
from ..tui.rendering.permission_updates import (
    KEPT,
    can_be_kept,
    describe_update,
    kept_updates,
    session_updates,
    suggestions,
)
from .acp_tool_calls import subject_of
from .acp_updates import Editor

log = logging.getLogger(__name__)

_DENIED = "The user denied this; it was not done."
_DECLINED = "The user declined to answer the questions."
_STOPPED: Json = {"behavior": "deny", "message": "The user stopped the agent instead of answering.", "interrupt": True}
_PLAN_MODES = {
    "acceptEdits": "Yes, and accept edits",
    "default": "Yes, and ask before each edit",
    "bypassPermissions": "Yes, and bypass permissions as before",
}
_MAX_NAME = 300


@dataclass(frozen=True)
class OfferedAnswer:
    """One answer that the editor offers. `denies`: updates that the session gets as well."""

    name: str
    kind: str
    answer: Json
    denies: Sequence[Json] = ()


def choices(request: ControlRequest) -> dict[str, OfferedAnswer]:
    """Return the answers to a question about a call, by their ids. "Always" is the rule that the REPL would offer."""
    yes: Json = {"behavior": "allow", "updatedInput": request.input}
    no: Json = {"behavior": "deny", "message": _DENIED}
    traits = traits_of(request.tool_name)
    if traits.view is View.PLAN:
        return {**_plan_choices(request, yes), "reject": OfferedAnswer("No, keep planning", "reject_once", no)}
    found = {"allow": OfferedAnswer("Yes", "allow_once", yes)}
    updates = [] if traits.asks else session_updates(request)
    rules = "; ".join(text for each in updates for text in describe_update(each))
    if rules:
        kept = can_be_kept(updates)
        given = [{**each, "destination": KEPT} for each in updates] if kept else updates
        name = f"Yes, and always here: {rules.removeprefix('allow ')}" if kept else f"Yes, and {rules} in this session"
        found["allow_always"] = OfferedAnswer(name[:_MAX_NAME], "allow_always", {**yes, "updatedPermissions": given})
    found["reject"] = OfferedAnswer("No", "reject_once", no)
    if rules and can_be_kept(updates):
        name = f"No, and never in this session: {rules.removeprefix('allow ')}"
        denies = [{**each, "behavior": "deny"} for each in updates]
        found["reject_always"] = OfferedAnswer(name[:_MAX_NAME], "reject_always", no, denies)
    return found


def _plan_choices(request: ControlRequest, yes: Json) -> dict[str, OfferedAnswer]:
    modes = {as_text(each.get("mode")): each for each in suggestions(request) if each.get("type") == "setMode"}
    offered = {
        mode: OfferedAnswer(
            name,
            "allow_once" if mode == "default" else "allow_always",
            {**yes, "updatedPermissions": [{**modes[mode], "destination": "session"}]},
        )
        for mode, name in _PLAN_MODES.items()
        if mode in modes
    }
    return offered or {"allow": OfferedAnswer("Yes", "allow_once", yes)}


class EditorQuestions:
    """Asks the editor each open question of the session once, and sends the answer. `begin` lets it ask."""

    def __init__(
        self,
        session: RemoteSession,
        editor: Editor,
        keep: Callable[[Sequence[Mapping[str, object]]], Awaitable[None]],
        laptop_servers: Callable[[], Collection[str]],
        stopped: Callable[[], None],
    ) -> None:
        self._session = session
        self._editor = editor
        self._keep = keep
        self._laptop_servers = laptop_servers
        self._stopped = stopped
        self._questions = OpenQuestions()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._answering: set[str] = set()
        self._begun = False

    def opened(self, request: ControlRequest) -> None:
        if self._questions.opened(request) and self._begun:
            self._ask(request)

    def replace_all(self, requests: Sequence[ControlRequest]) -> None:
        self._questions.replace_all(requests)
        for request_id in self._asking.keys() - {each.request_id for each in self._questions}:
            self.closed(request_id)
        self._ask_open()

    def closed(self, request_id: str) -> None:
        """It was withdrawn, or answered by another client."""
        self._questions.closed(request_id)
        if request_id in self._asking and request_id not in self._answering:
            self._asking[request_id].cancel()

    def begin(self) -> None:
        self._begun = True
        self._ask_open()

    async def pause(self) -> None:
        """Take the questions back: another client answers them now."""
        self._begun = False
        await cancelled(*self._asking.values())

    def _ask_open(self) -> None:
        for each in self._questions if self._begun else ():
            if each.request_id not in self._asking:
                self._ask(each)

    def _ask(self, request: ControlRequest) -> None:
        task = asyncio.create_task(self._asked(request), name=f"question {request.request_id}")
        self._asking[request.request_id] = task
        task.add_done_callback(partial(self._asking_over, request.request_id))

    def _asking_over(self, request_id: str, task: asyncio.Task[None]) -> None:
        if self._asking.get(request_id) is task:
            del self._asking[request_id]

    async def _asked(self, request: ControlRequest) -> None:
        try:
            answer = await self._reply(request)
        except RpcError as error:
            if error.code == PEER_ENDED:
                return  # the question waits for who drives next
            log.warning("the editor cannot be asked: %s", error.message)
            answer = {"behavior": "deny", "message": f"The user's editor cannot ask: {one_line(error.message)[:200]}"}
            if request.subtype != "can_use_tool":
                answer = {"action": "cancel", "trusted": False}
        await self._answer(request, answer)

    async def _answer(self, request: ControlRequest, answer: Json) -> None:
        if self._questions.answered(request.request_id) is None:
            return
        self._answering.add(request.request_id)
        try:
            await self._session.answer(request.request_id, answer)
            if kept := kept_updates(answer):
                await self._keep(kept)
        except (CcbError, RequestFailed) as error:
            self._session.warn(f"The answer does not count: {error}")
        finally:
            self._answering.discard(request.request_id)

    async def _reply(self, request: ControlRequest) -> Json:
        if request.subtype == TRUST_PROJECT.name:
            return await self._trust(request)
        if request.subtype == ELICITATION.name:
            return await self._elicited(request)
        form = read_questions(request.input) if traits_of(request.tool_name).view is View.QUESTIONS else None
        if form is not None:
            return await self._questions_of_agent(request, form.fields)
        offered = choices(request)
        chosen = await self._choose(self._subject(request), offered)
        if chosen is None:
            self._stopped()
            return _STOPPED
        try:
            if chosen.denies:
                await self._session.request(Request(CHANGE_RULES, list(chosen.denies)))
        except (CcbError, RequestFailed) as error:
            self._session.warn(f"The rule does not count: {error}")
        return chosen.answer

    def _subject(self, request: ControlRequest) -> Json:
        said = [f"{name}{text}" for name, text in circumstances(request)]
        place = place_of_call(request, "", self._laptop_servers())
        said += ["It runs on this laptop."] if place else []
        return subject_of(request.request, self._editor.paths, self._session.hello.cwd.raw, said)

    async def _choose(self, call: Json, offered: Mapping[str, OfferedAnswer]) -> OfferedAnswer | None:
        """Return what the person chose, None if they stopped the turn instead. Raise RpcError."""
        options = [{"optionId": number, "name": each.name, "kind": each.kind} for number, each in offered.items()]
        params = {"sessionId": self._session.hello.session, "toolCall": call, "options": options}
        outcome = as_dict(as_dict(await self._editor.peer.request("session/request_permission", params)).get("outcome"))
        return offered.get(as_text(outcome.get("optionId"))) if outcome.get("outcome") == "selected" else None

    async def _trust(self, request: ControlRequest) -> Json:
        lines = "\n".join(f"{each.gutter}{each.picture}" for each in trust_lines(request.input))
        call = {
            "toolCallId": request.request_id,
            "title": "Trust the files of this project?",
            "kind": "other",
            "status": "pending",
            "content": [{"type": "content", "content": {"type": "text", "text": lines}}],
        }
        offered = {
            "trust": OfferedAnswer("Yes, trust it on this host", "allow_always", {"trusted": True}),
            "later": OfferedAnswer("Not now", "reject_once", {"trusted": False}),
        }
        await self._tell({"sessionUpdate": "tool_call", **call})
        chosen = await self._choose(call, offered)
        await self._tell({"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "completed"})
        return chosen.answer if chosen is not None else {"trusted": False}

    async def _tell(self, update: Json) -> None:
        await self._editor.peer.notify("session/update", self._in_session({"update": update}))

    # Forms.

    async def _elicited(self, request: ControlRequest) -> Json:
        message = request.text("message")
        params: Json = {"message": f"{one_line(request.text('mcp_server_name'))}: {message}"}
        if request.text("mode") == "url":
            if not self._editor.abilities.links or not request.text("url").startswith(("https://", "http://")):
                return {"action": "cancel"}
            params |= {"mode": "url", "elicitationId": request.request_id, "url": request.text("url")}
        else:
            schema = request.request.get("requested_schema")
            if not self._editor.abilities.forms or read_server_form(message, schema) is None:
                return {"action": "cancel"}
            params |= {"mode": "form", "requestedSchema": {"type": "object", **as_dict(schema)}}
        answer = as_dict(await self._editor.peer.request("elicitation/create", self._in_session(params)))
        action = answer.get("action")
        if action == "accept":
            return {"action": "accept", "content": as_dict(answer.get("content"))}
        return {"action": "decline" if action == "decline" else "cancel"}

    async def _questions_of_agent(self, request: ControlRequest, fields: Sequence[FormField]) -> Json:
        ask = self._in_form if self._editor.abilities.forms else self._one_by_one
        answers = await ask(request, fields)
        if answers is None:
            return {"behavior": "deny", "message": _DECLINED}
        return {"behavior": "allow", "updatedInput": {**request.input, "answers": answers}}

    async def _in_form(self, request: ControlRequest, fields: Sequence[FormField]) -> dict[str, str] | None:
        properties: Json = {}
        for number, each in enumerate(fields):
            properties[f"answer_{number}"] = _property(each)
            properties[f"other_{number}"] = {"type": "string", "title": "Another answer"}
        schema = {"type": "object", "properties": properties}
        params = {"mode": "form", "message": "The agent asks:", "requestedSchema": schema}
        params |= {"toolCallId": request.text("tool_use_id")}
        answer = as_dict(await self._editor.peer.request("elicitation/create", self._in_session(params)))
        content = as_dict(answer.get("content"))
        if answer.get("action") != "accept":
            return None
        answers = {}
        for number, each in enumerate(fields):
            chosen, other = content.get(f"answer_{number}"), as_text(content.get(f"other_{number}")).strip()
            given = [str(one) for one in chosen] if isinstance(chosen, list) else [as_text(chosen)]
            answers[each.key] = ", ".join(filter(None, [*given, other] if each.several or not other else [other]))
        return answers

    async def _one_by_one(self, request: ControlRequest, fields: Sequence[FormField]) -> dict[str, str] | None:
        answers = {}
        for each in fields:
            call = {**self._subject(request), "title": one_line(each.question)[:_MAX_NAME]}
            offered = {
                str(number): OfferedAnswer(one_line(option.label), "allow_once", {"label": option.label})
                for number, option in enumerate(each.options)
            }
            offered["decline"] = OfferedAnswer("No answer", "reject_once", {})
            chosen = await self._choose(call, offered)
            if chosen is None or "label" not in chosen.answer:
                return None
            answers[each.key] = str(chosen.answer["label"])
        return answers

    def _in_session(self, params: Json) -> Json:
        return {"sessionId": self._session.hello.session, **params}


def _property(field: FormField) -> Json:
    options = [{"const": each.label, "title": _titled(each.label, each.description)} for each in field.options]
    about: Json = {"title": one_line(field.header or field.question), "description": field.question}
    if field.several:
        return {"type": "array", **about, "items": {"anyOf": options}}
    return {"type": "string", **about, "oneOf": options}


def _titled(label: str, description: str) -> str:
    return one_line(f"{label}: {description}" if description else label)
