"""The colours of the interface: those that the environment or the terminal asks for, until the person chooses. If the
terminal says what its background is, it stays where the colours can be read on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.app import App
from textual.color import Color
from textual.theme import Theme as TextualTheme

from ..terminal.input_machine import NO_ANSWER
from .rendering.themes import ALL_THEMES, THEME_NAMES, BareGround, TerminalColours, ThemeRefused, ThemeStore, on_ground
from .rendering.untrusted_text import TextOnly
from .terminal_driver import TerminalDriver

log = logging.getLogger(__name__)

_BACKGROUND_S = 2.0  # seconds in which the terminal may say what its background is; later the colours stay as they are


class Appearance:
    """Chooses the theme of `app`: that of the last choice, or what fits the terminal, as `environ` describes it.
    `status_command` is the person's command for the status line, "" for none."""

    def __init__(
        self, app: App[Any], colours: TerminalColours, environ: Mapping[str, str], status_command: str = ""
    ) -> None:
        self.environ = environ
        self.status_command = status_command
        self._app = app
        self._colours = colours
        self._asked_background_at: float | None = None
        self._on_ground: TextualTheme | None = None  # the theme on the terminal's own ground
        self._bare = BareGround()
        app._filters += [TextOnly(), self._bare]
        self._store = ThemeStore.of(environ)
        self._chosen = self._store.load() if self._store is not None else ""
        for theme in ALL_THEMES:
            app.register_theme(theme)
        if self._chosen:
            try:
                if self._found(self._chosen):
                    return
            except ThemeRefused as error:  # it cannot be used any more
                log.warning("%s", error)
            self._chosen = ""
        if colours.light or colours.few:
            app.theme = colours.theme
        else:
            # The same without the watchers, which would parse all styles once more before anything is shown. What
            # else they do holds for this theme as for Textual's own.
            app.set_reactive(App.theme, colours.theme)
            app.stylesheet.set_variables(app.get_css_variables())

    def ask_background(self, driver: object) -> None:
        """Ask the terminal what its background is, if that matters. Nothing waits for the answer."""
        answers, few = self.environ.get("TERM", "") not in NO_ANSWER, self._colours.few
        matters = not self._chosen and (self._colours.light is None or not few)
        if matters and answers and isinstance(driver, TerminalDriver):
            self._asked_background_at = time.monotonic()
            driver.ask_background()

    def background_is(self, ground: Color) -> None:
        """Take the theme that fits the terminal's background, unless its answer comes when the person has read on."""
        asked_at, self._asked_background_at = self._asked_background_at, None
        if not self._chosen and asked_at is not None and time.monotonic() - asked_at < _BACKGROUND_S:
            self._colours = replace(self._colours, light=ground.brightness > 0.5)
            self._on_ground = on_ground(self._app.available_themes[self._colours.theme], ground)
            self._use_fitting()

    def _use_fitting(self) -> None:
        if self._on_ground is None:
            self._app.theme = self._colours.theme
            return
        self._app.register_theme(self._on_ground)
        self._bare.leave_out(self._on_ground.background)
        self._app.theme = self._on_ground.name

    @property
    def names(self) -> list[str]:
        own = self._store.own_names() if self._store is not None and not self._colours.few else []
        return ["auto", *(name for name in THEME_NAMES if name in self._colours.themes), *own]

    def choose(self, name: str) -> bool:
        """Use a theme from now on; `auto` is what fits. Return False for an unknown name. Raise ThemeRefused."""
        if name == "auto":
            self._use_fitting()
        elif not self._found(name):
            return False
        self._chosen = "" if name == "auto" else name
        if self._store is not None:
            self._store.keep(self._chosen)
        return True

    def _found(self, name: str) -> bool:
        theme = self._colours.themes.get(name)
        if theme is None and self._store is not None and not self._colours.few:
            own = self._store.read(name)
            if own is not None:
                self._app.register_theme(own)
                theme = own.name
        if theme is not None:
            self._bare.leave_out(None)
            self._app.theme = theme
        return theme is not None
