"""What the users of a session see: its client protocol, its events, the state of its connection."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, Protocol

from ccb.tunnel.link.link import Greeting
from ccb.tunnel.plain_text import HostText, neutralise
from ccb.tunnel.wire.client_requests import SHELL_COMMAND
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestKind
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import BEFORE, LATER, PRIORITY, MessageRecord, Record
from ccb.tunnel.wire.messages import ControlRequest, PublicMessage, as_blocks, as_number, as_text, parse_message

Json = dict[str, Any]
Content = str | list[Json]

_MAX_NAME = 200  # characters
_MAX_NAMES, _MAX_FILE_NAME = 100, 1_000
_MAX_PORTS, _MAX_PORT_NAME = 100, 60
_MARK = re.compile(r"(?<=\d) [0-9a-f]{6}$")


@dataclass(frozen=True)
class SessionEvent:
    """An event of the session, or `progress`. `body` is the public object of a `message` and of progress. `replayed`:
    it is from before this client attached."""

    kind: str
    body: Json
    seq: int
    replayed: bool = False

    @cached_property
    def record(self) -> Record:
        return Record(self.seq, 0.0, self.kind, self.body)

    @cached_property
    def public(self) -> PublicMessage:
        content = self.record.content if self.kind == "message" else None
        return content.public if isinstance(content, MessageRecord) else parse_message(self.body)


@dataclass(frozen=True)
class EventGap:
    """The events up to `seq` were skipped; `body` is the state after them. If it is empty and `seq` is not beyond the
    events so far, the host has lost its last events."""

    seq: int
    body: Json


@dataclass(frozen=True)
class ReplayEnd:
    """All that had happened before this client attached has come. One follows each attach, and each `EventGap`."""


@dataclass(frozen=True)
class LinkChange:
    """The connection has changed. `attempt` counts from 1, `retry_at` is monotonic, None while an attempt runs."""

    state: LinkState
    reason: str = ""
    attempt: int = 0
    retry_at: float | None = None


@dataclass(frozen=True)
class LaptopNotice:
    text: str


@dataclass(frozen=True)
class PortOffer(LaptopNotice):
    """A program of the session listens on a port of the host. `text` names the commands that take it."""

    port: int


def parse_ports(body: Json) -> dict[int, HostText]:
    """Return the ports in the body of a `listening` frame with their programs. What is no port is left out."""
    listed = body.get("ports")
    found: dict[int, HostText] = {}
    for each in listed[:_MAX_PORTS] if isinstance(listed, list) else []:
        port = each.get("port") if isinstance(each, dict) else None
        if type(port) is int and 0 < port < 65536:
            found[port] = HostText(str(each.get("name") or "")[:_MAX_PORT_NAME])
    return found


@dataclass(frozen=True)
class FoundNames:
    """Files that part of a name may mean, the best first. `more`: others fit as well. `settled`: asking again soon
    brings the same. `cut`: the tree is too large to list."""

    names: tuple[str, ...]
    more: bool
    settled: bool
    cut: bool


@dataclass(frozen=True)
class OutputPiece:
    """Output of a task from byte `start` on: whole lines, up to byte `next`, then the line that has `begun`. `status`
    is the public one; the task has run for so many `seconds`."""

    status: str
    seconds: float
    start: int
    next: int
    text: str
    begun: str

    @property
    def runs(self) -> bool:
        return self.status == "running"


@dataclass(frozen=True)
class PromptDelivery:
    """How a prompt is delivered. `command_line`: the host runs it. It goes in front of the first of `before` that still
    waits, or last. `waits`: for the end of a running turn; otherwise it goes with the next tool results."""

    command_line: bool = False
    before: tuple[str, ...] = ()
    waits: bool = False

    @property
    def fields(self) -> Json:
        return {
            **({SHELL_COMMAND: True} if self.command_line else {}),
            **({BEFORE: [*self.before]} if self.before else {}),
            **({PRIORITY: LATER} if self.waits else {}),
        }


AS_PROMPT = PromptDelivery()  # as an ordinary prompt, which the agent gets as soon as it can

Item = SessionEvent | EventGap | ReplayEnd | LinkChange | LaptopNotice


def shown_name(client: str) -> HostText:
    """Return a client's name for a person to read, without the suffix that makes it unique."""
    return HostText(_MARK.sub("", client[:_MAX_NAME]))


