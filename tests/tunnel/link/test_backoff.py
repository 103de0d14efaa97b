"""The pace of reconnecting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ccb.tunnel import reconnecting
from ccb.tunnel.reconnecting import MAX_QUICK, Pace, waits


def plain() -> Iterator[float]:
    return waits(lambda: 0.5)


def test_attempts_wait_longer_and_longer_and_begin_anew_after_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "STEADY_S", 0.0)
    pace = Pace(plain)
    for _ in range(MAX_QUICK + 3):
        assert [pace.next() for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
        pace.connected()


def test_connections_that_keep_breaking_off_at_once_are_not_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "STEADY_S", 600.0)
    pace = Pace(plain)
    seen = []
    for _ in range(MAX_QUICK + 4):
        pace.connected()
        seen.append(pace.next())
    assert seen == [0.0] * MAX_QUICK + [1, 2, 4, 8]
    monkeypatch.setattr(reconnecting, "STEADY_S", 0.0)
    pace.connected()
    assert pace.next() == 0, "one that lasted ends it"
