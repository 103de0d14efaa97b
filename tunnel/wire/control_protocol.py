"""Requests between the ends of a session (`control_request`), their answers and their withdrawals."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import Any, Callable, Generic, Protocol, TypeVar, Union

from .dataclass import dataclass
from .frames import Json
from .messages import ControlResponse

P = TypeVar("P")
A = TypeVar("A", covariant=True)


class AnsweredBy(Enum):
    """Who may answer a request."""

    PERSON = "person"  # somebody at the terminal of the driver, or the program that stands in for them
    CLIENT = "client"  # the program that drives the session, such as an SDK client
    LAPTOP = "laptop"  # a service of ccb on the driver's laptop
    WORKER = "worker"  # the worker of the session


class RequestRefused(Exception):
    """The answering end refuses a request, with the public `error_code` in `code`."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class RequestFailed(Exception):
    """A request was answered with an error, or not within its deadline."""


class RequestMoot(Exception):
    """A request was withdrawn, because what it asks for is decided without an answer now."""


@dataclass(frozen=True)
class Success:
    """The answer to a request that was carried out. `payload` is None if the answer has none."""

    request_id: str
    payload: Json | None = None


@dataclass(frozen=True)
class Failure:
    """The answer to a request that was not carried out. `code` is the public `error_code`, "" for none."""

    request_id: str
    error: str
    code: str = ""


Answer = Union[Success, Failure]


def new_uuid() -> str:
    """Return a random UUID. Importing the module `uuid` takes 3 ms."""
    made = bytearray(os.urandom(16))
    made[6] = made[6] & 15 | 64
    made[8] = made[8] & 63 | 128
    text = made.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def payload_of(answer: Answer) -> Json:
    """Raise RequestFailed for an error."""
    if isinstance(answer, Failure):
        raise RequestFailed(answer.error)
    return answer.payload or {}


def public_fields(payload: Any) -> Json:
    """Return the fields of a dataclass, without those that are None."""
    return {name: value for name, value in vars(payload).items() if value is not None}


def _unread(_: Json) -> Any:
    raise RequestRefused("requests of this kind are not read here")


@dataclass(frozen=True)
class RequestKind(Generic[P, A]):
    """One kind of request. `name` is its public `subtype`. The asking end uses `write` and `read_answer`, which raises
    RequestFailed; the answering end uses `read`, which raises RequestRefused. `deadline_s`: None waits for ever.

    An unanswered request of the worker goes to each new driver. If it is `journalled`, every client sees it, and it is
    withdrawn when the worker starts again."""

    name: str
    answered_by: AnsweredBy
    read_answer: Callable[[Answer], A]
    write: Callable[[P], Json] = public_fields
    read: Callable[[Json], P] = _unread
    journalled: bool = True
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        if not self.journalled and self.deadline_s is None:
            raise ValueError(f"a request that is in no journal needs a deadline: {self.name}")


@dataclass(frozen=True)
class Request(Generic[P, A]):
    """One request. `about` names its subject in a word or two, `agent_id` is the agent that asks. `is_moot` returns
    whether what it asks for is decided without an answer now."""

    kind: RequestKind[P, A]
    payload: P
    about: str = ""
    agent_id: str = ""
    id: str = field(default_factory=new_uuid)
    is_moot: Callable[[], bool] = lambda: False

    def public(self) -> Json:
        request = {"subtype": self.kind.name, **self.kind.write(self.payload)}
        return {"type": "control_request", "request_id": self.id, "request": request}


def public_answer(answer: Answer) -> Json:
    if isinstance(answer, Failure):
        response: Json = {"subtype": "error", "request_id": answer.request_id, "error": answer.error}
        if answer.code:
            response["error_code"] = answer.code
    else:
        response = {"subtype": "success", "request_id": answer.request_id}
        if answer.payload is not None:
            response["response"] = answer.payload
    return {"type": "control_response", "response": response}


def public_withdrawal(request_id: str) -> Json:
    return {"type": "control_cancel_request", "request_id": request_id}


def answer_in(line: ControlResponse) -> Answer:
    """Return the answer in a `control_response`. What is not clearly a success is a failure."""
    if line.subtype != "success":
        return Failure(line.request_id, line.error or "no reason given", line.code)
    return Success(line.request_id, line.payload)


@dataclass(frozen=True)
class AskedBecause:
    """Why a call is not simply allowed: three fields of the public `can_use_tool` request."""

    decision_reason: str = ""
    decision_reason_type: str = ""
    blocked_path: str | None = None


@dataclass(frozen=True)
class ToolApproval:
    """May this tool call run? As the public `can_use_tool` request, with fields of ccb: `agent` describes the sub-agent
    that asks, `can_be_caged` says that the workspace cage would make the question needless, `reads_services` the same
    of the rule READS_SERVICES, `file_change` is what an edit would do (see `remote.tools.tool_contract.Preview`)."""

    tool_name: str
    display_name: str
    input: Json
    tool_use_id: str
    permission_suggestions: Sequence[Json] = ()
    why: AskedBecause = AskedBecause()
    description: str | None = None
    sandbox: str | None = None  # the cage in which the call would run, in words
    file_change: Json | None = None
    requires_user_interaction: bool | None = None  # the call itself is a question to the person
    agent_id: str | None = None
    agent: str | None = None
    mcp_server: Json | None = None
    can_be_caged: bool | None = None  # an answer may hold {"type": SET_SANDBOX, "sandbox": "workspace"} as an update
    reads_services: bool | None = None