class Witness(Protocol):
    """Sees what the reader was asked, and what this client says, to decide what the worker may do here."""

    def asked(self, line: ControlRequest) -> None:
        return None

    def withdrawn(self, request_id: str) -> None:
        return None

    def said(self, line: PublicMessage) -> None:
        """This client is about to send a message to the worker."""


class SessionClient(Protocol):
    """One attached session. All methods but `events` may be called at any time, also during a turn."""

    @property
    def hello(self) -> Greeting: ...

    @property
    def state(self) -> LinkState: ...

    @property
    def driving(self) -> bool:
        """Whether inputs of this client count: it is not a viewer and was not fenced."""

    @property
    def unsent(self) -> int: ...

    @property
    def unanswered_s(self) -> float:
        """Seconds since anything came from the host, if it owes an answer to a ping; else 0."""

    @property
    def round_trip_s(self) -> float | None:
        """Seconds that the newest pings took to the host and back; None before the first answer."""

    @property
    def request_bytes(self) -> tuple[int, int]:
        """The bytes of the requests to the model in this run of ccb, and how many crossed the link; 0 if not known."""

    def events(self) -> AsyncIterator[Item]:
        """Yield everything that happens from now on. Raises CcbError when the session is lost for good."""

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[SessionEvent]:
        """Return about `most` bytes of the events before this one, oldest first; [] at the start. Raises CcbError."""

    async def output(self, task_id: str, after: int, most: int, before: int | None = None) -> OutputPiece | None:
        """Return the newest `most` bytes that a task has put out behind byte `after`, or those before byte `before`;
        None for no task. Raises CcbError, also for an older worker, and TimeoutError."""

    async def names(self, query: str) -> FoundNames | None:
        """Return what `query` may mean; None from an older worker. Cancel an older call. Raises CcbError."""

    def retry(self) -> None:
        """Connect now instead of waiting for the next attempt. The login may ask the person."""

    def take_back(self) -> None:
        """Become the driver: as a viewer, or after another client took over. The other client is fenced."""

    async def prompt(self, content: Content, *, uuid: str | None = None, how: PromptDelivery = AS_PROMPT) -> str:
        """Send a user message, which is applied once, and return its uuid. Raises UsageError for who does not drive."""

    async def send(self, body: Json) -> str:
        """Send a raw public object, and return its id in the journal. Raises UsageError, ConnectionLost."""

    async def request(self, request: Request[P, A]) -> A:
        """Ask the worker (`set_model`, `set_permission_mode`, …) and return its typed answer. Raises RequestFailed."""

    async def interrupt(self) -> None:
        """Stop the running turn. Return when the worker has accepted the request. Raises RequestFailed."""

    def register(self, kind: RequestKind[P, A], service: Callable[[P], Awaitable[Json]] | None = None) -> None:
        """Let the worker send requests of this kind, answered by `service`, or by the reader with `answer`."""

    async def answer(self, request_id: str, response: Json) -> None:
        """Answer a `can_use_tool`: {"behavior": "allow" or "deny", …}."""

    async def stop(self, *, finish: bool = False) -> None:
        """End the session on the host: at once, or with `finish` after the queued work."""

    async def close(self, *, done: bool = False) -> None:
        """Leave the session; it goes on without this client. With `done`, its worker may end at once if it is idle."""


@dataclass(frozen=True)
class SnapshotPrompt:
    """A prompt that waits, or runs if `taken`. `text` may be its beginning. `steers`: it does not wait for the turn."""

    ids: tuple[str, ...]
    text: str
    taken: bool
    files: int = 0
    steers: bool = False


