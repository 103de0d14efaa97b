"""The session whose tools most tests use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with open_toolbox(tmp_path) as toolbox:
        yield toolbox
