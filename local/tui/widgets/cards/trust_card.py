"""The card that asks whether what the files of a project switch on may count. The project can be trusted only after
all of it has been on the screen."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.widget import Widget

from ccb.tunnel.wire.messages import ControlRequestLine
from ccb.tunnel.wire.requests import TRUST_PROJECT

from ....terminal.keymap import Keymap
from ...render.approval_text import bounded
from ...render.trust_text import trust_lines
from ...theme.palette import Palette
from .answer_choices import AnswerChoices, Situation
from .approval_subject import ApprovalSubject
from .question_card import STEPS, QuestionCard

_ANSWERS = {"1": "once", "y": "once", "2": "deny", "n": "deny"}


class TrustChoices(AnswerChoices):
    """The answers to the question about trust."""

    KEYS: Mapping[str, str] = {"once": "1", "deny": "2"}

    def words(self, answer: str) -> str:
        return "trust it on this host" if answer == "once" else "not now"


class TrustCard(QuestionCard):
    """Shows what a project switches on, and takes the person's answer. The payload is {"trusted"}."""

    MARKS = "".join(_ANSWERS)

    def __init__(self, request: ControlRequestLine, place: str, palette: Palette, keymap: Keymap) -> None:
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
        self._choices.show(Situation(self.unseen, self.has_focus, *self._driving_and_note))

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


def asks_about_trust(request: ControlRequestLine) -> bool:
    """Return whether this is a question for the trust card."""
    return request.subtype == TRUST_PROJECT.name