@dataclass(frozen=True)
class SkippedState:
    """The state after events that are not loaded. `prompts`, `tasks` (id, text, type, agent), `effort`: None if it does
    not say."""

    model: str
    permission_mode: str
    result: Json | None
    todos: tuple[Json, ...]
    questions: tuple[ControlRequest, ...]
    prompts: tuple[SnapshotPrompt, ...] | None
    sandbox: str = ""
    tasks: tuple[tuple[str, str, str, str], ...] | None = None
    effort: str | None = None
    title: str = ""
    foreign_agent: str = ""


def parse_snapshot(body: Json) -> SkippedState:
    """Parse the body of a snapshot. Broken parts are left out. `prompts` is None if the body has no list of prompts."""
    result, prompts, tasks, todos = (body.get(each) for each in ("result", "prompts", "tasks", "todos"))
    asks = map(parse_message, as_blocks(body.get("asks")))
    return SkippedState(
        model=str(body.get("model") or ""),
        permission_mode=str(body.get("permission_mode") or ""),
        result=result if isinstance(result, dict) else None,
        todos=tuple(as_blocks(todos)) if isinstance(todos, list) else (),
        questions=tuple(line for line in asks if isinstance(line, ControlRequest)),
        prompts=tuple(_prompts(prompts)) if isinstance(prompts, list) else None,
        sandbox=str(body.get("sandbox") or ""),
        tasks=tuple(map(_task, as_blocks(tasks))) if isinstance(tasks, list) else None,
        effort=str(body["effort"]) if "effort" in body else None,
        title=str(body.get("title") or ""),
        foreign_agent=str(body.get("foreign_agent") or ""),
    )


def _task(value: Json) -> tuple[str, str, str, str]:
    text, kind, agent = (as_text(value.get(each)) for each in ("description", "task_type", "agent_id"))
    return str(value.get("task_id")), text, kind, agent


def parse_names(body: Json) -> FoundNames:
    listed = body.get("names")
    names = listed[:_MAX_NAMES] if isinstance(listed, list) else []
    return FoundNames(
        tuple(each for each in names if isinstance(each, str) and _can_be_typed(each)),
        more=body.get("more") is True,
        settled=body.get("settled") is not False,
        cut=body.get("cut") is True,
    )


def parse_output(body: Json) -> OutputPiece | None:
    seconds, start, end = (as_number(body.get(each)) for each in ("seconds", "start", "next"))
    status, text, begun = (as_text(body.get(each)) for each in ("status", "text", "begun"))
    return OutputPiece(status, seconds, int(start), int(end), text, begun) if body else None


def _can_be_typed(name: str) -> bool:
    return 0 < len(name) <= _MAX_FILE_NAME and not set('"\n\t') & set(name) and neutralise(name) == name


def _prompts(values: object) -> Iterator[SnapshotPrompt]:
    for each in as_blocks(values):
        text = str(each.get("text") or "")
        if text.strip():
            files = each.get("files")
            ids = input_ids(each.get("input"), each.get("uuid"))
            count = files if isinstance(files, int) else 0
            yield SnapshotPrompt(ids, text, each.get("taken") is True, count, each.get("steers") is True)


def input_ids(input_id: object, uuid: object) -> tuple[str, ...]:
    """Return the ids under which an input may be known: the one in the journal, then the uuid of its message."""
    return tuple(dict.fromkeys((str(input_id), str(uuid or ""))))


class LinkState(Enum):
    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"  # lost; an attempt is running, or starts at `LinkChange.retry_at`
    NEEDS_PERSON = "needs you"  # lost; the login has a question, so the next attempt waits for `retry`
    FENCED = "watching"  # another client drives; events still come, inputs are refused until `take_back`
    LEAVING = "leaving"  # this client has said that it leaves; only the end follows
    LOST = "lost"  # the session was given up
    CLOSED = "closed"  # the session has ended on the host, or was left


class DriverRole(Enum):
    WATCHES = "watches"  # it is a viewer, or another client took over
    WANTS = "wants"  # the person asked to drive, and the host has not been asked yet
    ASKS = "asks"  # the host was asked to let this client drive; inputs already follow
    DRIVES = "drives"  # the host lets this client drive; after a lost connection it asks again


