"""The screen before the session is there: what the connection waits for, and the prompts that wait for the session."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import neutralise, one_line

from ..terminal.keymap import Keymap
from .rendering.themes import palette_in

_LONG_S = 3.0  # seconds of connecting after which the screen says how long it takes
_MAX_SAID = 20
_MAX_PROMPTS = 5
_ASKS = "The login asks you something: {key} answers it. What you have typed stays here."


class Opening(Static):
    """Shows what goes on while the connection is made, and keeps the prompts that the person sends meanwhile. `line` is
    the one at the bottom of the screen."""

    DEFAULT_CSS = """
    Opening { height: 1fr; padding: 0 1; background: $background; }
    #opening-line { height: 1; padding: 0 1; background: $surface; color: $foreground 80%; }
    """
    SCOPED_CSS = False

    def __init__(self, host: str, keymap: Keymap, first_prompt: str = "") -> None:
        super().__init__(markup=False)
        self.line = Static(id="opening-line", markup=False)
        self.keymap = keymap
        self.said: list[str] = []
        self.queued: list[str] = []
        self.host = one_line(host)
        self._first_prompt = first_prompt
        self._began = time.monotonic()
        self._asks = False
        self.goes_on("connecting")

    def goes_on(self, doing: str) -> None:
        queues, leaves = self.keymap.name("send"), self.keymap.name("ladder")
        self.line.update(f"◌ {self.host}  {doing}  ·  {queues} queues a prompt  ·  {leaves} leaves")

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(1.0, self._draw)

    def queue(self, text: str) -> None:
        self.queued.append(text)
        self._draw()

    def say(self, text: str) -> None:
        self.said.append(neutralise(text))
        del self.said[:-_MAX_SAID]
        self._draw()

    def asks(self, waiting: bool) -> None:
        """Show whether a question of the login waits until the person wants to answer it."""
        self._asks = waiting
        self._draw()

    def _draw(self) -> None:
        palette = palette_in(self.app)
        took = time.monotonic() - self._began
        text = Text(f"Connecting to {self.host} …" + (f" {took:.0f} s" if took >= _LONG_S else ""), palette.dim)
        for said in self.said:
            text.append(f"\n{said}")
        if self._asks:
            text.append("\n" + _ASKS.format(key=self.keymap.name("retry")), palette.warn)
        prompts = ([self._first_prompt] if self._first_prompt else []) + self.queued
        if len(prompts) > _MAX_PROMPTS:
            text.append(f"\n\n… {len(prompts) - _MAX_PROMPTS} more queued before these", palette.dim)
        for prompt in prompts[-_MAX_PROMPTS:]:
            first, *others = prompt.splitlines()
            text.append("\n\n❯ ", f"bold {palette.accent}").append(neutralise(first))
            text.append((" …" if others else "") + "  (queued)", palette.dim)
        self.update(text, layout=False)
