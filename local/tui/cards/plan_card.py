"""Cards that the person agrees to: planning first, a plan, which they can change before they approve it, the trust in a
project, and a port of this machine for the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import TextArea

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import BASH

from ...transcript.questions import ReversedPort
from ..rendering.approval_text import bounded, commands_of_plan, subject_lines, trust_lines
from ..rendering.card_rows import CardLine, RowStyle, own_words
from ..rendering.permission_updates import plan_modes, suggestions
from ..rendering.untrusted_text import escaped_name, is_hidden
from .approval_card import ChoiceCard, said_with
from .question_card import Asked

_PLAN_FIRST = "The agent wants to plan first: it looks around, and changes nothing until you approve its plan."


class AgreementCard(ChoiceCard):
    """Asks whether the agent may do what it proposes to the person, such as planning first."""

    DENIED: ClassVar[str] = "The user does not want this. Go on without it."
    WHY_NOT: ClassVar[str] = "What instead? The agent reads it. Enter answers no, Esc goes back."
    KEYS: ClassVar[Mapping[str, str]] = {"yes": "1", "deny": "2"}

    def __init__(self, asked: Asked) -> None:
        lines, readable = bounded(self.lines(asked.request))
        self._ways = self.ways(asked.request)
        marks = {key: answer for answer, key in self.KEYS.items()} | {"y": next(iter(self.KEYS)), "n": "deny"}
        super().__init__(asked, lines, self.KEYS, marks, readable=readable)

    def answers(self) -> list[str]:
        return sorted(self._ways, key=self.KEYS.__getitem__)

    def words(self, answer: str) -> str:
        return self._ways[answer]

    def lines(self, request: ControlRequest) -> list[CardLine]:
        return [own_words(_PLAN_FIRST), *subject_lines(request)]

    def ways(self, request: ControlRequest) -> Mapping[str, str]:
        return {"yes": "Yes, plan first", "deny": "No, go on"}

    def title(self) -> str:
        return "Plan first?"

    def choose(self, answer: str) -> None:
        if answer == "deny":
            self.ask_for_text(self.WHY_NOT)
        else:
            self.respond({"behavior": "allow", **self.agreed(answer)})

    def agreed(self, answer: str) -> Json:
        return {"updatedInput": self.asked.request.input}

    def field_given(self, text: str) -> None:
        self.respond({"behavior": "deny", "message": said_with(self.DENIED, text)})


class TrustCard(AgreementCard):
    """Shows what a project switches on. The payload of the answer is {"trusted"}."""

    def lines(self, request: ControlRequest) -> list[CardLine]:
        return trust_lines(request.input)

    def ways(self, request: ControlRequest) -> Mapping[str, str]:
        return {"yes": "Yes, trust it on this host", "deny": "Not now"}

    def title(self) -> str:
        return "Trust the files of this project?"

    @property
    def first_mark(self) -> str:
        return ""  # what a project may run is decided with more than Tab and Enter

    def choose(self, answer: str) -> None:
        self.respond({"trusted": answer == "yes"})


class ReversePortCard(TrustCard):
    """Asks whether the host may reach a port of this machine. The payload of the answer is {"allowed"}."""

    def __init__(self, asked: Asked) -> None:
        self._about = ReversedPort(**asked.request.input)
        super().__init__(replace(asked, place=""))

    def lines(self, request: ControlRequest) -> list[CardLine]:
        return [CardLine("  ", escaped_name(each), RowStyle.EXACT, "  ") for each in self._about.facts]

    def ways(self, request: ControlRequest) -> Mapping[str, str]:
        return {"yes": "Yes, in this session", "deny": "No"}

    def title(self) -> str:
        return self._about.question

    def choose(self, answer: str) -> None:
        self.respond({"allowed": answer == "yes"})


_WAYS = {"acceptEdits": "edits", "default": "ask", "bypassPermissions": "before"}


class PlanCard(AgreementCard):
    """Shows a plan as Markdown, or exactly as it was written. The key of the editor lets the person change it; what
    they approve is the plan as they left it."""

    ASKS_FOR = "plan"
    DEFAULT_CSS = """
    PlanCard TextArea {
        display: none; height: 1fr; max-height: 60vh; border: none; padding: 0; background: $surface;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    PlanCard.editing { height: 70vh; }
    PlanCard.editing TextArea { display: block; }
    PlanCard.editing ApprovalSubject { display: none; }
    PlanCard.editing Input { display: none; }
    """
    DENIED = "The user wants to go on planning; plan mode stays on."
    WHY_NOT = "What should be different? The agent reads it. Enter sends it, Esc goes back."
    KEYS: ClassVar[Mapping[str, str]] = {"edits": "1", "ask": "2", "deny": "3", "before": "4", "plain": "5"}

    def __init__(self, asked: Asked) -> None:
        plan = asked.request.input.get("plan")
        self._proposed = self._plan = plan if isinstance(plan, str) else ""
        self._exact = False
        super().__init__(asked)
        self._editor = TextArea(tab_behavior="focus", id="plan")
        self._editable = bool(self._plan) and not any(char == "\r" or is_hidden(char) for char in self._plan)

    def lines(self, request: ControlRequest) -> list[CardLine]:
        return subject_lines(request, rendered=not self._exact)

    def ways(self, request: ControlRequest) -> Mapping[str, str]:
        self._updates: dict[str, Json] = {}
        self._rules: list[Json] = []
        ways = {}
        commands = dict.fromkeys(each.strip() for each in commands_of_plan(request.input))
        shown = [{"toolName": BASH.name, "ruleContent": each} for each in commands]
        for update in suggestions(request):
            if update.get("type") == "addRules" and shown and update.get("rules") == shown:
                self._rules = [{**update, "behavior": "allow", "destination": "session"}]
        for mode, (words, update) in plan_modes(request).items():
            self._updates[_WAYS[mode]], ways[_WAYS[mode]] = update, words
        if self._rules and "ask" in ways:
            self._updates["plain"], ways["plain"] = self._updates["ask"], "Yes, and ask before those commands too"
        return {**(ways or {"edits": "Yes"}), "deny": "No, keep planning"}

    def title(self) -> str:
        return "Approve the plan, as you changed it," if self._plan != self._proposed else "Approve the plan"

    def hint(self) -> str:
        edits = self.asked.keymap.name("editor")
        if self.has_class("editing"):
            return f"{edits} or Esc: done"
        return f"{edits} changes the plan" if self.is_attached and self.has_focus and self._editable else ""

    def details(self, *, more: bool) -> str:
        if self._exact or self.subject.has_markdown:
            return "rendered" if self._exact else "exact text"
        return super().details(more=more)

    def toggle_whole(self) -> None:
        """Show the plan exactly, on the whole screen if it is long, or again as Markdown."""
        if self._exact or self.subject.has_markdown:
            self._exact = not self._exact
            self.subject.replace_lines(self._present_lines(), known=not self.subject.unseen)
            self.subject.scroll_home(animate=False, immediate=True)
        super().toggle_whole()

    def _present_lines(self) -> list[CardLine]:
        asked = {**self.asked.request.request, "input": {**self.asked.request.input, "plan": self._plan}}
        return self.lines(replace(self.asked.request, request=asked))

    def compose(self) -> ComposeResult:
        yield self._editor
        yield from super().compose()

    def show_choices(self) -> None:
        super().show_choices()
        self.show_titles()

    def agreed(self, answer: str) -> Json:
        changed = {"plan": self._plan, "planWasEdited": True} if self._plan != self._proposed else {}
        said: Json = {"updatedInput": {**self.asked.request.input, **changed}}
        if answer in self._updates:
            said["updatedPermissions"] = [self._updates[answer], *(self._rules if answer != "plain" else ())]
        return said

    # The editor.

    def typed_into(self) -> Widget:
        return self._editor if self.has_class("editing") else self.field

    def on_key(self, event: events.Key) -> None:
        editing = self.has_class("editing")
        if not self.asked.keymap.has("editor", event.key) or not (editing or (self.has_focus and self._editable)):
            return
        event.stop()
        event.prevent_default()
        if editing:
            self.end_of_text()
            return
        self._editor.text = self._plan
        self.add_class("typing", "editing")
        self._editor.focus()
        self.show_titles()

    def end_of_text(self) -> None:
        self._end_editing()
        super().end_of_text()

    def set_situation(self, *, driving: bool, note: str) -> None:
        if not driving:
            self._end_editing()
        super().set_situation(driving=driving, note=note)

    def _end_editing(self) -> None:
        if not self.has_class("editing"):
            return
        self.remove_class("editing")
        plan = self._editor.text.strip()
        if plan and plan != self._plan:
            self._plan = plan
            self.subject.replace_lines(self._present_lines())
            self.show_titles()

    def turn(self, pages: int) -> bool:
        if not self.has_class("editing"):
            return super().turn(pages)
        if pages > 0:
            self._editor.action_cursor_page_down()
        else:
            self._editor.action_cursor_page_up()
        return True