class LinkChangeKind(Enum):
    ATTACH = "attach"  # an attach was sent, with the present role
    GRANTED = "granted"  # the host lets this client drive
    HOLDS = "holds"  # the host lets this client drive already, although its answer was lost
    YIELD = "yield"  # another client drives, so the next attach asks for a viewer's place
    FENCED = "fenced"  # the host says that this client does not drive
    TAKE_BACK = "take back"  # the person wants to drive
    LOST_LINK = "lost link"
    LOGIN_ASKS = "login asks"
    LEAVE = "leave"
    GIVE_UP = "give up"
    END = "end"


@dataclass(frozen=True)
class LinkStanding:
    link: LinkState
    role: DriverRole

    @property
    def driving(self) -> bool:
        return self.role in (DriverRole.ASKS, DriverRole.DRIVES)

    @property
    def claims(self) -> bool:
        """Whether the person has asked to drive, so that this client takes the session from any other."""
        return self.role in (DriverRole.WANTS, DriverRole.ASKS)

    @property
    def goes_on(self) -> bool:
        return self.link in _LIVE


_LIVE = frozenset(LinkState) - {LinkState.LEAVING, LinkState.LOST, LinkState.CLOSED}
_LINKS: Mapping[LinkChangeKind, tuple[LinkState, frozenset[LinkState]]] = {
    LinkChangeKind.ATTACH: (LinkState.CONNECTED, frozenset({LinkState.CONNECTING})),
    LinkChangeKind.GRANTED: (LinkState.CONNECTED, _LIVE - {LinkState.NEEDS_PERSON}),
    LinkChangeKind.FENCED: (LinkState.FENCED, _LIVE - {LinkState.NEEDS_PERSON}),
    LinkChangeKind.LOST_LINK: (LinkState.RECONNECTING, _LIVE),
    LinkChangeKind.LOGIN_ASKS: (LinkState.NEEDS_PERSON, frozenset({LinkState.RECONNECTING})),
    LinkChangeKind.LEAVE: (LinkState.LEAVING, _LIVE),
    LinkChangeKind.GIVE_UP: (LinkState.LOST, _LIVE | {LinkState.LEAVING}),
    LinkChangeKind.END: (LinkState.CLOSED, _LIVE | {LinkState.LEAVING}),
}  # for each change: the state that it leads to, and the states in which it is possible
_ROLES: Mapping[LinkChangeKind, Mapping[DriverRole, DriverRole]] = {
    LinkChangeKind.ATTACH: {DriverRole.WANTS: DriverRole.ASKS},
    LinkChangeKind.GRANTED: {DriverRole.ASKS: DriverRole.DRIVES},
    LinkChangeKind.HOLDS: {DriverRole.WANTS: DriverRole.DRIVES, DriverRole.ASKS: DriverRole.DRIVES},
    LinkChangeKind.YIELD: {DriverRole.DRIVES: DriverRole.WATCHES, DriverRole.ASKS: DriverRole.WATCHES},
    LinkChangeKind.FENCED: dict.fromkeys(DriverRole, DriverRole.WATCHES),
    LinkChangeKind.TAKE_BACK: {DriverRole.WATCHES: DriverRole.WANTS},
    LinkChangeKind.GIVE_UP: dict.fromkeys(DriverRole, DriverRole.WATCHES),
    LinkChangeKind.END: dict.fromkeys(DriverRole, DriverRole.WATCHES),
}


def target(change: LinkChangeKind) -> LinkState | None:
    """Return the connection state that a change leads to, or None if the change concerns only the role."""
    return _LINKS[change][0] if change in _LINKS else None


def after(standing: LinkStanding, change: LinkChangeKind) -> LinkStanding:
    """Return the standing after a change: the one transition function. An impossible change is ignored."""
    link, role = standing.link, _ROLES.get(change, {}).get(standing.role, standing.role)
    if change in _LINKS:
        to, sources = _LINKS[change]
        link = to if link in sources else link
    return LinkStanding(link, role)
