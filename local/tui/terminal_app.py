"""What every application of ccb on a terminal has: its driver, its colours, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Generic, TypeVar

from textual.app import App
from textual.driver import Driver
from textual.screen import Screen

from ..command_line.exit_codes import ExitCode
from ..config.log import state_dir
from ..config.settings_loading import ScreenSettings
from ..terminal.console import SCREENS, restored_at_the_end
from ..terminal.signals import Interrupts
from .appearance import Appearance
from .attention import Attention
from .rendering.themes import terminal_colours, wants_no_colour
from .terminal_driver import TerminalDriver
from .widgets.painting import KeyPriority, ReplScreen

Result = TypeVar("Result")


class TerminalApp(App[Result | int], Generic[Result]):
    """An application that ends with a result, or with the exit code of a signal or a closed window."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, environ: Mapping[str, str], screen: ScreenSettings) -> None:
        if not wants_no_colour(os.environ):
            os.environ.pop("NO_COLOR", None)  # Textual would take an empty one for a wish
        colours = terminal_colours(environ)
        self.keys_first = KeyPriority()
        super().__init__(ansi_color=True if colours.few else None)
        self.settings = screen
        self.appearance = Appearance(self, colours, environ, screen.status_line)
        self.attention = Attention(self, environ)

    async def shown(self) -> Result | int:
        """Show it until it ends. Raises what has ended it."""
        with restored_at_the_end(state_dir() / SCREENS), Interrupts() as signals:
            signals.first.add_done_callback(lambda code: self.exit(int(code.result())))
            result = await self.run_async(mouse=self.settings.mouse)
        if self.return_code:
            raise self._exception or RuntimeError("the interface ended")
        return ExitCode.OK if result is None else result

    def get_driver_class(self) -> type[Driver]:
        return TerminalDriver

    def get_default_screen(self) -> Screen[object]:
        return ReplScreen(self.keys_first, classes="-tall")  # most are: a change would style everything once more

    def on_mount(self) -> None:
        if isinstance(self._driver, TerminalDriver):
            self._driver.keys_first = self.keys_first
        self.appearance.ask_background(self._driver)

    def on_terminal_driver_background_report(self, event: TerminalDriver.BackgroundReport) -> None:
        self.appearance.background_is(event.colour)

    def on_unmount(self) -> None:
        self.attention.restore()

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual would show the values of variables. `shown` raises the exception instead."""
        self._exit_renderables.clear()
