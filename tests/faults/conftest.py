"""Fixtures of the faulty sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.faults.compare import transcript
from tests.faults.plan import Plan
from tests.faults.runner import Outcome, play
from tests.support.hosts.sshd import host_user, sshd


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same session with nothing in its way."""

    async def run(directory: Path) -> Outcome:
        with host_user(directory) as user:
            async with sshd(directory / "sshd") as server:
                return await play(Plan(0), directory, user, server)

    outcome = asyncio.run(run(tmp_path_factory.mktemp("undisturbed")))
    assert outcome.code == 0, outcome.stderr
    assert transcript(outcome.messages, outcome.home)
    return outcome
