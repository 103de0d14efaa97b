"""Which card a question gets."""

from __future__ import annotations

from ccb.tunnel.wire.control_protocol import TRUST_PROJECT
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import View, traits_of

from ...terminal.keymap import Keymap
from ...transcript.questions import Answers, read_questions
from ..rendering.themes import Palette
from .approval_card import ApprovalCard
from .form_card import ElicitationCard, FormCard, is_elicitation
from .plan_card import AgreementCard, PlanCard, TrustCard
from .question_card import QuestionCard

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


def asks_about_trust(request: ControlRequest) -> bool:
    """Return whether this is a question for the trust card."""
    return request.subtype == TRUST_PROJECT.name
