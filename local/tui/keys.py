"""Keys, their help, Esc and Ctrl+C."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from textual.app import App
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from ..terminal.keymap import Keymap
from .cards.question_card import BURST_S, HOLD_S
from .repl_shell import QUIT_WINDOW_S, ReplShell
from .widgets.painting import call_once_after

if TYPE_CHECKING:
    from .panels.page_holder import PageHolder
    from .panels.rewind_panel import Rewinding
    from .session_actions import SessionActions
    from .submissions import Steering
    from .widgets.connection_banner import ConnectionView


class StopKeyTarget(Protocol):
    """The parts of a session's view that these keys act on."""

    reading: PageHolder
    rewinding: Rewinding
    steering: Steering

    @property
    def connection(self) -> ConnectionView: ...

    @property
    def screen(self) -> Screen[object]: ...

    def run_worker(self, work: Coroutine[None, None, None]) -> object: ...


class StopKeys:
    """Carries out these keys for one session."""

    def __init__(self, view: StopKeyTarget, shell: ReplShell, actions: SessionActions) -> None:
        self._view = view
        self._shell = shell
        self._actions = actions

    @property
    def _keymap(self) -> Keymap:
        return self._shell.composer.keymap

    def interrupt(self) -> None:
        """End the running turn. Pressed twice while nothing runs and nothing is typed: go back to an earlier prompt."""
        view, actions = self._view, self._actions
        if actions.busy or view.connection.watching or self._shell.composer.text:
            view.run_worker(actions.interrupt())
        elif done := view.steering.files.cancel_newest():
            actions.hint(done)
        elif view.rewinding.pressed_twice(time.monotonic()):
            self.rewind()
        else:
            from .panels.rewind_panel import TWICE_S

            actions.hint(f"press {self._keymap.name('interrupt')} again to go back to an earlier prompt", TWICE_S)

    def rewind(self) -> None:
        """Let the person go back to an earlier prompt."""
        view = self._view
        if view.connection.watching:
            self._actions.hint(view.connection.only_watches_hint())
        elif self._actions.busy:
            key = self._keymap.name("interrupt")
            self._actions.hint(f"the agent is working: {key} interrupts it, then go back")
        else:
            view.run_worker(view.rewinding.open())

    def ladder(self) -> None:
        """Clear the input, else close what is read, else interrupt, else quit if pressed twice. It also quits while an
        interrupt is on its way. A terminal that only watches can only quit."""
        drives, composer = not self._view.connection.watching, self._shell.composer
        focused = self._view.screen.focused
        if isinstance(focused, Input) and focused.value:
            focused.clear()
        elif self._view.reading.close():
            return
        elif drives and composer.text and focused is composer:
            composer.clear()
        elif drives and self._actions.can_interrupt:
            self.interrupt()
        else:
            self.quit_if_pressed_twice("ladder")

    def quit_if_pressed_twice(self, key_id: str) -> None:
        """Leave if the person has pressed the key of this id twice."""
        if self._shell.leaving.quit_pressed(time.monotonic()):
            self._shell.leave()
        else:
            self._actions.hint(f"press {self._keymap.name(key_id)} again to quit", QUIT_WINDOW_S)


class LoneChord:
    """A chord that counts if no other key came just before it and none follows for a moment. A terminal sends Alt+T as
    Esc and t: Esc and a word that is typed or pasted after it look the same. Times are monotonic seconds."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._last = 0.0
        self._is_burst = False
        self._held: Timer | None = None

    def key_came(self, at: float) -> None:
        """Note a key or a paste, the chord itself too."""
        self._is_burst, self._last = at - self._last < BURST_S, at
        if self._held is not None:
            self._held.stop()
            self._held = None

    def pressed(self, action: Callable[[], object]) -> None:
        """Call `action` once it is clear that the last key was the chord."""
        if not self._is_burst:
            self._held = call_once_after(self._app, HOLD_S, action)
