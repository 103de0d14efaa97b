"""A project whose commands run in the cage for the workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.sandbox.workspace_kit import Workspace


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    made = Workspace(tmp_path)
    if not made.host.cages().workspace:
        pytest.skip(made.host.cages().why)
    yield made
    made.host.close()
