"""Images of results in the conversation: asks the terminal what it can show, and connects the shelf of images with it.

What comes from a host has no say in it: the terminal answers for itself, within a second, and the person's setting
`images` outranks it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.app import App

from ..terminal.asking.graphics import Graphics, Protocol, can_be_asked, questions
from .terminal_driver import TerminalDriver
from .theme.themes import wants_no_colour

if TYPE_CHECKING:
    from .render.pictures.shelf import PictureShelf

log = logging.getLogger(__name__)

_ANSWER_S = 1.0
"""Seconds after which a terminal that has not answered counts as one that shows no images."""

_USUAL_CELL = (10, 20)
_TMUX_NAME = ("tmux", "display-message", "-p", "#{client_termtype}")
_TMUX_S = 1.0


class InlineImages:
    """`choice` is the setting: a protocol, `auto` or `off`. `colours`: the terminal has 256 of them or more."""

    def __init__(self, app: App[int], choice: str, environ: Mapping[str, str], *, colours: bool) -> None:
        self._app = app
        self._choice = choice
        self._environ = environ
        self._colours = colours
        self._graphics = Graphics.of(environ)
        self._decided = False
        self.shelf: PictureShelf | None = None

    def begin(self) -> PictureShelf | None:
        """Ask the terminal, and return the shelf that draws nothing until it has answered. None if no images are shown
        here, because they are off or Pillow is not installed."""
        from .render.pictures.decoding import can_decode
        from .render.pictures.shelf import PictureShelf

        if self._choice == "off" or not can_decode() or wants_no_colour(self._environ):
            return None
        self.shelf = PictureShelf(self._write, self._app.run_worker)
        driver = self._app._driver
        if isinstance(driver, TerminalDriver) and can_be_asked(self._environ):
            driver.ask(questions(tmux=self._graphics.tmux))
            if self._graphics.tmux:
                self._app.run_worker(self._ask_tmux())
            self._app.set_timer(_ANSWER_S, self._decide)
        else:
            self._decide()
        return self.shelf

    def told(self, event: TerminalDriver.Answered) -> None:
        """The terminal has answered."""
        before, self._graphics = self._graphics, self._graphics.told(event.answer)
        if self._graphics.complete and not self._decided:
            self._decide()
        elif self._decided and self._graphics.cell != before.cell:
            self._use_painter()  # the person has chosen another size of the font

    def resized(self) -> None:
        """The size of a character may be another one."""
        painter, driver = self.shelf.painter if self.shelf is not None else None, self._app._driver
        in_pixels = painter is not None and painter.protocol in (Protocol.SIXEL, Protocol.ITERM2)
        if in_pixels and isinstance(driver, TerminalDriver):
            driver.ask_cell()

    def resumed(self) -> None:
        """The screen was another program's meanwhile: the terminal may have forgotten the images."""
        if self.shelf is not None:
            self.shelf.forget_all()

    def _write(self, text: str) -> None:
        driver = self._app._driver
        if text and isinstance(driver, TerminalDriver):
            driver.write_if_shown(text)

    def _decide(self) -> None:
        if not self._decided:
            self._decided = True
            self._use_painter()

    def _use_painter(self) -> None:
        from .render.pictures.painter import Painter

        graphics, driver = self._graphics, self._app._driver
        chosen = graphics.best(colours=self._colours) if self._choice == "auto" else Protocol(self._choice)
        log.info("images are shown as %s; the terminal has said %r", chosen, graphics)
        if self.shelf is None or chosen is None:
            return
        painter = Painter(chosen, graphics.cell or _USUAL_CELL, tmux=graphics.tmux)
        if isinstance(driver, TerminalDriver):
            driver.translate, driver.last_words = painter.translated, self.shelf.forgotten
        self.shelf.use(painter)

    async def _ask_tmux(self) -> None:
        """Ask tmux for the name of the terminal around it, to which no question gets."""
        try:
            asked = await asyncio.create_subprocess_exec(
                *_TMUX_NAME,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            return
        try:
            async with asyncio.timeout(_TMUX_S):
                name, _ = await asked.communicate()
        except TimeoutError:
            asked.kill()
            return
        self._graphics = self._graphics.inside(name.decode("utf-8", "replace").strip())
