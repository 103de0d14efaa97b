"""The REPL on a terminal that only remembers what is written to it."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.drivers.headless_driver import HeadlessDriver

from ccb.local.tui.app import Repl


class RecordingDriver(HeadlessDriver):
    """A terminal without a person. The application draws on it as on a real one."""

    def __init__(self, app: App[Any], *, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, size=size)
        self.written = ""

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += data

    def flush(self) -> None:
        pass


def record(app: Repl) -> None:
    """Let `app`, which has not begun, draw on a `RecordingDriver`."""

    def build(headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> RecordingDriver:
        return RecordingDriver(app, size=size)

    app._build_driver = build  # type: ignore[method-assign]


def written_by(app: Repl) -> str:
    driver = app._driver
    assert isinstance(driver, RecordingDriver)
    return driver.written
