"""A lost connection to attached again, against the plain connect of the same process, at 100 ms round trip: at most
1.15 times.

A real sshd behind a relay with 50 ms each way. Said beside it, without a limit: the bytes of the replay, the journal's
bytes for an event, and what the fsync of a commit costs against writing alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.connect import Far
from benchmarks.ratio import compare, single, versus
from tests.support.hosts.sshd import HostUser, Sshd, host_user, sshd
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.relay import Relay, relay

from ccb.local.command_line.parser import parse_arguments
from ccb.local.connect.connect_session import connect_session
from ccb.local.connect.host_connection import HostConnection
from ccb.local.session.remote_session import RemoteSession
from ccb.local.session.session_client import LinkChange, LinkState, SessionEvent
from ccb.local.terminal.terminal_prompts import prompts_for
from ccb.remote.session_store.journal import Journal
from ccb.tunnel.wire.control_protocol import Request, client_kind
from ccb.tunnel.wire.journal_records import MessageRecord

DELAY_S = 0.05
RUNS = 9
EVENTS = 200
LIMIT = 1.15


async def _until(session: RemoteSession, state: LinkState) -> None:
    async with asyncio.timeout(30):
        async for item in session.events():
            if isinstance(item, LinkChange) and item.state is state:
                return


async def _answered(session: RemoteSession) -> None:
    async with asyncio.timeout(30):
        async for item in session.events():
            if isinstance(item, SessionEvent) and item.body.get("type") == "result":
                return


async def _measure(
    server: Sshd, user: HostUser, link: Relay, environ: Mapping[str, str], model: FakeModel
) -> tuple[list[float], list[float], float]:
    """Return the seconds of plain connects, the seconds of reattaches, and the bytes received for one reattach."""
    connects, reattaches, replayed = [], [], []
    argv = ["ssh", f"{user.name}@127.0.0.1:~", *server.client_options(link.port)]
    for number in range(RUNS + 1):
        start = time.monotonic()
        arguments = parse_arguments([*argv, "--session-id", f"00000000-0000-4000-8000-{number:012d}"])
        prompts = prompts_for(headless=True)
        async with HostConnection(arguments, prompts, environ) as host, connect_session(host, arguments) as connected:
            session = connected.session
            usage = Request(client_kind("get_context_usage", lambda fields: None), None)
            await session.request(usage)  # sent together with the attach, answered together with its grant
            took = time.monotonic() - start
            model.add({"text": "ok"})
            await session.prompt("hello")
            await _answered(session)
            before = link.down
            start = time.monotonic()
            link.cut()
            await _until(session, LinkState.CONNECTED)
            if number:  # the first one includes the imports
                connects.append(took)
                reattaches.append(time.monotonic() - start)
                replayed.append(link.down - before)
            await session.stop()
            await session.ended()
    return connects, reattaches, statistics.median(replayed)


async def _journal(directory: Path) -> tuple[float, float, float]:
    """Return the bytes of an event, the seconds of an append, and the seconds of an append with its commit."""
    path = directory / "journal.jsonl"
    journal = Journal(str(path))
    body = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "x" * 300}]}}
    start = time.perf_counter()
    for _ in range(EVENTS):
        journal.append(MessageRecord(body))
    alone = (time.perf_counter() - start) / EVENTS
    await journal.commit()
    start = time.perf_counter()
    for _ in range(EVENTS):
        journal.append(MessageRecord(body))
        await journal.commit()
    durable = (time.perf_counter() - start) / EVENTS
    size = path.stat().st_size / (2 * EVENTS)
    await journal.close()
    return size, alone, durable


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ccb-bench-") as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "laptop").mkdir()
        with host_user(top) as user:
            async with sshd(top / "sshd") as server, relay(server.port, delay_s=DELAY_S) as link, FakeModel() as model:
                environ = {
                    "PATH": os.environ["PATH"], "HOME": str(top / "laptop"),
                    "ANTHROPIC_API_KEY": API_KEY, "ANTHROPIC_BASE_URL": model.url,
                }  # fmt: skip
                server.trust(link.port)
                far = Far(server, user, model, top / "laptop")
                ssh = [await far.ssh("-p", str(link.port)) for _ in range(3)]
                connects, reattaches, replayed = await _measure(server, user, link, environ, model)
            journals = list(user.home.glob(".local/state/ccb/sessions/*/journal.jsonl"))
            events = sum(path.read_text().count("\n") for path in journals)
            per_event = sum(path.stat().st_size for path in journals) / events
        size, alone, durable = await _journal(top)
    compare("plain connect to attached", connects, "ssh host true", ssh, None)
    compare("loss to attached again", reattaches, "plain connect", connects, LIMIT)
    single("bytes down for a reattach", replayed, unit="bytes")
    single("journal of one short turn, an event", per_event, unit="bytes")
    versus(f"append of {size:.0f} bytes with fsync", durable * 1e6, "without", alone * 1e6, None, unit="µs")
