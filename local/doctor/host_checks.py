"""Checks of the host: login shell, worker, round trip, throughput, clock."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import Literal

from ccb.deploy.bootstrap import launch
from ccb.deploy.bootstrap_command import ProbeAnswers
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import CcbError, ConnectionLost, NoPython, ProtocolError
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.pipe import Pipe, Transport
from ccb.tunnel.wire.frames import Bye, CallData, Credit, Frame, Ping, Refused, Report, Stop
from ccb.tunnel.wire.ndjson import encode_frame

from ..connect.session_rows import ReportRow, Text, frames_of, row_of
from .doctor_findings import HOST, Finding, FindingState, error_finding, judged, skew_text
from .ssh_checks import sessions_finding

_MAX_CHECKS = 1000
_SHOWN_NOISE = 200
_SSHD_MESSAGE = "Could not chdir to home directory"
_PINGS = 7
_SIZES = tuple(size * 1024 for size in (4, 32, 128, 512, 2048))
_QUICK_S = 0.3
_SHORTEST_S = 0.001
_CHUNK = 32 * 1024
_SLOW_ROUND_TRIP_S = 0.5
_SLOW_BYTES_S = 64 * 1024
_SKEW_S = 60.0
_ANSWER_S = 30.0


class CheckRow(ReportRow):
    name: Text
    state: Literal["ok", "warn", "block", "info"]
    found: Text = ""
    fix: Text = ""


async def host_findings(transport: Transport, bundle: Bundle) -> AsyncIterator[Finding]:
    """Yield every finding about the host, even if the worker cannot run there. A CcbError becomes a finding."""
    heard = ProbeAnswers()
    try:
        launched = await launch(transport, {"command": "doctor", "keep": False}, bundle, heard=heard)
    except CcbError as error:
        for finding in _shell_findings(heard, used=""):
            yield finding
        yield error_finding(HOST, "Python" if isinstance(error, NoPython) else "worker", error)
        return
    channel = WorkerChannel(transport, launched.pipe, launched.rest)
    try:
        for finding in _shell_findings(heard, used=str(launched.facts.get("exe") or "")):
            yield finding
        yield _noise_finding(heard, launched.pipe)
        if launched.uploaded:
            text = "the worker was not on the host: it was sent for this check and is not kept"
            yield Finding(HOST, "deployment", FindingState.INFO, text)
        count = 0
        while (report := await channel.report("check", "ready")).kind == "check":
            row = row_of(CheckRow, report.body, transport.name)
            yield Finding(HOST, row.name, FindingState(row.state), row.found, row.fix)
            count += 1
            if count > _MAX_CHECKS:
                raise ProtocolError(f"{transport.name} sends too many reports")
        for finding in await _measured(channel):
            yield finding
        yield await sessions_finding(transport)
    except CcbError as error:
        yield error_finding(HOST, "worker", error)
    finally:
        await channel.close()


def _shell_findings(heard: ProbeAnswers, used: str) -> list[Finding]:
    """Return what the login shell reported before any Python ran. `used` is the Python that runs the worker."""
    facts, found = heard.facts, []
    if facts:
        shown = {name: value for name, value in facts.items() if not used or (name in ("umask", "path") and value)}
        lines = [f"{name} {value}" for name, value in shown.items()]
        found.append(Finding(HOST, "shell", FindingState.INFO, neutralise("\n".join(lines))))
    pythons = list(dict.fromkeys(neutralise(each) for each in heard.pythons))
    lines = [f"{each}{' (used)' if each.rpartition(' ')[0] == used else ''}" for each in pythons]
    if used or lines:
        found.append(Finding(HOST, "Pythons", FindingState.OK if used else FindingState.INFO, "\n".join(lines)))
    return found


def _noise_finding(heard: ProbeAnswers, pipe: Pipe) -> Finding:
    """Return a finding about output that the login shell prints before the worker starts."""
    lines = pipe.stderr_tail().splitlines(keepends=True)
    errors = "".join(line for line in lines if not line.startswith(_SSHD_MESSAGE))
    text = f"{heard.noise} bytes on stdout, {len(errors.encode())} on stderr before the worker"
    if not heard.noise and not errors:
        return judged(HOST, "shell noise", text)
    texts = (heard.noise_text.decode("utf-8", "replace"), errors)
    start = "\n".join(neutralise(each.strip()[:_SHOWN_NOISE]) for each in texts if each.strip())
    fix = "Let start-up files print only in interactive shells: ccb copes with it, other programs over ssh do not."
    return judged(HOST, "shell noise", f"{text}\n{start}", fix)


class ClockRow(ReportRow):
    """The answer to a ping: the host's clock."""

    n: int
    now: float


