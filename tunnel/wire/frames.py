"""Every frame of the link, model calls and look-ups included.

A frame is one JSON object; `t` names its kind. A session message (a public stream-json object) travels inside a `body`,
so it can never be read as a frame. `W>L` is worker to laptop, `L>W` laptop to worker.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, ClassVar, Union, get_args

from .dataclass import dataclass

CHUNK = 96 * 1024  # bytes in one `data` frame, at most. In base64 they are 128 KiB, well below the limit of a line

Json = dict[str, Any]

INITIAL_CREDIT = 1024 * 1024  # bytes that may be sent on a new stream, each way, before the first `credit`


@dataclass(frozen=True)
class CallOpen:
    """W>L. Starts the stream `stream` for the model call `id`, a name for ever: when it is asked for again, the auth
    proxy resumes its response at byte `offset`. `size` is the length of the body; its `data` frames may follow at once.
    To a laptop that takes deltas the worker names the body by its SHA-256, in `digest`. With `parts`, the `data` frames
    carry only what is new in it, `sent` bytes, `deflated` or not; the laptop makes the body of them and of the one
    whose digest is `base`. With `primed`, the end of that one is the dictionary (`body_deltas.py`)."""

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
    digest: str = ""
    base: str = ""
    parts: list[int] = field(default_factory=list)
    sent: int = 0
    deflated: bool = False
    primed: bool = False


@dataclass(frozen=True)
class CallHead:
    """L>W. The head of the response on `stream`, before its first `data`."""

    t: ClassVar[str] = "head"
    epoch: int
    stream: int
    status: int
    headers: dict[str, str]


@dataclass(frozen=True)
class CallData:
    """Both ways. Bytes of a body on `stream`, in base64, from `off` on: at most `CHUNK`, and within the credit."""

    t: ClassVar[str] = "data"
    epoch: int
    stream: int
    off: int
    b64: str


@dataclass(frozen=True)
class Packed(CallData):
    """L>W. Bytes of a response, compressed, for a worker whose hello has the capability `packed`. Offset and credit
    count the bytes before that."""

    t: ClassVar[str] = "packed"


@dataclass(frozen=True)
class CallEnd:
    """Both ways. The body on `stream` in this direction is complete; when `error` is not empty, it failed. With
    `whole`, the laptop could not make the body of its parts: the worker opens the call again and sends all of it."""

    t: ClassVar[str] = "end"
    epoch: int
    stream: int
    error: str = ""
    whole: bool = False


@dataclass(frozen=True)
class Credit:
    """Both ways. The receiver of `stream` has taken `bytes` more bytes; the sender may send that many again."""

    t: ClassVar[str] = "credit"
    epoch: int
    stream: int
    bytes: int


@dataclass(frozen=True)
class Cancel:
    """W>L. The worker no longer needs `stream`: the auth proxy cancels the request to the provider."""

    t: ClassVar[str] = "cancel"
    epoch: int
    stream: int
    reason: str = ""


CHANNELS = "raw_channels"  # the capability of a worker that has the kinds of `channels.py`


@dataclass(frozen=True)
class ChannelOpen:
    """L>W. Opens a channel: bytes both ways between the laptop and something of `kind` on the host that `body` names.
    `channel` is a number that this client has not used before. After a lost connection the laptop sends it again, for
    each channel that it still has; `begun`: the worker has spoken of it, so it must know it. The worker opens none."""

    t: ClassVar[str] = "channel"
    channel: int
    kind: str
    body: Json
    begun: bool = False


@dataclass(frozen=True)
class ChannelData:
    """Both ways. Bytes on `channel` from `off` on: at most `CHUNK`, and up to where the receiver takes. On the wire,
    `data` is their number; they follow the line as they are, for base64 costs more time than all the rest of a copy."""

    t: ClassVar[str] = "channel_data"
    channel: int
    off: int
    data: bytes


@dataclass(frozen=True)
class ChannelCredit:
    """Both ways. The receiver has `have` bytes of `channel`, one more if it has their end, and takes them up to byte
    `up_to`. Both ends send it first on a new connection."""

    t: ClassVar[str] = "channel_credit"
    channel: int
    have: int
    up_to: int


@dataclass(frozen=True)
class ChannelEnd:
    """Both ways. No more bytes come in this direction. With an `error`, the channel is closed in both. From the worker,
    `body` says how what was opened has ended."""

    t: ClassVar[str] = "channel_end"
    channel: int
    error: str = ""
    body: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Listening:
    """W>L. The ports on which processes of the session listen, after each change, and to each client that attaches.
    `body` is {"ports": [{"port", "name" (of the program)}, …]}."""

    t: ClassVar[str] = "listening"
    epoch: int
    body: Json


NAMES = "names"  # the capability of a worker that answers


@dataclass(frozen=True)
class FindNames:
    """L>W. Asks for the files that `query`, typed behind an `@`, may mean. A newer question replaces it."""

    t: ClassVar[str] = "find_names"
    epoch: int
    request: int
    query: str


@dataclass(frozen=True)
class NamesFound:
    """W>L. `body` is {"names" (relative to the directory of the session, best first; directories end with a slash),
    "more" (there are more that fit), "settled" (the same question has the same answer soon), "cut" (the tree is too
    large to be known)}."""

    t: ClassVar[str] = "names_found"
    epoch: int
    request: int
    body: Json


OUTPUT = "task_output"  # the capability of a worker that answers


@dataclass(frozen=True)
class ReadOutput:
    """L>W. Asks for the newest output of a task behind its byte `after`, or the last before its byte `before`, at most
    `most` bytes. Viewers may ask too."""

    t: ClassVar[str] = "read_output"
    epoch: int
    request: int
    task_id: str
    after: int
    most: int
    before: int | None = None


@dataclass(frozen=True)
class OutputRead:
    """W>L. `body` is {"status", "seconds" (since the task began), "start" (the number of the first byte), "text" (whole
    lines), "next" (the number of the byte behind them), "begun" (the line that is not whole yet)}; {} for no task."""

    t: ClassVar[str] = "output_read"
    epoch: int
    request: int
    body: Json


@dataclass(frozen=True)
class Fetch:
    """L>W. Asks for the newest events before number `before`, about `most` bytes of them. Viewers may ask too."""

    t: ClassVar[str] = "fetch"
    epoch: int
    request: int
    before: int
    most: int


@dataclass(frozen=True)
class Past:
    """W>L. The answer to `fetch`: {"records": [{"seq", "kind", "body"}, …]}, without gaps up to `before`."""

    t: ClassVar[str] = "past"
    epoch: int
    request: int
    body: Json


PROTOCOL = 1  # version of the link protocol. A laptop speaks its own version and the one before


class FrameError(Exception):
    """Bytes from the wire are not a frame of this protocol: the broken rule, and the start of the bytes."""

    def __init__(self, reason: str, sample: bytes = b"") -> None:
        shown = sample[:80].decode("utf-8", "backslashreplace")
        super().__init__(f"{reason}: {shown!r}" if sample else reason)
        self.reason = reason
        self.sample = sample[:80]


@dataclass(frozen=True)
class Hello:
    """W>L. The first frame on every connection.

    `epoch` is the highest epoch granted so far, `seq` the number of the last event in the journal (0 for a new
    session). `state` is `idle`, `running` or `requires_action`. `driver` names the client that drives, even while its
    connection is lost ("": none). `storage` says where the journal is: on `disk`, `volatile` (it may not survive a
    reboot) or in `memory`. `sandbox` is the cage in force, in words ("": not yet known). `last` holds the last records
    of a long journal, as in a `past` frame: they are only shown until the events themselves come. `node` is the name of
    the machine on which the worker runs."""

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
    sandbox: str = ""
    last: Json = field(default_factory=dict)
    node: str = ""


@dataclass(frozen=True)
class Refused:
    """W>L. Sent instead of `hello`, or as the answer to an attach that cannot be granted; the connection ends. `code`
    is one of `no_such_path` (data: near), `not_a_directory`, `no_storage`, `no_session`, `in_use`, `bad_attach`,
    `waits_for_answer` (data: session), `no_sandbox` (data: why, place), `stopped`, `internal`."""

    t: ClassVar[str] = "refused"
    code: str
    message: str
    data: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Attach:
    """L>W. The first frame of the laptop: it asks to drive the session as `driver`, or to watch it as `viewer`.

    A driver asks for an `epoch` greater than `Hello.epoch`; the daemon grants it or answers `fenced`. Events after
    number `have` are replayed, then live ones follow. `nonce` guards the model calls of this connection and dies with
    it; a viewer sends one only to read the rest of the calls that it made as driver. `options` start a session that has
    no events yet; in an older session they change what they name. A client that is more than `tail` bytes behind (if
    that is above 0) gets a `snapshot` and only about the last `tail` bytes of events. `deltas` and `primed` say which
    bodies of model calls the laptop takes, see `CallOpen`. The worker ends the channels of the client that are not in
    `channels`."""

    t: ClassVar[str] = "attach"
    epoch: int
    role: str
    have: int
    nonce: str
    options: Json = field(default_factory=dict)
    tail: int = 0
    deltas: bool = False
    primed: bool = False
    channels: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Attached:
    """W>L. The attach is granted. Events up to `seq` are a replay of the past. `driver` names who drives now."""

    t: ClassVar[str] = "attached"
    epoch: int
    role: str
    seq: int
    driver: str = ""


@dataclass(frozen=True)
class Snapshot:
    """W>L. Sent in place of the events up to `seq` to a client that is further behind than its `tail`. `body` is what
    it has to know of them: {"model", "permission_mode", "sandbox" (the cage in force, in words), "result" (the last
    result or null), "todos" (the last list or null), "asks" (the open `control_request` messages), "prompts" (those
    that wait and those whose turn runs, each with "input", "uuid", "text" (its start) and "taken"), "foreign_agent" if
    one works in the session}."""

    t: ClassVar[str] = "snapshot"
    epoch: int
    seq: int
    body: Json


@dataclass(frozen=True)
class Event:
    """W>L. One journal record, in order and without gaps: `seq` is the number of the previous event plus one. `kind`
    says what `body` is; `journal_records.py` has a class for each."""

    t: ClassVar[str] = "event"
    seq: int
    epoch: int
    kind: str
    body: Json


@dataclass(frozen=True)
class Progress:
    """W>L. A public stream-json object that is not journalled, so it may be lost with the connection. A newer object
    replaces an older unsent one of the same `key`, if that is not empty. `seq` is of the event before it."""

    t: ClassVar[str] = "progress"
    seq: int
    epoch: int
    key: str
    body: Json


@dataclass(frozen=True)
class Input:
    """L>W. A public stream-json object from the client (`user`, `control_request`, `control_response`,
    `control_cancel_request`). It is applied once for each `id`, however often it is sent."""

    t: ClassVar[str] = "input"
    epoch: int
    id: str
    body: Json


@dataclass(frozen=True)
class Applied:
    """W>L. The input `id` is in the journal, from this connection or an earlier one."""

    t: ClassVar[str] = "applied"
    epoch: int
    id: str


@dataclass(frozen=True)
class Ack:
    """L>W. Every event up to number `seq` has arrived."""

    t: ClassVar[str] = "ack"
    epoch: int
    seq: int


@dataclass(frozen=True)
class Fenced:
    """W>L. Another driver holds `epoch`: inputs of this connection are ignored from here on. `by` describes it, "" if
    it has left. Viewers get this frame at every change of driver."""

    t: ClassVar[str] = "fenced"
    epoch: int
    by: str = ""


@dataclass(frozen=True)
class Ping:
    """Both ways. Must be answered with a `pong` that has the same `n`."""

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
    """L>W. The client leaves; the session goes on. With `done` the worker may end when the session is idle, runs
    nothing in the background and has no other client; a later attach starts a worker again."""

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
    """W>L. An answer to a host command (`ps`, `logs`, `stop`, `gc`, `clean`), instead of `hello`; the last is `bye`."""

    t: ClassVar[str] = "report"
    kind: str
    body: Json


@dataclass(frozen=True)
class Bye:
    """W>L. The last frame: the daemon ends."""

    t: ClassVar[str] = "bye"
    reason: str = ""


Frame = Union[
    Hello, Refused, Attach, Attached, Snapshot, Fetch, Past, Event, Progress, Input, Applied, Ack, Fenced, CallOpen,
    CallHead, CallData, Packed, CallEnd, Credit, Cancel, Ping, Pong, Detach, Stop, Report, Bye, FindNames, NamesFound,
    ChannelOpen, ChannelData, ChannelCredit, ChannelEnd, Listening,
    ReadOutput, OutputRead,
]  # fmt: skip

_KINDS: dict[str, type[Any]] = {kind.t: kind for kind in get_args(Frame)}


def fits(kind: str, value: object) -> bool:
    """Return whether a value of JSON has the type that an annotation names."""
    if kind.endswith(" | None"):
        return value is None or fits(kind[: -len(" | None")], value)
    if kind.startswith("list["):
        return isinstance(value, list) and all(fits(kind[len("list[") : -1], each) for each in value)
    if kind == "dict[str, str]":
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if kind == "int":
        return type(value) is int and 0 <= value < 2**53
    return isinstance(value, dict) if kind == "Json" else type(value).__name__ == kind


_SHAPES: dict[str, list[tuple[str, str]]] = {
    t: [(f.name, str(f.type)) for f in fields(kind)] for t, kind in _KINDS.items()
}


def frame_to_dict(frame: Frame) -> Json:
    return {"t": frame.t, **frame.__dict__}


def frame_from_dict(data: object) -> Frame | None:
    """Return the typed frame without unknown fields, None for a kind that this version does not know. Raise FrameError
    when a field of a known kind is missing or has the wrong type."""
    kind = data.get("t") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str):
        raise FrameError("a frame is a JSON object that names its kind in 't'", repr(data).encode())
    cls = _KINDS.get(kind)
    if cls is None:
        return None
    known: Json = {}
    for name, wanted in _SHAPES[kind]:
        if name in data:
            if not fits(wanted, data[name]):
                raise FrameError(f"field {name!r} of a {kind!r} frame has the wrong type", repr(data).encode())
            known[name] = data[name]
    try:
        frame: Frame = cls(**known)
    except TypeError as error:
        raise FrameError(f"a {kind!r} frame is incomplete ({error})", repr(data).encode()) from None
    return frame
