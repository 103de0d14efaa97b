"""The frames of the link, protocol version 1.

One frame is one JSON object with its kind in `t`. A session message (the public stream-json object) travels inside
`Event.body`, `Progress.body` or `Input.body` and never looks like a frame of its own. Direction and ordering rules stand
in each docstring; `W>L` is worker to laptop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Callable, ClassVar, TypeVar, Union

from .errors import FrameError

PROTOCOL = 1
"""Version of the link. A laptop speaks its own and the one before."""

Json = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True)
class Hello:
    """W>L. The first frame on every connection, sent unprompted. `epoch` is the highest one granted so far, `seq` the
    last event in the journal (0 for a new session), `state` is `idle`, `running` or `requires_action`. `driver` names the
    client that drives, also while its connection is lost; empty when it has left (or never came). `storage` is where the
    journal is: on `disk`, `volatile` (a directory that may not outlive a restart) or in `memory`."""

    t: ClassVar[str] = "hello"
    protocol: int
    bundle: str
    session: str
    pid: int
    python: str
    platform: str
    cwd: str
    epoch: int
    seq: int
    state: str
    capabilities: list[str] = field(default_factory=list)
    storage: str = "disk"
    notes: list[str] = field(default_factory=list)
    driver: str = ""


@dataclass(frozen=True)
class Refused:
    """W>L. Instead of `hello`, or as the answer to an attach that cannot be granted; the connection ends after it.
    `code` is one of `no_such_path` (data: near), `not_a_directory`, `no_storage`, `no_session`, `in_use`, `bad_attach`,
    `waits_for_answer` (data: session), `stopped`, `internal`; `data` is its evidence."""

    t: ClassVar[str] = "refused"
    code: str
    message: str
    data: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Attach:
    """L>W. The first frame of the laptop. Asks for `epoch` (greater than `Hello.epoch`; the daemon grants it or answers
    `fenced`) as `driver`, or watches as `viewer`. Events after `have` are replayed, then live ones follow. `nonce` guards
    model calls on this connection and dies with it; a viewer gives one to read on what it asked for when it drove, else "".
    `options` begin a session that has no events; a driver that sends some to an older session changes what they name; a
    reconnect sends `{"client": name}` only. With `tail` above 0, a client that is further behind than so many bytes gets a
    `snapshot` and only about the last `tail` bytes of events."""

    t: ClassVar[str] = "attach"
    epoch: int
    role: str
    have: int
    nonce: str
    options: Json = field(default_factory=dict)
    tail: int = 0


@dataclass(frozen=True)
class Attached:
    """W>L. The attach was granted, as `role`. Events up to `seq` are replay of what has happened before. `driver` names who
    drives now."""

    t: ClassVar[str] = "attached"
    epoch: int
    role: str
    seq: int
    driver: str = ""


@dataclass(frozen=True)
class Snapshot:
    """W>L. Comes before the first event of a connection that asked for a `tail` and is further behind: the next event is
    number `seq` + 1. `body` is what a client has to know of those it does not get: {"model", "permission_mode", "result"
    (the last result message or null), "todos" (the last list or null), "asks" (open `control_request` messages), "prompts" (those
    that wait or whose turn runs: "input", "uuid", "text" (its start) and whether it was "taken")}."""

    t: ClassVar[str] = "snapshot"
    epoch: int
    seq: int
    body: Json


@dataclass(frozen=True)
class Fetch:
    """L>W. Asks for the events before number `before`, the newest of them, about `most` bytes; also a viewer may."""

    t: ClassVar[str] = "fetch"
    epoch: int
    request: int
    before: int
    most: int


@dataclass(frozen=True)
class Past:
    """W>L. The answer to `fetch`: body {"records": [{"seq", "kind", "body"}, …]} in order and without gaps, ending with the
    event before `before`; empty when there is none."""

    t: ClassVar[str] = "past"
    epoch: int
    request: int
    body: Json


@dataclass(frozen=True)
class Event:
    """W>L. One journal record, in order and without gaps: `seq` is the previous event's plus one. `kind` says what `body`
    is: `message` a public stream-json object; `input` {id, body} an applied input; others are the journal's own facts
    (`tool_start` {tool_use_id, name}, `turn_start`, `turn_end`, …) which clients may show or ignore."""

    t: ClassVar[str] = "event"
    seq: int
    epoch: int
    kind: str
    body: Json


@dataclass(frozen=True)
class Progress:
    """W>L. A public stream-json object that is not journalled (`stream_event`, `tool_progress` and the like), so
    it may be missing after a drop. `key` names a slot: a newer one replaces an older one that was not sent yet; an
    empty key is never replaced. `seq` is that of the last event before it."""

    t: ClassVar[str] = "progress"
    seq: int
    epoch: int
    key: str
    body: Json


@dataclass(frozen=True)
class Input:
    """L>W. A public stream-json object from the client (`user`, `control_request`, `control_response`,
    `control_cancel_request`). Applied once for each `id`, whatever is sent again."""

    t: ClassVar[str] = "input"
    epoch: int
    id: str
    body: Json


@dataclass(frozen=True)
class Applied:
    """W>L. The input `id` is in the journal, now or from an earlier connection."""

    t: ClassVar[str] = "applied"
    epoch: int
    id: str


@dataclass(frozen=True)
class Ack:
    """L>W. Every event up to `seq` has arrived (cumulative)."""

    t: ClassVar[str] = "ack"
    epoch: int
    seq: int


@dataclass(frozen=True)
class Fenced:
    """W>L. Another driver holds `epoch`; `by` describes it and is empty when it has left. Inputs of this connection are
    ignored from here on. Who watches is told of each change."""

    t: ClassVar[str] = "fenced"
    epoch: int
    by: str = ""


@dataclass(frozen=True)
class Open:
    """W>L. Starts the HTTP-shaped stream number `stream` (unique on the connection, chosen by the worker) for model call
    `id`, which names the call for ever: asked again, the auth proxy resumes it at response byte `offset` and does not
    repeat it. `size` is the length of the request body in bytes; its `data` frames may follow at once."""

    t: ClassVar[str] = "open"
    epoch: int
    stream: int
    id: str
    nonce: str
    method: str
    path: str
    headers: dict[str, str]
    size: int
    offset: int = 0


@dataclass(frozen=True)
class Head:
    """L>W. The response head of `stream`, before its first `data`."""

    t: ClassVar[str] = "head"
    epoch: int
    stream: int
    status: int
    headers: dict[str, str]


@dataclass(frozen=True)
class Data:
    """Both ways. Bytes of `stream` from offset `off` of that body, base64, at most `CHUNK` bytes decoded, and never more
    than the receiver's credit."""

    t: ClassVar[str] = "data"
    epoch: int
    stream: int
    off: int
    b64: str


