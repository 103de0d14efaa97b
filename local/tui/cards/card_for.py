"""Trust; which card."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.widget import Widget

from ccb.tunnel.wire.control_protocol import TRUST_PROJECT
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import View, traits_of

from ...terminal.keymap import Keymap
from ...transcript.questions import Answers, read_questions
from ..rendering.approval_text import bounded, trust_lines
from ..rendering.themes import Palette
from .approval_card import AnswerChoices, ApprovalCard, QuestionState
from .card_subject import ApprovalSubject
from .form_card import ElicitationCard, FormCard, is_elicitation
from .plan_card import AgreementCard, PlanCard
from .question_card import STEPS, QuestionCard

_DECLINED = "The user declined to answer the questions."


class QuestionsCard(FormCard):
    """Answers the call with its input and the answers in it, as the public protocol wants it."""

    def answer_form(self, answers: Answers) -> None:
        given = {question: ", ".join(chosen) for question, chosen in answers.items()}
        updated = {**self.request.input, "answers": given}
        self.respond({"behavior": "allow", "updatedInput": updated})

    def decline(self, reason: str) -> None:
        message = _DECLINED + (f" The user says: {reason}" if reason else "")
        self.respond({"behavior": "deny", "message": message})


def card_for(request: ControlRequest, place: str, palette: Palette, keymap: Keymap) -> QuestionCard:
    """Return the card for a question. A call that cannot be shown in a better way gets the approval card, which shows
    any input exactly."""
    if asks_about_trust(request):
        return TrustCard(request, place, palette, keymap)
    if is_elicitation(request):
        return ElicitationCard(request, place, palette, keymap)
    view = traits_of(request.tool_name).view
    if view is View.QUESTIONS:
        form = read_questions(request.input)
        if form is not None:
            return QuestionsCard(request, place, palette, form, keymap)
    if view is View.PLAN:
        return PlanCard(request, place, palette, keymap)
    if traits_of(request.tool_name).asks and view is not View.QUESTIONS:
        return AgreementCard(request, place, palette, keymap)
    return ApprovalCard(request, place, palette, keymap)


_ANSWERS = {"1": "once", "y": "once", "2": "deny", "n": "deny"}


class TrustChoices(AnswerChoices):
    """The answers to the question about trust."""

    KEYS: Mapping[str, str] = {"once": "1", "deny": "2"}

    def words(self, answer: str) -> str:
        return "trust it on this host" if answer == "once" else "not now"


class TrustCard(QuestionCard):
    """Shows what a project switches on, and takes the person's answer. The payload is {"trusted"}."""

    MARKS = "".join(_ANSWERS)

    def __init__(self, request: ControlRequest, place: str, palette: Palette, keymap: Keymap) -> None:
        lines, readable = bounded(trust_lines(request.input))
        self._choices = TrustChoices([], palette, keymap, readable=readable)
        super().__init__(request, place, palette, ApprovalSubject(lines, palette), keymap)

    def title(self) -> str:
        return "Trust the files of this project?"

    def compose(self) -> ComposeResult:
        self.show_titles()
        yield self.subject
        yield self._choices

    def below(self) -> list[Widget]:
        return [self._choices]

    def show_choices(self) -> None:
        self._choices.show(QuestionState(self.unseen, self.has_focus, *self._driving_and_note))

    def mark(self, char: str) -> None:
        self._choices.mark(_ANSWERS.get(char, ""))

    def enter(self) -> None:
        self.show_choices()  # what is possible may have changed since the answer was marked
        if self._choices.marked in self._choices.offered:
            self.respond({"trusted": self._choices.marked == "once"})

    def step(self, key: str) -> None:
        if key in ("up", "down") and self.subject.max_scroll_y > 0:
            self.subject.move(STEPS[key])
        else:
            self._keys.release()
            self._choices.step(STEPS[key])


def asks_about_trust(request: ControlRequest) -> bool:
    """Return whether this is a question for the trust card."""
    return request.subtype == TRUST_PROJECT.name