async def _measured(channel: WorkerChannel) -> list[Finding]:
    trips: list[float] = []
    skew = 0.0
    for number in range(_PINGS):
        before, began = time.time(), time.monotonic()
        await channel.send(Ping(0, number))
        clock = row_of(ClockRow, (await channel.report("clock")).body, "the host")
        trip = time.monotonic() - began
        if not trips or trip < min(trips):
            skew = clock.now - (before + trip / 2)
        trips.append(trip)
    trips.sort()
    down = await _throughput(channel, trips[0], down=True)
    await _transfer(channel, 0, down=False)  # wait for data on its way: it must not count towards the next transfers
    up = await _throughput(channel, trips[0], down=False)
    middle = trips[len(trips) // 2]
    took = f"{middle * 1000:.1f} ms (best {trips[0] * 1000:.1f}, worst {trips[-1] * 1000:.1f}, of {len(trips)})"
    slow = "Everything works, but slowly: "
    nearer = f"{slow}look for a nearer jump host or a better network." if middle > _SLOW_ROUND_TRIP_S else ""
    speed = f"{_rate(down)} from the host, {_rate(up)} to it"
    help_ = f"{slow}`Compression yes` in ssh_config may help, or a better network."
    wrong = "Set the host's clock (chrony, ntp): ccb works without it, but certificates and make need it."
    return [
        judged(HOST, "round trip", took, nearer),
        judged(HOST, "throughput", speed, help_ if min(down, up) < _SLOW_BYTES_S else ""),
        judged(HOST, "clock", skew_text(skew, 0.1, "this machine"), wrong if abs(skew) > _SKEW_S else ""),
    ]


async def _throughput(channel: WorkerChannel, round_trip: float, *, down: bool) -> float:
    """Return bytes per second beyond the `round_trip`. Transfers grow until one takes long enough to measure."""
    rate = 0.0
    for size in _SIZES:
        took = await _transfer(channel, size, down=down) - round_trip
        rate = size / max(took, _SHORTEST_S)
        if took > _QUICK_S:
            break
    return rate


async def _transfer(channel: WorkerChannel, size: int, *, down: bool) -> float:
    began = time.monotonic()
    if down:
        await channel.send(Credit(0, 0, size), Ping(0, 0))
    else:
        for offset in range(0, size, _CHUNK):
            await channel.send(CallData(0, 0, offset, secrets.token_hex(min(_CHUNK, size - offset) // 2)))
        await channel.send(Ping(0, 0))
    while (await channel.report("bulk", "clock")).kind == "bulk":
        pass
    return time.monotonic() - began


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / 1e6:.1f} MB/s" if bytes_a_second >= 1e6 else f"{bytes_a_second / 1e3:.0f} KB/s"


class WorkerChannel:
    """Sends frames to the doctor's worker and receives its reports, one at a time."""

    def __init__(self, transport: Transport, pipe: Pipe, rest: bytes) -> None:
        self._host = transport.name
        self._pipe = pipe
        self._frames = frames_of(pipe, rest, transport.name)
        self._last = "its start"

    async def send(self, *frames: Frame) -> None:
        await self._pipe.write(b"".join(line for frame in frames for line in encode_frame(frame)))

    async def report(self, *kinds: str) -> Report:
        """Wait for the next report, which must be of one of `kinds`. Raises CcbError."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                frame = await anext(self._frames, Bye("the channel ended"))
        except TimeoutError:
            raise ConnectionLost(
                f"{self._host} went silent in the middle of its checks",
                evidence=f"The last check that it reported: {self._last}.\n{self._pipe.stderr_tail().strip()}",
                do="Run it again; look for a file system on the host that does not answer.",
            ) from None
        if isinstance(frame, Refused):
            raise refusal_error(frame, self._host)
        if not isinstance(frame, Report) or frame.kind not in kinds:
            do = "Run again with --debug."
            raise ProtocolError(f"{self._host} sent a frame that is not a report of its checks", do=do)
        self._last = neutralise(str(frame.body.get("name") or "the measurements"))[:80]
        return frame

    async def close(self) -> None:
        with contextlib.suppress(CcbError):
            await self.send(Stop(0))
        await self._frames.aclose()
        await self._pipe.close()