READS_SERVICES = "reads:services"
"""The rule about commands that allows what operators read: docker, kubectl, systemctl and others, without a cage."""

AGENT_OPTION = "agentOption"
"""The type of the update that grants what another agent offers at its question, by the `name` and `option` it gave."""

SET_SANDBOX = "setSandbox"
"""The type of the update by which commands run in the workspace cage from now on, also the call in question."""


@dataclass(frozen=True)
class ToolPermission:
    """The person's answer about one tool call. `updates` have the public shape; `interrupt` ends the turn as well."""

    allow: bool
    message: str = ""
    updated_input: Json | None = None
    updates: Sequence[Json] = ()
    interrupt: bool = False

    @staticmethod
    def from_answer(answer: Answer) -> ToolPermission:
        """Anything that is not a clear yes is a no."""
        if isinstance(answer, Failure):
            kind = "" if answer.error.startswith("AbortError: ") else "Error: "
            return ToolPermission(False, f"Tool permission request failed: {kind}{answer.error}")
        payload = answer.payload
        if payload is None:
            return ToolPermission(False, "Tool permission request failed: Error: the answer is empty")
        if payload.get("behavior") == "allow":
            updated, updates = payload.get("updatedInput"), payload.get("updatedPermissions")
            kept = [each for each in updates if isinstance(each, dict)] if isinstance(updates, list) else ()
            return ToolPermission(True, "", updated if isinstance(updated, dict) else None, kept)
        message = str(payload.get("message") or "The user refused.")
        return ToolPermission(False, message, interrupt=payload.get("interrupt") is True)


def _approval_fields(asked: ToolApproval) -> Json:
    fields = public_fields(asked)
    why: AskedBecause = fields.pop("why")
    return {**fields, **public_fields(why)}


CAN_USE_TOOL: RequestKind[ToolApproval, ToolPermission] = RequestKind(
    "can_use_tool", AnsweredBy.PERSON, ToolPermission.from_answer, _approval_fields
)


@dataclass(frozen=True)
class HookCallback:
    """Run a hook of the driving program on the event `input`. The answer is what a command hook prints."""

    callback_id: str
    input: Json
    tool_use_id: str


HOOK_CALLBACK: RequestKind[HookCallback, Json] = RequestKind("hook_callback", AnsweredBy.CLIENT, payload_of)

CLIENT_DEADLINE_S = 60.0  # seconds a client waits for the worker while it is connected, as official clients do


def client_kind(
    name: str, read: Callable[[Json], P], write: Callable[[P], Json] = lambda _: {}
) -> RequestKind[P, Json]:
    return RequestKind(name, AnsweredBy.WORKER, payload_of, write, read, deadline_s=CLIENT_DEADLINE_S)


def value_kind(name: str, key: str, fits: Callable[[Any], bool], wrong: str) -> RequestKind[Any, Json]:
    """Return a kind whose payload is one value, which `fits`, under `key`. `wrong` says why another one is refused."""

    def read(fields: Json) -> Any:
        if not fits(fields.get(key)):
            raise RequestRefused(wrong)
        return fields.get(key)

    return client_kind(name, read, lambda value: {key: value})


INTERRUPT: RequestKind[bool | None, Json] = client_kind(
    "interrupt", lambda fields: fields.get("cancel_queued") is True, lambda on: {"cancel_queued": True} if on else {}
)
SET_MODEL: RequestKind[str | None, Json] = value_kind(
    "set_model", "model", lambda name: name is None or isinstance(name, str), "the model must be a name or null"
)
SET_PERMISSION_MODE: RequestKind[str, Json] = client_kind(
    "set_permission_mode", lambda fields: str(fields.get("mode")), lambda mode: {"mode": mode}
)


@dataclass(frozen=True)
class ProjectTrust:
    """May what the files of a project switch on count? `switches` are `project_switches.ProjectSwitch` as objects;
    `fingerprint` changes with any of them. `problems` are about files that cannot be used; they may come alone."""

    directory: str
    fingerprint: str
    switches: Sequence[Json] = ()
    problems: Sequence[str] = ()


def _read_project_trust(fields: Json) -> ProjectTrust:
    directory, fingerprint = fields.get("directory"), fields.get("fingerprint")
    switches, problems = fields.get("switches"), fields.get("problems")
    if not (
        (isinstance(directory, str) and isinstance(fingerprint, str))
        and (isinstance(switches, list) and isinstance(problems, list))
        and all(isinstance(each, dict) for each in switches)
    ):
        raise RequestRefused("the question about trust is not readable")
    shown = [{str(key): str(value) for key, value in each.items()} for each in switches]
    return ProjectTrust(directory, fingerprint, shown, [str(each) for each in problems])


TRUST_PROJECT: RequestKind[ProjectTrust, bool] = RequestKind(
    "trust_project",
    AnsweredBy.LAPTOP,
    lambda answer: isinstance(answer, Success) and (answer.payload or {}).get("trusted") is True,  # else no
    read=_read_project_trust,
)


class Broker(Protocol):
    """Sends requests to someone outside the worker: the person, the driving program, or a service on the laptop."""

    def can_ask(self, kind: RequestKind[P, A]) -> bool:
        """Return whether anyone can answer requests of this kind: in a headless run, perhaps no person can."""

    async def request(self, request: Request[P, A]) -> A:
        """Send a request and return the typed answer, also across lost connections. Raise RequestFailed, RequestMoot,
        NotKept."""

    def reconsider(self) -> None:
        """Withdraw the requests that are moot now. Raise NotKept."""
