"""The colours of the interface: those that the environment or the terminal asks for, until the person chooses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.app import App

from ..terminal.background import NO_ANSWER
from .terminal_driver import TerminalDriver
from .theme.themes import ALL_THEMES, TerminalColours

_BACKGROUND_S = 2.0
"""Seconds in which the terminal may say what its background is; later the colours stay as they are."""


class Appearance:
    """Chooses the theme of `app`. `environ` says what the terminal can show."""

    def __init__(self, app: App[Any], colours: TerminalColours, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._app = app
        self._colours = colours
        self._asked_background_at: float | None = None
        for theme in ALL_THEMES:
            app.register_theme(theme)
        if colours.light or colours.few:
            app.theme = colours.theme
        else:
            # The same without the watchers, which would parse all styles once more before anything is shown. What
            # else they do holds for this theme as for Textual's own.
            app.set_reactive(App.theme, colours.theme)
            app.stylesheet.set_variables(app.get_css_variables())

    def ask_background(self, driver: object) -> None:
        """Ask the terminal whether its background is light, if the environment does not say it. Nothing waits for the
        answer."""
        answers = self.environ.get("TERM", "") not in NO_ANSWER
        if self._colours.light is None and answers and isinstance(driver, TerminalDriver):
            self._asked_background_at = time.monotonic()
            driver.ask_background()

    def background_is(self, *, light: bool) -> None:
        """Take the theme that fits the terminal's background, unless its answer comes when the person has read on."""
        asked_at, self._asked_background_at = self._asked_background_at, None
        if asked_at is not None and time.monotonic() - asked_at < _BACKGROUND_S:
            self._colours = replace(self._colours, light=light)
            self._app.theme = self._colours.theme

    def choose(self, name: str) -> bool:
        """Use the dark or the light theme. Return False if `name` is neither."""
        if name not in self._colours.themes:
            return False
        self._asked_background_at = None
        self._app.theme = self._colours.themes[name]
        return True
