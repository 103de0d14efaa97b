"""The card of questions that the model asks, and which card shows which question of the worker."""

from __future__ import annotations

from ccb.tunnel.wire.messages import ControlRequestLine
from ccb.tunnel.wire.tool_traits import View, traits_of

from ....terminal.keymap import Keymap
from ...model.forms.form import Answers, read_questions
from ...theme.palette import Palette
from .approval import ApprovalCard
from .elicitation_card import ElicitationCard, is_elicitation
from .form_card import FormCard
from .plan_card import AgreementCard, PlanCard
from .question_card import QuestionCard
from .trust_card import TrustCard, asks_about_trust

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


def card_for(request: ControlRequestLine, place: str, palette: Palette, keymap: Keymap) -> QuestionCard:
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
