"""What brings the screen up to date: the status line, and the pulse that does it regularly."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.message_pump import MessagePump

from ccb.tunnel.wire.dataclass import dataclass

from ..slash_commands.session_api import ReplInfo
from ..transcript.transcript_reducer import TranscriptReducer
from .approvals import Approvals
from .composer.composer import Composer
from .status_command import StatusCommand
from .widgets.connection_banner import ConnectionView
from .widgets.status_line import Busy, LinkFacts, PlaceFacts, StatusFacts, StatusLine, TodoPanel, state_in_words
from .widgets.transcript import Transcript

_QUICK_S = 0.1
_SLOW_S = 1.0
_AFTERWARDS_S = 1.5  # seconds for which the pulse stays quick after the last key or event


class RefreshPulse:
    """Calls `beat` in an interval. `beat` returns whether the pulse has to be quick."""

    def __init__(self, pump: MessagePump, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._quick_until = 0.0
        self._quick = pump.set_interval(_QUICK_S, self._beat_quickly)
        self._is_quick = True
        pump.set_interval(_SLOW_S, self._beat_slowly)
        self.wake()

    def wake(self) -> None:
        self._quick_until = time.monotonic() + _AFTERWARDS_S
        if not self._is_quick:
            self._is_quick = True
            self._quick.resume()

    def _beat_quickly(self) -> None:
        if not self._beat() and time.monotonic() > self._quick_until:
            self._is_quick = False
            self._quick.pause()

    def _beat_slowly(self) -> None:
        if not self._is_quick and self._beat():
            self.wake()


HINT_S = 3.0
_FOR_MODEL_S = 2.0
"""Seconds of a turn after which the line may say that the agent waits for the model: most calls begin to answer before
that, and a word that changes all the time says nothing."""
_MAX_AGAIN_S = 3_600.0


class TurnClock:
    """Measures the turn that runs: how long the agent works in it, and when the model is asked again."""

    def __init__(self, reducer: TranscriptReducer) -> None:
        self._reducer = reducer
        self._worked_s: float | None = None  # in this turn, without the time in which it waited for the person
        self._measured_at = 0.0
        self._asking = False
        self._turn = 0
        self._retry: object = None
        self._again_at = 0.0

    def busy(self, now: float, *, asking: bool, interrupted: bool) -> Busy | None:
        """Return what the agent does now, None without a turn. `asking`: a question waits for the person."""
        reducer = self._reducer
        if not reducer.running:
            self._worked_s = None
        elif self._worked_s is None or self._turn != reducer.turns:
            self._worked_s, self._turn = 0.0, reducer.turns
        elif not self._asking:
            self._worked_s += now - self._measured_at
        self._measured_at, self._asking = now, asking
        if self._worked_s is None:
            return Busy(0.0, asking=True) if asking else None
        for_model = self._worked_s >= _FOR_MODEL_S and reducer.waits_for_model
        return Busy(self._worked_s, asking, for_model, interrupted, self._again_in(now))

    def _again_in(self, now: float) -> float | None:
        """Return the seconds until the model is asked again, None if it has not failed."""
        retry = self._reducer.notices.asked_again
        if retry is not self._retry:
            delay = min(retry.delay_s, _MAX_AGAIN_S) if retry is not None else 0.0
            self._retry, self._again_at = retry, now + delay
        return None if retry is None else max(self._again_at - now, 0.0)


@dataclass(eq=False)
class StatusPresenter:
    """Collects the facts of the status line. `tell_state` hears, for the window's title, what the session does
    and what it is called."""

    info: ReplInfo
    reducer: TranscriptReducer
    connection: ConnectionView
    approvals: Approvals
    transcript: Transcript
    composer: Composer
    tell_state: Callable[[str, str], None]
    own: StatusCommand
    _interrupted_turn: int | None = None
    _hint: str = ""
    _hint_until: float = 0.0

    def __post_init__(self) -> None:
        self.line, self._clock = StatusLine(), TurnClock(self.reducer)
        self.todos = TodoPanel(self.composer.keymap.name("todos"))

    def hint(self, text: str, seconds: float = HINT_S) -> None:
        self._hint, self._hint_until = text, time.monotonic() + seconds
        self.show()

    def interrupting(self, begun: bool) -> None:
        """Show that the running turn is being interrupted, until it ends; or that it is not."""
        self._interrupted_turn = self.reducer.turns if begun else None
        self.show()

    def tick(self, now: float) -> None:
        if now > self._hint_until:
            self._hint = ""
        self.own.tick(now)
        self.reducer.tick(now)
        self.show()
        self.todos.show(self.reducer.todos, self.transcript.palette())

    def show(self) -> None:
        reducer, connection, prompts = self.reducer, self.connection, self.reducer.prompts
        asking, interrupted = len(self.approvals.questions) > 0, self._interrupted_turn == reducer.turns
        facts = StatusFacts(
            place=PlaceFacts(self.info.host, self.info.path, reducer.facts.branch),
            model=reducer.facts.model,
            mode=reducer.facts.mode,
            link=LinkFacts(connection.shown, connection.unanswered_s, connection.round_trip_s),
            totals=reducer.totals,
            busy=self._clock.busy(time.monotonic(), asking=asking, interrupted=interrupted),
            hint=self._hint,
            card_waits=self.approvals.waits_for,
            more_below=self.transcript.lines_below > 1,
            sandbox=reducer.facts.sandbox,
            tasks=len(reducer.tasks.running),
            waiting=(prompts.queued_count - prompts.steering_count, prompts.steering_count),
            keys=self.composer.vim.label,
            own=self.own.line,
        )
        self.line.show(facts, self.transcript.palette(), self.composer.keymap)
        self.tell_state(state_in_words(facts), reducer.facts.title)
