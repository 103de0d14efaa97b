"""Fixtures of the black-box tests of the agent's features."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.worker_process import WorkerHost, worker_host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WorkerHost]:
    """A host with a home directory of its own. Its workers are killed after the test."""
    async with worker_host(tmp_path / "home") as made:
        yield made


@pytest.fixture
def session() -> str:
    return str(uuid.uuid4())