@dataclass(frozen=True)
class End:
    """Both ways. The body of `stream` in this direction is complete, or failed when `error` is not empty."""

    t: ClassVar[str] = "end"
    epoch: int
    stream: int
    error: str = ""


@dataclass(frozen=True)
class Credit:
    """Both ways. The receiver of `stream` has taken `bytes` more; the sender may send as many again."""

    t: ClassVar[str] = "credit"
    epoch: int
    stream: int
    bytes: int


@dataclass(frozen=True)
class Cancel:
    """W>L. The worker no longer wants `stream`; the proxy aborts the upstream request."""

    t: ClassVar[str] = "cancel"
    epoch: int
    stream: int
    reason: str = ""


@dataclass(frozen=True)
class Ping:
    """Both ways. Answered with a `pong` of the same `n`."""

    t: ClassVar[str] = "ping"
    epoch: int
    n: int


@dataclass(frozen=True)
class Pong:
    """Both ways. The answer to `ping`."""

    t: ClassVar[str] = "pong"
    epoch: int
    n: int


@dataclass(frozen=True)
class Detach:
    """L>W. The client leaves; the session goes on. With `done` its worker may end at once when the session is idle, runs
    nothing in the background and nobody else is attached: its journal stays, and a later attach starts it again."""

    t: ClassVar[str] = "detach"
    epoch: int
    done: bool = False


@dataclass(frozen=True)
class Stop:
    """L>W. Ends the session: running tools are killed, the daemon exits. With `finish`, queued work is done first."""

    t: ClassVar[str] = "stop"
    epoch: int
    finish: bool = False


@dataclass(frozen=True)
class Report:
    """W>L. The answer to a host command (`ps`, `logs`, `stop`, `gc`, `clean`), instead of `hello`; several may come, then `bye`.
    `kind` says what `body` is."""

    t: ClassVar[str] = "report"
    kind: str
    body: Json


@dataclass(frozen=True)
class Bye:
    """W>L. The last frame: the daemon is going, `reason` says why."""

    t: ClassVar[str] = "bye"
    reason: str = ""


Frame = Union[
    Hello, Refused, Attach, Attached, Snapshot, Fetch, Past, Event, Progress, Input, Applied, Ack, Fenced, Open, Head, Data,
    End, Credit, Cancel, Ping, Pong, Detach, Stop, Report, Bye,
]  # fmt: skip

_KINDS: dict[str, type[Any]] = {
    kind.t: kind
    for kind in (
        Hello, Refused, Attach, Attached, Snapshot, Fetch, Past, Event, Progress, Input, Applied, Ack, Fenced, Open, Head, Data,
        End, Credit, Cancel, Ping, Pong, Detach, Stop, Report, Bye,
    )
}  # fmt: skip


def _is_int(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_str_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_str_dict(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "int": _is_int,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "Json": lambda value: isinstance(value, dict),
    "list[str]": _is_str_list,
    "dict[str, str]": _is_str_dict,
}

_SHAPES: dict[str, list[tuple[str, Callable[[object], bool]]]] = {
    t: [(f.name, _CHECKS[str(f.type)]) for f in fields(kind)] for t, kind in _KINDS.items()
}

F = TypeVar("F")


def frame_to_dict(frame: Frame) -> Json:
    """The JSON object of a frame, kind first."""
    return {"t": frame.t, **frame.__dict__}


def frame_from_dict(data: object) -> Frame | None:
    """The typed frame, or None for a kind this version does not know (a newer peer's; ignored by rule).

    Raises FrameError when a known kind has a missing field or one of the wrong type. Unknown fields are dropped.
    """
    if not isinstance(data, dict):
        raise FrameError("a frame is a JSON object", repr(data).encode())
    kind = data.get("t")
    if not isinstance(kind, str):
        raise FrameError("a frame names its kind in 't'", repr(data).encode())
    cls = _KINDS.get(kind)
    if cls is None:
        return None
    known: Json = {}
    for name, check in _SHAPES[kind]:
        if name in data:
            if not check(data[name]):
                raise FrameError(f"field {name!r} of a {kind!r} frame has the wrong type", repr(data).encode())
            known[name] = data[name]
    try:
        frame: Frame = cls(**known)
    except TypeError as error:
        raise FrameError(f"a {kind!r} frame is incomplete ({error})", repr(data).encode()) from None
    return frame
