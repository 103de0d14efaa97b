"""What most tests of the REPL begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import Desk, desk
from textual.message_pump import MessagePump

from ccb.local.tui.widgets.painting import call_once_after

_LOCKED_S = 20.0  # less than the time since the machine was started


@pytest.fixture
async def at() -> AsyncIterator[Desk]:
    """The REPL over a scripted session."""
    async with desk() as running:
        yield running


@pytest.fixture
def told() -> Paper:
    """What a session tells, drawn without an application."""
    return Paper()


@pytest.fixture
def lock_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the time in which a new card takes no keys: it lasts until then, on a machine that is ever so busy."""
    waiting: list[tuple[MessagePump, Callable[[], object]]] = []

    def later(pump: MessagePump, seconds: float, callback: Callable[[], object]) -> None:
        if seconds == _LOCKED_S:
            waiting.append((pump, callback))
        else:
            call_once_after(pump, seconds, callback)

    def over() -> None:
        for pump, callback in waiting:
            pump.call_later(callback)
        waiting.clear()

    monkeypatch.setattr("ccb.local.tui.approvals.LOCK_S", _LOCKED_S)
    monkeypatch.setattr("ccb.local.tui.approvals.call_once_after", later)
    return over
