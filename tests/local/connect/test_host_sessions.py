"""How the laptop reads the reports of a host's worker: a real start over a pipe, with a scripted worker."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.worker.compiled import worker_bundle

from ccb.deploy.bundle import Bundle
from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.config.settings import Settings
from ccb.local.connect import session_rows
from ccb.local.connect.host_sessions import HostSessions
from ccb.local.connect.session_rows import list_sessions, reports
from ccb.local.connect.startup import LoadedBasics
from ccb.tunnel.errors import CcbError, ConnectionLost, NoSuchSession, ProtocolError, UsageError
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.wire.frames import Bye, Frame, Refused, Report
from ccb.tunnel.wire.ndjson import encode_frame

_START = """
import os, sys
def start(params, bundle_hash, storage):
    data = %r
    while data:
        data = data[os.write(1, data):]
    sys.exit(0)
"""


def worker(said: bytes) -> Bundle:
    """A bundle whose worker says these bytes and ends."""
    return worker_bundle(_START % said)


def frames(*said: Frame) -> bytes:
    return b"".join(b"".join(encode_frame(frame, 1)) for frame in said)


def session(number: int, **more: object) -> Report:
    return Report("session", {"session": f"{number:08x}-0000-4000-8000-000000000000", **more})


def closed(transport: LocalTransport) -> bool:
    return all(pipe.closed for pipe in transport._pipes)


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[LocalTransport]:
    made = LocalTransport({"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    yield made
    await made.close()


async def test_the_rows_come_in_the_hosts_order_and_a_newer_workers_words_are_passed_over(
    transport: LocalTransport,
) -> None:
    newer = b'{"t":"weather","body":{}}\n'
    said = frames(session(2, age_s=3, future=True), Report("weather", {"session": 7})) + newer
    rows = await list_sessions(transport, worker(said + frames(session(1), Bye())))
    assert [row.session[:8] for row in rows] == ["00000002", "00000001"]
    assert rows[0].age_s == 3


BROKEN: dict[str, tuple[bytes, type[CcbError]]] = {
    "cut off": (frames(session(1)), ConnectionLost),
    "cut in a line": (frames(session(1), Bye())[:-3], ConnectionLost),
    "no frames": (b"Last login: yesterday\n", ProtocolError),
    "an endless line": (b"x" * (300 * 1024), ProtocolError),
    "a wrong shape": (frames(session(1, rss="much"), Bye()), ProtocolError),
    "no name": (frames(Report("session", {}), Bye()), ProtocolError),
}


@pytest.mark.parametrize("answer", BROKEN)
@pytest.mark.quick_rows(2)
async def test_half_an_answer_or_no_answer_is_an_error_and_never_a_short_list(
    transport: LocalTransport, answer: str
) -> None:
    said, error = BROKEN[answer]
    with pytest.raises(error, match="this machine"):
        await list_sessions(transport, worker(said))
    assert closed(transport), "the error comes when all is closed"


async def test_there_is_an_end_to_how_much_a_host_may_list(
    transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_rows, "MAX_SESSIONS", 3)
    assert len(await list_sessions(transport, worker(frames(*map(session, range(3)), Bye())))) == 3
    with pytest.raises(ProtocolError, match="more than 3"):
        await list_sessions(transport, worker(frames(*map(session, range(4)), Bye())))
    with pytest.raises(ProtocolError, match="too many reports"):
        await list_sessions(transport, worker(frames(*[Report("weather", {})] * 5, Bye())))
    assert closed(transport)


async def test_a_session_that_is_not_there_names_those_that_are_meant(transport: LocalTransport) -> None:
    several = Refused("no_session", "several sessions start with ab\x1b[31m", {"near": ["abcd\x07", "abce"]})
    with pytest.raises(NoSuchSession) as caught:
        async with aclosing(reports(transport, worker(frames(several)), {"command": "logs"})) as said:
            await anext(said)
    assert "\x1b" not in str(caught.value) and "\x07" not in str(caught.value)
    assert "abce" in caught.value.evidence
    assert caught.value.exit_code is ExitCode.AGENT_FAILED
    none = Refused("no_session", "there is no session ab", {"near": []})
    with pytest.raises(NoSuchSession) as caught:
        await list_sessions(transport, worker(frames(none)))
    assert "ccb ps --local" in caught.value.do


async def test_one_session_is_looked_at_named_and_removed(transport: LocalTransport) -> None:
    def over(*said: Frame) -> HostSessions:
        async def reached() -> LocalTransport:
            return transport

        return HostSessions(reached, LoadedBasics(Settings(), worker(frames(*said, Bye()))))

    said = [Report("log", {"source": "session", "text": text}) for text in ("driver: me", "prompt: go", "agent: done")]
    last = await over(*said, Report("log", {"source": "worker", "text": "call x"})).last_said("1")
    assert [each.raw for each in last] == ["prompt: go", "agent: done"]
    (row,) = await over(session(1, driver="me")).listed()
    await over(Report("renamed", {"session": "1"})).rename("1", "a name")
    await over(Report("stopped", {"session": "1"}), Report("removed", {"path": "/x"})).remove(row)
    with pytest.raises(ProtocolError, match="did not name"):
        await over().rename("1", "a name")
    with pytest.raises(UsageError, match="could not be stopped"):
        await over(Report("kept", {"path": "/x", "why": "busy"})).stop("1")
    with pytest.raises(UsageError, match="still there"):
        await over(Report("kept", {"path": "/x", "why": "open"})).remove(row)
    assert closed(transport)
