"""A session changes while its client is away: somebody stops it, or a power cut takes the end of its journal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.e2e.drops.test_reconnect import daemon_of, where
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.whole_session import STREAM
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited

LONG = "echo run >> count; touch started; while [ ! -e go ]; do sleep 0.05; done"


def journals(user: HostUser) -> list[Path]:
    return list((user.home / ".local/state/ccb/sessions").glob("*/journal.jsonl"))


@pytest.mark.parametrize("damage", ["zeros", "lines removed"])
@pytest.mark.quick_rows(1)
async def test_a_run_whose_last_events_a_power_cut_took_from_the_host_ends_and_says_so(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, damage: str
) -> None:
    call = {"type": "tool_use", "name": "Bash", "input": {"command": LONG}}
    fake_model.add({"blocks": [call]}, {"text": "never asked for"})
    async with relay(sshd.port) as between:
        argv = [*where(host_user, sshd, between), "-p", "go", "--allowedTools", "Bash", *STREAM]
        async with laptop.start(argv, piped=False) as running:
            await running.until("assistant")
            await until((host_user.home / "started").exists)
            (journal,) = journals(host_user)
            between.freeze()
            os.kill(daemon_of(host_user).pid, signal.SIGKILL)
            lines = journal.read_bytes().splitlines(keepends=True)
            seen = max(at for at, line in enumerate(lines) if b'"type":"assistant"' in line)
            kept, gone = b"".join(lines[:seen]), b"".join(lines[seen:])
            journal.write_bytes(kept + b"\0" * len(gone) if damage == "zeros" else kept)
            between.cut()
            between.thaw()
            done = await running.done()
    assert done.code == 75
    assert "the host has lost the last" in done.stderr
    (result,) = done.results
    assert result["is_error"] and "the host has lost the last" in result["errors"][0]
    assert len(fake_model.requests) == 1
    await until(lambda: not processes_of(host_user))
