"""Which question is on a card, and which card it gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial

from textual import events
from textual.containers import Vertical

from ccb.tunnel.wire.control_protocol import TRUST_PROJECT
from ccb.tunnel.wire.mcp_messages import ELICITATION
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..session.session_client import Json, LinkState
from ..transcript.questions import REVERSE_PORT, OpenQuestions, read_questions
from .cards.answer_keys import LOCK_S, QUIET_S, STAY_S, CardTimes, HeldKeys
from .cards.approval_card import ApprovalCard
from .cards.form_card import ElicitationCard, QuestionsCard
from .cards.plan_card import AgreementCard, PlanCard, ReversePortCard, TrustCard
from .cards.question_card import Asked, CardAnswer, QuestionCard
from .composer.composer import Composer
from .rendering.approval_text import place_of_call
from .rendering.permission_updates import READS, can_be_kept, covers, reads_services, session_updates
from .widgets.connection_banner import ConnectionView
from .widgets.painting import call_once_after
from .widgets.transcript import Transcript

_SENT_LATER = "Not connected: the answer is sent when the connection is there again."
_ONLY_WATCHING = "Waits for the client that drives this session."
_MAX_GIVEN = 100


class Approvals(Vertical):
    """Shows the card of the first open question, but none during a replay: that may hold the answer."""

    DEFAULT_CSS = "Approvals { height: auto; }"

    def __init__(self, connection: ConnectionView, transcript: Transcript, composer: Composer, place: str) -> None:
        super().__init__()
        self._connection = connection
        self._transcript = transcript
        self._composer = composer
        self._place = place
        self.laptop_servers: Callable[[], Collection[str]] = tuple
        self.card: QuestionCard | None = None
        self.questions = OpenQuestions(self._show_soon)
        self.replaying = False  # the host still sends events from before this client attached
        self._times = CardTimes()
        self._walked = False  # the person goes from the card to another one
        self._stayed = False  # the focus came to the card without the person, who has answered the one before
        self._held: HeldKeys | None = None
        self._marks = ""  # the characters that mark answers on the newest card
        self.given: dict[str, Json] = {}  # answers given here, until the journal says which answer counts

    @property
    def unsettled(self) -> bool:
        return (self.card.asked.request if self.card is not None else None) is not self.questions.head

    @property
    def wants_focus(self) -> bool:
        """Whether there is a card that can be answered and does not have the focus."""
        return self.card is not None and self.card.can_focus and not self.card.has_focus_within

    @property
    def waits_for(self) -> str:
        """What the card that `wants_focus` asks for, in a word; "" without one."""
        return self.card.ASKS_FOR if self.card is not None and self.wants_focus else ""

    def answered_with(self, answer: CardAnswer) -> list[CardAnswer]:
        card, updates = self.card, answer.response.get("updatedPermissions")
        if not can_be_kept(updates or []) or card is None or not card.grants_suggestion:  # such as the cage
            return []
        request, covered = card.asked.request, []
        if request.request_id == answer.request_id:
            read = [each for each in self.questions if each is not request and reads_services(each)]
            covered = read if updates == [READS] else self._covered(request)
        return [CardAnswer(each.request_id, {"behavior": "allow", "updatedInput": each.input}) for each in covered]

    def _covered(self, request: ControlRequest) -> list[ControlRequest]:
        rule = session_updates(request)
        if not covers(rule, request):
            return []
        others = (each for each in self.questions if each is not request and session_updates(each) == rule)
        return [each for each in others if covers(rule, each)]

    def on_question_card_walked(self, event: QuestionCard.Walked) -> None:
        event.stop()
        if len(self.questions) > 1:
            self._walked = True
            self.questions.walk(event.by)

    def tick(self) -> None:
        if self.unsettled:
            self._show_soon()
        if self.card is not None:
            self._update_situation(self.card)
            self.card.show_titles()

    def focus_card(self) -> None:
        """Go to the card, with its first answer marked unless something is typed, or as soon as it can be gone to."""
        if self.card is None:
            return
        self._stayed = False
        if self.card.settling:
            self._hold(leads=True).wished = True
        elif self.wants_focus:
            self.card.come(marks_first=not self._composer.text)

    def _hold(self, *, leads: bool) -> HeldKeys:
        """Keep answers that are typed from now on for a card."""
        held = self._held = self._held or HeldKeys(self._marks, time.monotonic())
        held.leads = held.leads or leads
        return held

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None and held.text:
            self._composer.type(held.text)

    def _gap_over(self, held: HeldKeys) -> None:
        """No card that takes the keys has come for a while after the last one, so they were for none."""
        if self._held is held and (self.card is None or not self.card.settling):
            self._release()

    def _settled(self, card: QuestionCard) -> None:
        """A new card takes the focus from now on. Go to it if the person wanted that, and has typed no text since."""
        if card is not self.card:
            return
        card.let_settle(False)
        held, looks = self._held, self.app.app_focus and self.app.focused in (self._composer, None)
        if held is not None and held.leads and card.can_focus and looks:
            self._held, self._stayed = None, not held.wished
            card.come(held.chars, held.text, marks_first=True)
        else:
            self._release()

    def toggle_focus(self) -> None:
        card, stayed = self.card, self._stayed
        if card is not None and (self.wants_focus or card.settling):
            self.focus_card()
        elif card is not None and card.has_focus and card.first_mark and (stayed or not card.is_marked):
            self._stayed = False  # a person who presses Tab for each card is not led away
            if not card.is_marked:
                card.come(marks_first=True)
        else:
            self._composer.focus()

    def takes_key(self, event: events.Key) -> bool:
        """Take a key that was pressed at the input, if it is an answer to a card. Return False if it is text."""
        char = event.character if event.is_printable else None
        keymap, card = self._composer.keymap, self.card
        if self._held is not None:
            if self._held.takes(event.key, char, event.time):
                return True
            self._release()
            return False
        if char is not None and card is not None and char in card.MARKS and self._listens(card, event.time):
            card.come(char, char)
            return True
        sends = not self._composer.read_only and any(keymap.has(each, event.key) for each in ("send", "steer"))
        lone = self._lone_answer if sends else ""
        if lone and (card is not None or event.time - self._times.removed < STAY_S):
            says = f"{keymap.name('approval-tab')}, then Enter answers" if card is not None else "the question has gone"
            self._composer.around.says(f"“{lone}” was not sent: {says}")
            self._composer.text = ""
            return True
        return False

    @property
    def _lone_answer(self) -> str:
        """What is typed at the input if it is the character of an answer and nothing else."""
        text = self._composer.text.strip()
        return text if len(text) == 1 and text in self._marks else ""

    def _listens(self, card: QuestionCard, at: float) -> bool:
        """Whether the character of an answer leads from the empty input to the card: the person has seen the card come
        while they typed nothing, and has not left it."""
        composer = self._composer
        return (
            (card.can_focus and not composer.text and not composer.vim.commands)
            and at - self._times.shown >= LOCK_S
            and self._times.shown - composer.last_key >= QUIET_S
        )

    @property
    def holds_keys(self) -> bool:
        """Whether answers that are typed wait for a card."""
        return self._held is not None

    def _typed(self, text: str) -> None:
        self._composer.focus()
        if self._composer.is_shortcut(text):
            self._composer.around.shortcut()
        else:
            self._composer.type(text)

    def turn_page(self, direction: int) -> bool:
        """Scroll the card that has the focus. Return False if no card has it, or the whole card is on the screen."""
        card = self.card
        return card is not None and card.has_focus_within and card.turn(direction)

    def show_whole(self) -> bool:
        """Let the card that has the focus take the whole screen, or give it back. Return False if no card has it."""
        if self.card is None or not self.card.has_focus_within:
            return False
        self.card.toggle_whole()
        return True

    def on_question_card_answered(self, event: QuestionCard.Answered) -> None:
        """Keep the answer until the journal says which one counts. The app, which gets the event next, sends it."""
        self.given[event.answer.request_id] = event.answer.response
        if len(self.given) > _MAX_GIVEN:
            del self.given[next(iter(self.given))]

    def _show_soon(self) -> None:
        self.call_later(self._show)

    async def _show(self) -> None:
        if self.replaying or not self.is_attached:
            return
        wanted: ControlRequest | None = self.questions.show_head()
        if self.card is not None and self.card.asked.request is not wanted:
            await self._take_away(self.card, wanted)
        if wanted is not None and self.card is None and self.is_attached:
            await self._put_up(wanted)
        if self.card is not None:
            self.card.more_waiting(len(self.questions) - 1, len(self._covered(self.card.asked.request)))

    async def _take_away(self, card: QuestionCard, wanted: ControlRequest | None) -> None:
        self.card, had_focus = None, card.has_focus_within
        await card.remove()
        self._times.removed = time.monotonic()
        if had_focus:
            self._composer.focus()
            if card.reason:  # of a denial that nobody asks for any more
                self._composer.type(card.reason)
            self._times.answered = self._times.removed if card.answered else -STAY_S
        if wanted is None and (had_focus or self._held is not None):
            held = self._hold(leads=had_focus and card.answered)
            call_once_after(self, STAY_S, partial(self._gap_over, held))

    async def _put_up(self, wanted: ControlRequest) -> None:
        place = place_of_call(wanted, self._place, self.laptop_servers())
        asked = Asked(wanted, place, self._transcript.palette(), self._composer.keymap, self._typed)
        self.card = card = card_for(asked)
        self._marks = card.MARKS
        walked, self._walked = self._walked, False
        now, times = time.monotonic(), self._times
        stays = now - times.answered < STAY_S and self._composer.last_key < times.answered
        if not walked and (stays or now - times.removed < LOCK_S):
            card.let_settle(True)
            call_once_after(card, LOCK_S, partial(self._settled, card))
            if stays:
                self._hold(leads=True)
        self._update_situation(card)
        await self.mount(card)
        times.shown = time.monotonic()
        if walked:
            card.come()

    def _update_situation(self, card: QuestionCard) -> None:
        watching = self._connection.watching
        if watching and card.has_focus_within:
            self._composer.focus()
        note = "" if self._connection.shown in (LinkState.CONNECTED, LinkState.FENCED) else _SENT_LATER
        card.set_situation(driving=not watching, note=_ONLY_WATCHING if watching else note)


def card_for(asked: Asked) -> QuestionCard:
    """Return the card for a question. The approval card can show any input, exactly."""
    request = asked.request
    if request.subtype == TRUST_PROJECT.name:
        return TrustCard(asked)
    if request.subtype == REVERSE_PORT.name:
        return ReversePortCard(asked)
    if request.subtype == ELICITATION.name:
        return ElicitationCard(asked)
    traits = traits_of(request.tool_name)
    form = read_questions(request.input) if traits.view is View.QUESTIONS else None
    if form is not None:
        return QuestionsCard(asked, form)
    if traits.view is View.PLAN:
        return PlanCard(asked)
    if traits.asks and traits.view is not View.QUESTIONS:
        return AgreementCard(asked)
    return ApprovalCard(asked)
