"""What the agent asks and the program answers: permissions, questions to the person, forms, calls of its tools."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ccb.tunnel.errors import CcbError
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.mcp_messages import ELICITATION, MCP_MESSAGE
from ccb.tunnel.wire.messages import ControlRequest, as_blocks, as_dict, as_text

from ..session.newest import Newest

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession
    from .tools import Tool

log = logging.getLogger(__name__)
T = TypeVar("T")
_MAX_HEARD = 1_000
OWN_TOOLS = "program"
"""The MCP server of the program's own tools: the model and the rules know them as `mcp__program__NAME`."""
Json = dict[str, Any]
Callback = Callable[..., Awaitable[T] | T]
"""An async function, or a plain one, which runs in a thread: it may block."""


@dataclass(frozen=True)
class Approval:
    """May this tool call run? `reason` is why it is not simply allowed, `suggestions` are rules that would allow it.
    `agent` is the id of the sub-agent that asks, "" for the main agent."""

    tool: str
    input: Json
    reason: str
    description: str
    suggestions: tuple[Json, ...]
    agent: str
    raw: Json = field(repr=False)


@dataclass(frozen=True)
class Allow:
    """Run the call, with another `input` if one is given. `rules` are kept for the session: some of
    `Approval.suggestions`."""

    input: Json | None = None
    rules: Sequence[Json] = ()


@dataclass(frozen=True)
class Deny:
    """Do not run the call. The model reads the message; `stop` ends the turn."""

    message: str = "The program refused."
    stop: bool = False


@dataclass(frozen=True)
class Question:
    """The agent asks the person. The answer is a label of `options`, a list of them if `several`, or another text; None
    for no answer."""

    text: str
    header: str
    options: tuple[str, ...]
    descriptions: tuple[str, ...]
    several: bool


@dataclass(frozen=True)
class Form:
    """An MCP server asks the person to fill in `schema`, or to visit `url`. The answer is the values ({} for an
    address), or None to decline."""

    server: str
    message: str
    schema: Json
    url: str


Permissions = Callback[bool | Allow | Deny]
Questions = Callback[str | Sequence[str] | Mapping[str, Any] | None]


async def called(callback: Callback[T], *given: object) -> T:
    """Return what a callback of the program returns."""
    is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)
    found = callback(*given) if is_async else await asyncio.to_thread(callback, *given)
    return await found if inspect.isawaitable(found) else found


@dataclass(frozen=True)
class Callbacks:
    """What answers the agent in the place of a person, and the tools of the program."""

    permissions: Permissions | None = None
    questions: Questions | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)

    @property
    def asks(self) -> bool:
        return self.permissions is not None or self.questions is not None


class AgentQuestions:
    """Answers the questions of one session, each once and in a task of its own. `reply` makes the public answer, None
    if nobody answers that. `failed` gets what it raises, and says whether somebody learns of it."""

    def __init__(
        self,
        remote: RemoteSession,
        reply: Callable[[ControlRequest], Awaitable[Json | None]],
        failed: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._remote, self._reply, self._failed = remote, reply, failed
        self._running: dict[str, asyncio.Task[None]] = {}
        self._heard: Newest[str, bool] = Newest(_MAX_HEARD)  # whether the answer is on its way, by the request

    def heard(self, line: ControlRequest) -> None:
        number = line.request_id
        if number not in self._heard:
            self._heard[number] = False
            self._running[number] = asyncio.create_task(self._answer(line), name="an answer to the agent")
            self._running[number].add_done_callback(lambda _: self._running.pop(number, None))

    def closed(self, number: str) -> None:
        """The question was withdrawn, or another client has answered it."""
        if (running := self._running.get(number)) is not None and not self._heard.get(number):
            running.cancel()

    async def close(self) -> None:
        await cancelled(*self._running.values())

    async def _answer(self, asked: ControlRequest) -> None:
        remote = self._remote
        try:
            try:
                reply = await self._reply(asked)
            except BaseException as error:  # of the program, which may also raise SystemExit: nothing is allowed
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                await remote.refuse(asked.request_id, "the program failed to answer")
                if isinstance(error, asyncio.CancelledError):
                    error = RuntimeError("a callback of the program was cancelled")
                if not self._failed(error):
                    raise
                return
            self._heard[asked.request_id] = True
            if reply is None:
                await remote.refuse(asked.request_id, "the program answers no such questions")
            else:
                await remote.answer(asked.request_id, reply)
        except CcbError as error:
            remote.warn(f"The answer does not count: {error}")
        except Exception:
            log.exception("a question of the agent was not answered")


async def answer_to(callbacks: Callbacks, asked: ControlRequest) -> Json | None:
    """Return the public answer to a request of the worker, None if nobody answers it."""
    permissions, questions = callbacks.permissions, callbacks.questions
    if asked.subtype == MCP_MESSAGE.name and callbacks.tools:
        from .tools import tools_reply  # 60 ms of pydantic, which only they need

        return {"mcp_response": await tools_reply(callbacks.tools, as_dict(asked.request.get("message")))}
    if asked.subtype == ELICITATION.name and questions is not None:
        return await _filled(asked, questions)
    if asked.subtype != CAN_USE_TOOL.name:
        return None
    asks_person = asked.request.get("requires_user_interaction") is True
    if asks_person and as_blocks(asked.input.get("questions")):
        return await _answered(asked, questions) if questions is not None else None
    return await _permitted(asked, permissions) if permissions is not None else None


async def _permitted(asked: ControlRequest, permissions: Permissions) -> Json:
    approval = Approval(
        tool=asked.tool_name,
        input=asked.input,
        reason=asked.text("decision_reason"),
        description=asked.text("description"),
        suggestions=tuple(as_blocks(asked.request.get("permission_suggestions"))),
        agent=asked.text("agent_id"),
        raw=asked.body,
    )
    said = await called(permissions, approval)
    if said is True:
        said = Allow()
    if isinstance(said, Allow):
        given = asked.input if said.input is None else said.input
        return {"behavior": "allow", "updatedInput": given, "updatedPermissions": [*said.rules]}
    if said is False:
        said = Deny()
    if not isinstance(said, Deny):
        raise TypeError(f"the callback for permissions returned {said!r}: return a bool, ccb.Allow or ccb.Deny")
    return {"behavior": "deny", "message": said.message, "interrupt": said.stop}


async def _answered(asked: ControlRequest, questions: Questions) -> Json:
    answers: dict[str, Any] = {}
    for each in as_blocks(asked.input.get("questions")):
        options = as_blocks(each.get("options"))
        question = Question(
            text=as_text(each.get("question")),
            header=as_text(each.get("header")),
            options=tuple(as_text(option.get("label")) for option in options),
            descriptions=tuple(as_text(option.get("description")) for option in options),
            several=each.get("multiSelect") is True,
        )
        found = await called(questions, question)
        if found is not None:
            answers[question.text] = found if isinstance(found, str) else [*found]
    if not answers:
        return {"behavior": "deny", "message": "The question was not answered."}
    return {"behavior": "allow", "updatedInput": {**asked.input, "answers": answers}}


async def _filled(asked: ControlRequest, questions: Questions) -> Json:
    schema = as_dict(asked.request.get("requested_schema"))
    form = Form(asked.text("mcp_server_name"), asked.text("message"), schema, asked.text("url"))
    found = await called(questions, form)
    if found is None:
        return {"action": "decline"}
    if not isinstance(found, Mapping):
        raise TypeError(f"the callback for questions returned {found!r} for a form: return a dict or None")
    return {"action": "accept", "content": dict(found)}
