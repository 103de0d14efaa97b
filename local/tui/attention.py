"""What a person who looks elsewhere sees and hears: the window's title, the bell, notifications."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from textual.app import App
from textual.driver import Driver

from ccb.tunnel.plain_text import one_line

_OSC_9 = ("iTerm.app", "WezTerm", "ghostty")  # values of TERM_PROGRAM of terminals that show a notification for OSC 9
_OSC_9_TERMS = ("xterm-kitty", "xterm-ghostty", "wezterm")
_OSC_777_TERMS = ("foot", "foot-extra", "rxvt-unicode", "rxvt-unicode-256color")
_ASKS, _DONE = "permission_prompt", "idle_prompt"
_TEXTS = {_ASKS: "The agent asks you something", _DONE: "The agent is done and waits for you"}
_OTHER = "ccb waits for you"


class Notify(Enum):
    """How the person is called."""

    AUTO = "auto"
    """The bell, and a notification if the terminal is known to show one."""
    BELL = "bell"
    OSC_9 = "osc9"
    OSC_777 = "osc777"
    OFF = "off"


_UNUSUAL = re.compile(r"[^\w .,:#()/+-]+")  # in a name that the host gives: some terminals hand titles to programs
_MAX_NAME = 60  # characters
_SAVE, _RESTORE = "\x1b[22;2t", "\x1b]2;\x07\x1b[23;2t"  # xterm's stack of titles


class Attention:
    """Names the window, rings, and shows notifications. `notify_person` runs the person's own hooks."""

    def __init__(self, app: App[Any], environ: Mapping[str, str]) -> None:
        self.notify_person: Callable[[str], None] = lambda kind: None
        self.how = Notify.AUTO
        self._app = app
        self._environ = environ
        self._named = False
        self._place = ""
        self._driver: Driver | None = None
        self._state = self._title = ""

    def session_is(self, place: str, driver: Driver | None, *, headless: bool) -> None:
        self._place, self._state, self._title = one_line(place), "", ""
        self._driver = None if headless else driver
        self._name()

    def state_is(self, state: str, title: str) -> None:
        """Say in the window's title what the session does and what it is about, each "" for nothing."""
        if (state, title) != (self._state, self._title) and self._place:
            self._state, self._title = state, title
            self._name()

    def restore(self) -> None:
        if self._named and self._driver is not None:
            self._driver.write(_RESTORE)

    def _name(self) -> None:
        if self._driver is not None:
            name = " ".join(_UNUSUAL.sub(" ", self._title).split())[:_MAX_NAME].strip()
            words = " · ".join(filter(None, (self._state, name, f"ccb {self._place}")))
            self._driver.write(f"{'' if self._named else _SAVE}\x1b]2;{words}\x07")
            self._named = True

    def ring(self, kind: str, *, silent: bool) -> None:
        """Call the person if another window has the focus. `kind` is the notification for their own hooks, "" for none;
        they hear of the end of a turn only then too. `silent`: the terminal belongs to something else now."""
        away = not self._app.app_focus
        if kind and (away or kind == _ASKS):
            self.notify_person(kind)
        if not away or silent or self.how is Notify.OFF:
            return
        if self.how in (Notify.AUTO, Notify.BELL):
            self._app.bell()
        sequence = self._notification(_TEXTS.get(kind, _OTHER))
        if sequence and self._driver is not None:
            self._driver.write(sequence)

    def _notification(self, text: str) -> str:
        """Return the escape sequence that shows a text, "" for none. tmux passes none on."""
        how, term = self.how, self._environ.get("TERM", "")
        if how is Notify.AUTO and not self._environ.get("TMUX"):
            if term in _OSC_9_TERMS or self._environ.get("TERM_PROGRAM") in _OSC_9:
                how = Notify.OSC_9
            elif term in _OSC_777_TERMS:
                how = Notify.OSC_777
        if how is Notify.OSC_9:
            return f"\x1b]9;ccb {self._place}: {text}\x07"
        return f"\x1b]777;notify;ccb {self._place.replace(';', ',')};{text}\x07" if how is Notify.OSC_777 else ""
