"""The questions of a session to the person, put to the editor: permissions with their choices, plans, trust, forms."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import CHANGE_RULES
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL, TRUST_PROJECT, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import PEER_ENDED, RpcError
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlRequest, as_dict, as_text
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..api.session import Session
from ..transcript.questions import FormField, read_questions, read_server_form
from ..tui.rendering.approval_text import circumstances, place_of_call, trust_lines
from ..tui.rendering.permission_updates import (
    KEPT,
    can_be_kept,
    describe_update,
    kept_updates,
    plan_modes,
    session_updates,
)
from .acp_tool_calls import subject_of
from .acp_updates import Editor

log = logging.getLogger(__name__)

_DENIED = "The user denied this; it was not done."
_DECLINED = "The user declined to answer the questions."
_NO_FORMS = "The user's editor cannot show these questions. Ask in the text of your answer instead, and end your turn."
_STOPPED: Json = {"behavior": "deny", "message": "The user stopped the agent instead of answering.", "interrupt": True}
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
    found = {"allow": OfferedAnswer("Yes", "allow_once", yes)}
    traits = traits_of(request.tool_name)
    if traits.view is View.PLAN:
        ways = {
            mode: OfferedAnswer(
                words, "allow_once" if mode == "default" else "allow_always", {**yes, "updatedPermissions": [update]}
            )
            for mode, (words, update) in plan_modes(request).items()
        }
        return {**(ways or found), "reject": OfferedAnswer("No, keep planning", "reject_once", no)}
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


class EditorQuestions:
    """Puts the questions of one session to the editor, once it has `begun`: it knows the session then."""

    def __init__(self, session: Session, editor: Editor, stopped: Callable[[], None]) -> None:
        self._opened = session.opened
        self._session = session.remote
        self._editor = editor
        self._stopped = stopped
        self.begun = asyncio.Event()

    async def reply(self, request: ControlRequest) -> Json:
        """Ask the editor, and return the public answer. If the editor ends, the question waits for who drives next."""
        await self.begun.wait()
        try:
            return await self._answer(request)
        except RpcError as error:
            if error.code == PEER_ENDED:
                await asyncio.get_running_loop().create_future()  # until the session is left
            log.warning("the editor cannot be asked: %s", error.message)
            if request.subtype != CAN_USE_TOOL.name:
                return {"action": "cancel", "trusted": False}
            return {"behavior": "deny", "message": f"The user's editor cannot ask: {one_line(error.message)[:200]}"}

    async def _answer(self, request: ControlRequest) -> Json:
        if request.subtype == TRUST_PROJECT.name:
            return await self._trust(request)
        if request.subtype == ELICITATION.name:
            return await self._elicited(request)
        if traits_of(request.tool_name).view is View.QUESTIONS:
            return await self._questions_of_agent(request)
        chosen = await self._choose(self._subject(request), choices(request))
        if chosen is None:
            self._stopped()
            return _STOPPED
        try:
            if chosen.denies:
                await self._session.request(Request(CHANGE_RULES, list(chosen.denies)))
            if kept := kept_updates(chosen.answer):
                await self._opened.projects.keep(kept)
        except (CcbError, RequestFailed) as error:
            self._session.warn(f"The rule does not count: {error}")
        return chosen.answer

    def _subject(self, request: ControlRequest) -> Json:
        said = [f"{name}{text}" for name, text in circumstances(request)]
        servers = self._opened.mcp.states() if self._opened.mcp is not None else ()
        said += ["It runs on this laptop."] if place_of_call(request, "", servers) else []
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
            url = request.text("url")
            can_show = self._editor.can("elicitation", "url") and url.startswith(("https://", "http://"))
            params |= {"mode": "url", "elicitationId": request.request_id, "url": url}
        else:
            schema = request.request.get("requested_schema")
            can_show = self._shows_forms and read_server_form(message, schema) is not None
            params |= {"mode": "form", "requestedSchema": {"type": "object", **as_dict(schema)}}
        answer = await self._elicit(params) if can_show else {}
        action = answer.get("action")
        if action == "accept":
            return {"action": action, "content": as_dict(answer.get("content"))}
        return {"action": "decline" if action == "decline" else "cancel"}

    async def _questions_of_agent(self, request: ControlRequest) -> Json:
        form = read_questions(request.input)
        if form is None or not self._shows_forms:
            return {"behavior": "deny", "message": _NO_FORMS}
        properties: Json = {}
        for number, each in enumerate(form.fields):
            properties[f"answer_{number}"] = _property(each)
            properties[f"other_{number}"] = {"type": "string", "title": "Another answer"}
        schema = {"type": "object", "properties": properties}
        params = {"mode": "form", "message": "The agent asks:", "requestedSchema": schema}
        answer = await self._elicit({**params, "toolCallId": request.text("tool_use_id")})
        if answer.get("action") != "accept":
            return {"behavior": "deny", "message": _DECLINED}
        content, answers = as_dict(answer.get("content")), {}
        for number, each in enumerate(form.fields):
            chosen, other = content.get(f"answer_{number}"), as_text(content.get(f"other_{number}")).strip()
            given = [str(one) for one in chosen] if isinstance(chosen, list) else [as_text(chosen)]
            answers[each.key] = ", ".join(filter(None, [*given, other] if each.several or not other else [other]))
        return {"behavior": "allow", "updatedInput": {**request.input, "answers": answers}}

    @property
    def _shows_forms(self) -> bool:
        return self._editor.can("elicitation", "form")

    async def _elicit(self, params: Json) -> Json:
        return as_dict(await self._editor.peer.request("elicitation/create", self._in_session(params)))

    def _in_session(self, params: Json) -> Json:
        return {"sessionId": self._session.hello.session, **params}


def _property(field: FormField) -> Json:
    options = [
        {"const": each.label, "title": one_line(": ".join(filter(None, (each.label, each.description))))}
        for each in field.options
    ]
    about: Json = {"title": one_line(field.header or field.question), "description": field.question}
    if field.several:
        return {"type": "array", **about, "items": {"anyOf": options}}
    return {"type": "string", **about, "oneOf": options}
