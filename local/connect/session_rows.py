"""The reports of a host about its sessions, as its commands print them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence, Sized
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError

from ccb.deploy.bootstrap import launch
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import ConnectionLost, KeptElsewhere, ProtocolError
from ccb.tunnel.link.worker_refusals import SESSION_ID, refusal_error
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire.frames import Bye, Frame, FrameError, Json, Refused, Report
from ccb.tunnel.wire.ndjson import FrameDecoder

if TYPE_CHECKING:
    from ..config.settings import Settings

STATES = ("running", "requires_action", "idle", "ended", "moved")

MAX_REPORTS = 1_000_000  # reports of one command. More are a ProtocolError.
MAX_SESSIONS = 10_000  # sessions of one host. More are a ProtocolError.
_MAX_TEXT = 16_384
Text = Annotated[str, Field(max_length=_MAX_TEXT)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_MAX_NAME = 1_000


def _host_text(value: object, most: int) -> HostText:
    text = value.raw if isinstance(value, HostText) else value
    if not isinstance(text, str) or len(text) > most:
        raise ValueError(f"a text of at most {most} characters is wanted")
    return HostText(text)


_RAW = PlainSerializer(lambda text: text.raw)
HostWords = Annotated[HostText, PlainValidator(lambda value: _host_text(value, _MAX_TEXT)), _RAW]
"""A text of the host that is shown in lines of ccb."""
_State = Annotated[str, BeforeValidator(lambda state: state if state in STATES else "unknown")]
SessionId = Annotated[str, Field(pattern=SESSION_ID)]
_HostName = Annotated[HostText, PlainValidator(lambda value: _host_text(value, _MAX_NAME)), _RAW]


Row = TypeVar("Row", bound="ReportRow")


class ReportRow(BaseModel):
    """The typed body of a report. Fields that a newer worker adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class SessionRow(ReportRow):
    """A session as its journal describes it, with its worker if one is `alive`. `last` is what it last said, or the
    call that it asks about. `host`: the other host of a shared home, `job` the job of a cluster there; `storage`:
    `memory` or a disk. `rss` is in bytes."""

    session: SessionId
    cwd: HostWords = HostText("")
    state: _State = "unknown"
    age_s: Seconds = 0
    idle_s: Seconds = 0
    prompts: Count = 0
    prompt: _HostName = HostText("")
    last: _HostName = HostText("")
    bytes: Count = 0
    host: _HostName = HostText("")
    job: Text = ""
    storage: Text = ""
    alive: bool = False
    pid: Count = 0
    rss: Count = 0
    driver: _HostName = HostText("")
    driver_away: bool = False
    viewers: Count = 0

    @property
    def may_run(self) -> bool:
        """Whether its worker lives, or may live on another node of its home."""
        return self.alive or bool(self.host)


def with_prompts(rows: Sequence[SessionRow]) -> list[SessionRow]:
    """Return the sessions that were ever asked anything, or have a name: one goes back to no other."""
    return [row for row in rows if row.prompts or row.prompt.raw]


class SaidRow(ReportRow):
    source: Text = ""
    text: HostWords = HostText("")


async def reports(
    transport: Transport,
    bundle: Bundle,
    command: Mapping[str, object],
    most: int = MAX_REPORTS,
    settings: Settings | None = None,
) -> AsyncGenerator[Report, None]:
    """Run one host command and yield the reports of its worker. With `settings` it goes through to the node of the
    session that it is about. Use with `aclosing`. Raises CcbError."""
    launched = await launch(transport, command, bundle)
    count = 0
    try:
        async with aclosing(frames_of(launched.pipe, launched.rest, transport.name)) as frames:
            async for frame in frames:
                if isinstance(frame, Report):
                    count += 1
                    if count > most:
                        raise ProtocolError(f"{transport.name} sends too many reports")
                    yield frame
                elif isinstance(frame, Bye):
                    return
                elif isinstance(frame, Refused):
                    raise refusal_error(frame, transport.name)
        raise ConnectionLost(
            f"the connection to {transport.name} ended before its answer was complete",
            evidence=launched.pipe.stderr_tail().strip(),
            do="Run it again.",
        )
    except KeptElsewhere as kept:
        if settings is None:
            raise
        from .nodes import node_of

        with node_of(kept, transport, settings) as there:
            async with aclosing(reports(there, bundle, command, most)) as answer:
                async for each in answer:
                    yield each
    finally:
        await launched.pipe.close()


async def frames_of(pipe: Pipe, data: bytes, host: str) -> AsyncGenerator[Frame, None]:
    """Yield the frames of a worker, whose first bytes are `data`, until its pipe ends. Raise ProtocolError."""
    decoder = FrameDecoder()
    while True:
        try:
            frames = list(decoder.feed(data))
        except FrameError as error:
            why, do = HostText(error.reason), "Run again with --debug and report it."
            raise ProtocolError(f"{host} sent bytes that are not a frame: {why}", do=do) from None
        for frame in frames:
            yield frame
        data = await pipe.read()
        if not data:
            return


async def rows_of(
    transport: Transport,
    bundle: Bundle,
    command: Mapping[str, object],
    kind: str,
    shape: type[Row],
    most: int = MAX_REPORTS,
    settings: Settings | None = None,
) -> list[Row]:
    """Run one host command, as `reports` does, and return its reports of one kind. Raises CcbError."""
    async with aclosing(reports(transport, bundle, command, most, settings)) as answer:
        return [row_of(shape, each.body, transport.name) async for each in answer if each.kind == kind]


async def list_sessions(transport: Transport, bundle: Bundle, directory: str | None = None) -> list[SessionRow]:
    """Return the sessions of the host, or of a directory there, the most recently used first. Raises CcbError."""
    command = {"command": "ps"} if directory is None else {"command": "ps", "directory": directory}
    rows = await rows_of(transport, bundle, command, "session", SessionRow, MAX_SESSIONS + 1)
    check_number(rows, transport.name)
    return rows


def check_number(rows: Sized, host: str) -> None:
    """Raises ProtocolError if these are more sessions than a host may have."""
    if len(rows) > MAX_SESSIONS:
        what = f"{host} lists more than {MAX_SESSIONS} sessions"
        raise ProtocolError(what, do="Remove old ones: `ccb gc HOST`.")


def row_of(kind: type[Row], body: Json, host: str) -> Row:
    """Parse `body` as a row of the class `kind`. Raises ProtocolError, which names `host`."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ProtocolError(f"{host} sent a report that makes no sense: {first['loc']}: {first['msg']}") from None
