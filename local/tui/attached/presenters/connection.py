"""Show the state of the connection, and adapt the composer, waiting prompts and the approval card to it."""

from __future__ import annotations

from ....session.client import LinkChange, LinkState
from ...model.transcript_reducer import TranscriptReducer
from ...widgets.composer import Composer
from ...widgets.connection import Banner, ConnectionView
from ...widgets.transcript import Transcript
from ..approvals import Approvals

_LOCKED = "Nothing can be sent while this terminal only watches"


class ConnectionPresenter:
    """Follows the connection of one session."""

    def __init__(
        self,
        view: ConnectionView,
        composer: Composer,
        approvals: Approvals,
        transcript: Transcript,
        reducer: TranscriptReducer,
    ) -> None:
        self.view = view
        self.banner = Banner()
        self._composer = composer
        self._approvals = approvals
        self._transcript = transcript
        self._reducer = reducer
        self._was_connected = True

    def changed(self, change: LinkChange, now: float) -> bool:
        """Handle a change of the connection. Return whether its state is another one than before."""
        before = self.view.state
        self.view.changed(change, now)
        self.tick(now)
        return change.state is not before

    def tick(self, now: float) -> None:
        """Show the connection. `now` is in monotonic seconds."""
        if not (self.banner.is_attached and self._approvals.is_attached):  # the person is leaving
            return
        view, reducer, composer = self.view, self._reducer, self._composer
        view.settle(now)
        connected = view.shown is LinkState.CONNECTED
        lost, self._was_connected = self._was_connected and not connected, connected
        if lost:
            reducer.link_lost()
        elif view.up and reducer.prompts.unsent and not (view.unsent or self._approvals.replaying):
            reducer.all_sent()
        self._approvals.tick()
        composer.shortcuts.active = view.keys()
        composer.set_locked(_LOCKED if view.watching else "")
        self.banner.show(view, now, self._transcript.palette(), typing=bool(composer.text))
