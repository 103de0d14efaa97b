"""How the driver reads keys from a terminal."""

from __future__ import annotations

import os
import selectors
import threading
import time

import pytest
from textual import events
from textual.message import Message

from ccb.local.tui.painting.key_priority import KeyPriority
from ccb.local.tui.terminal_driver import TerminalDriver


def test_esc_alone_is_a_key_long_before_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESCDELAY", raising=False)
    waits: list[float | None] = []

    class Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            waits.append(timeout)
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    reads, writes = os.pipe()
    driver = TerminalDriver.__new__(TerminalDriver)
    driver.fileno, driver.exit_event, driver._in_band_window_resize = reads, threading.Event(), False
    driver.keys_first, driver._asked_at = KeyPriority(), time.monotonic() - 10
    keys: list[str] = []

    def process(message: Message) -> None:
        assert isinstance(message, events.Key)
        keys.append(message.key)
        if len(keys) == 2:
            driver.exit_event.set()

    monkeypatch.setattr(driver, "process_message", process)
    os.write(writes, b"\x1b[A\x1b")
    driver._read_input()
    assert keys == ["up", "escape"]
    assert all(wait is not None and wait < 0.05 for wait in waits[1:])
    assert len(waits) < 5, "Textual's own time is four of these"
    os.close(reads)
    os.close(writes)
