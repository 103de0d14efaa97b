"""Fixtures of the faulty sessions."""

from __future__ import annotations

import asyncio
import fcntl
import pickle
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from tests.faults.play.compare import transcript
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import Plan
from tests.faults.play.runner import play
from tests.support.hosts.sshd import host_user, sshd

Reference = Callable[[str], Coroutine[None, None, Outcome]]


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Reference:
    """Gives the outcome of a work with nothing in its way. All processes of a test run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    async def of(work: str) -> Outcome:
        kept = shared / f"undisturbed-{work}"
        with kept.with_suffix(".lock").open("w") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if not kept.exists():
                outcome = await _undisturbed(work, tmp_path_factory.mktemp(f"{work}-undisturbed"))
                kept.write_bytes(pickle.dumps(outcome))
        found: Outcome = pickle.loads(kept.read_bytes())
        assert found.code == 0, found.stderr
        assert transcript(found.messages, found.home)
        return found

    return of


async def _undisturbed(work: str, directory: Path) -> Outcome:
    with host_user(directory) as user:
        async with sshd(directory / "sshd") as server:
            return await play(Plan(0, work=work), directory, user, server)


@pytest.fixture(scope="session")
def undisturbed(reference: Reference) -> Outcome:
    return asyncio.run(reference("basics"))
