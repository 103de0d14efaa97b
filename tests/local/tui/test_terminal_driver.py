"""How the driver reads keys from a terminal."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable

import pytest
from textual import events
from textual.message import Message

from ccb.local.tui.terminal_driver import TerminalDriver
from ccb.local.tui.widgets.painting import KeyPriority


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


def test_a_bug_in_reading_keys_ends_the_interface_with_that_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Exception] = []

    class Application:
        def _handle_exception(self, error: Exception) -> None:
            seen.append(error)

    class Loop:
        def call_soon_threadsafe(self, action: Callable[[], object]) -> None:
            action()

    def fails() -> None:
        raise ValueError("a bug")

    driver = TerminalDriver.__new__(TerminalDriver)
    monkeypatch.setattr(driver, "_app", Application(), raising=False)
    monkeypatch.setattr(driver, "_loop", Loop(), raising=False)
    monkeypatch.setattr(driver, "_read_input", fails)
    driver.run_input_thread()
    assert [str(each) for each in seen] == ["a bug"]
