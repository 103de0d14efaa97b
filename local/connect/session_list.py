"""The sessions of a host, as its worker reports them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ccb.deploy.bootstrap import launch
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import ConnectionLost, ProtocolError
from ccb.tunnel.link.refusals import refusal_error
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire import Bye, FrameDecoder, FrameError, Json, Refused, Report

MAX_REPORTS = 1_000_000
"""Most reports of one command."""

MAX_SESSIONS = 10_000
"""Most sessions of one host that are listed."""

Text = Annotated[str, Field(max_length=16_384)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Name = Annotated[str, Field(max_length=1000)]

Row = TypeVar("Row", bound="ReportRow")


class ReportRow(BaseModel):
    """The body of a report, typed; unknown fields are a newer worker's."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class SessionRow(ReportRow):
    """One session. Ages in seconds, sizes in bytes; `state` is running, requires_action, idle or ended. `driver_away`: it still
    drives, but has no connection. `host` names the other host it lives on when the home is shared; `storage` is `memory` when
    nothing of it is on a disk."""

    session: str = Field(min_length=1, max_length=64)
    cwd: Text = ""
    state: _Name = ""
    alive: bool = False
    age_s: Seconds = 0
    idle_s: Seconds = 0
    prompts: Count = 0
    prompt: _Name = ""
    driver: _Name = ""
    driver_away: bool = False
    viewers: Count = 0
    pid: Count = 0
    rss: Count = 0
    bytes: Count = 0
    host: _Name = ""
    storage: _Name = ""


async def reports(transport: Transport, bundle: Bundle, command: Mapping[str, object]) -> AsyncGenerator[Report, None]:
    """Run one host command; what its worker reports. To be left with `aclosing`. Raises CcbError."""
    launched = await launch(transport, command, bundle)
    decoder = FrameDecoder()
    count = 0
    try:
        data = launched.rest
        while True:
            try:
                frames = list(decoder.feed(data))
            except FrameError as error:
                raise ProtocolError(
                    f"{transport.name} sent bytes that are no frame: {neutralise(error.reason)}",
                    do="Run again with --debug and report it.",
                ) from None
            for frame in frames:
                match frame:
                    case Report():
                        count += 1
                        if count > MAX_REPORTS:
                            raise ProtocolError(f"{transport.name} reports without end")
                        yield frame
                    case Bye():
                        return
                    case Refused():
                        raise refusal_error(frame, transport.name)
                    case _:
                        pass
            data = await launched.pipe.read()
            if not data:
                raise ConnectionLost(
                    f"the connection to {transport.name} ended before its answer was complete",
                    evidence=neutralise(launched.pipe.stderr_tail().strip()),
                    do="Run it again.",
                )
    finally:
        await launched.pipe.close()


async def list_sessions(transport: Transport, bundle: Bundle) -> list[SessionRow]:
    """The sessions of the host, the one used last first. Raises CcbError."""
    rows = []
    async with aclosing(reports(transport, bundle, {"command": "ps"})) as said:
        async for report in said:
            if report.kind != "session":
                continue
            rows.append(row_of(SessionRow, report.body, transport.name))
            if len(rows) > MAX_SESSIONS:
                what = f"{transport.name} lists more than {MAX_SESSIONS} sessions"
                raise ProtocolError(what, do="Remove old ones: `ccb gc HOST`.")
    return rows


def row_of(kind: type[Row], body: Json, host: str) -> Row:
    """A typed row. Raises ProtocolError."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ProtocolError(f"{host} reported something odd: {first['loc']}: {first['msg']}") from None
