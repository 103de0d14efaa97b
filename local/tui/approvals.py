"""Where the card of the first open question stands: when it comes, when it takes the focus, when it goes."""

from __future__ import annotations

import time

from textual.containers import Vertical

from ..session.client import Json, SessionClient
from ..session.messages import ControlRequest
from .model.questions import Questions, Replay
from .widgets.approval import GRACE_S, ApprovalCard
from .widgets.composer import Composer
from .widgets.connection import Connection
from .widgets.transcript import Transcript

_LATER = "Not connected: the answer is sent when the connection is there again."
_OTHERS = "Waits for whoever drives this session."
_MOST_GIVEN = 100


class Approvals(Vertical):
    """The open questions of a session. A card is shown only when the replay is over: it may hold the answer."""

    DEFAULT_CSS = "Approvals { height: auto; }"

    def __init__(
        self, client: SessionClient, connection: Connection, transcript: Transcript, composer: Composer, where: str
    ) -> None:
        super().__init__()
        self._client = client
        self._connection = connection
        self._transcript = transcript
        self._composer = composer
        self._where = where
        self._card_came = 0.0
        self.card: ApprovalCard | None = None
        self.questions = Questions()
        self.replay = Replay()
        self._given: dict[str, Json] = {}  # answers from here that the journal has not said to be the ones that count

    @property
    def replaying(self) -> bool:
        """Whether the host still says what had happened before."""
        return not self.replay.over(self._client.hello.seq, time.monotonic())

    @property
    def waits(self) -> bool:
        """Whether there is a card that the person has to go to."""
        return self.card is not None and self.card.can_focus and not self.card.has_focus_within

    def show_next(self) -> None:
        """Show the card of the first open question, or none."""
        self.call_later(self._show)

    async def _show(self) -> None:
        if self.replaying:
            return
        wanted: ControlRequest | None = self.questions.first()
        if self.card is not None and self.card.request is not wanted:
            card, self.card = self.card, None
            had_focus = card.has_focus_within
            await card.remove()
            if had_focus:
                self._composer.focus()
        if wanted is not None and self.card is None:
            self._composer.rest()  # the key that answered the last card must not answer this one
            self.card = ApprovalCard(wanted, self._where, self._transcript.look())
            self._describe(self.card)
            await self.mount(self.card)
        if self.card is not None:
            self.card.more_waiting(len(self.questions) - 1)

    def on_approval_card_answered(self, event: ApprovalCard.Answered) -> None:
        """Keep it until the journal says which answer counts; the app, to which this event goes on, sends it."""
        self._given[event.verdict.request_id] = event.verdict.response
        if len(self._given) > _MOST_GIVEN:
            del self._given[next(iter(self._given))]

    def lost_against(self, request_id: str, response: Json) -> bool:
        """The journal has an answer to a question: whether another one was given here, which counts for nothing then."""
        given = self._given.pop(request_id, None)
        return given is not None and given != response.get("response")

    def tick(self, now: float) -> None:
        """Bring the card up to date, and give it the focus when nobody types."""
        card = self.card
        if (card.request if card is not None else None) is not self.questions.head:
            self.show_next()
        if card is None:
            return
        self._describe(card)
        card.show_titles()
        composer = self._composer
        if (
            self.waits
            and self.screen.focused is composer
            and not composer.text
            and composer.quiet_for() > GRACE_S
            and not self.screen.selections
        ):
            card.focus()
            self._card_came = now

    def _describe(self, card: ApprovalCard) -> None:
        watching = self._connection.watching
        if watching and card.has_focus_within:
            self._composer.focus()
        card.situation(driving=not watching, note=_OTHERS if watching else "" if self._connection.shown_up else _LATER)

    def go(self) -> None:
        """The person wants to answer."""
        if self.card is not None and self.waits:
            self.card.focus()

    def toggle(self) -> None:
        """To the card, and back; the card that has just taken the focus itself keeps it."""
        if self.waits:
            self.go()
        elif time.monotonic() - self._card_came > GRACE_S:
            self._composer.rest()
            self._composer.focus()

    def fit(self) -> None:
        """The screen has another size."""
        if self.card is not None:
            self.card.call_after_refresh(self.card.fit)
