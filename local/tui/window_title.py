"""The name of the terminal's window, which says where the agent works."""

from __future__ import annotations

from textual.driver import Driver

from ccb.tunnel.plain_text import one_line

_SAVE, _RESTORE = "\x1b[22;2t", "\x1b]2;\x07\x1b[23;2t"  # xterm's stack of titles


class WindowTitle:
    """Names the window, and gives it its old name back."""

    def __init__(self) -> None:
        self._driver: Driver | None = None

    def name(self, title: str, driver: Driver | None) -> None:
        """Name the window. Do nothing without a terminal."""
        if driver is None:
            return
        driver.write(f"{'' if self._driver is not None else _SAVE}\x1b]2;{one_line(title)}\x07")
        self._driver = driver

    def restore(self) -> None:
        """Give the window its old name back, if it got another one."""
        if self._driver is not None:
            self._driver.write(_RESTORE)
