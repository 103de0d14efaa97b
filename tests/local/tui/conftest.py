"""What most tests of the REPL begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import Desk, desk


@pytest.fixture
async def at() -> AsyncIterator[Desk]:
    """The REPL over a scripted session."""
    async with desk() as running:
        yield running


@pytest.fixture
def told() -> Paper:
    """What a session tells, drawn without an application."""
    return Paper()
