"""Questions of the worker with numbered choices: what a line of the person answers."""

from __future__ import annotations

from typing import Any

from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import ControlRequestLine
from ccb.tunnel.wire.requests import TRUST_PROJECT
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..tui.model.forms.form import FormField, read_questions
from ..tui.render.approval_text import bounded, subject_lines
from ..tui.render.permission_updates import KEPT, can_be_kept, describe_update, kept_in, session_updates
from ..tui.render.trust_text import trust_lines
from ..tui.render.untrusted.escapes import escaped_name

Json = dict[str, Any]

_DENIED = "The user denied this; it was not done."
_CANNOT = "This question needs the full interface; only a refusal is possible here."


@dataclass(frozen=True)
class Reply:
    """What a line means: an answer for the worker, or `again`, why it is none."""

    response: Json | None = None
    again: str = ""


class PlainQuestion:
    """One question. `lines` is all of it, and its choices."""

    def __init__(self, request: ControlRequestLine, place: str) -> None:
        self.request = request
        self._fields: tuple[FormField, ...] = ()
        self._answers: dict[str, str] = {}
        self._place = place
        self._readable = True
        self._updates = session_updates(request)
        if traits_of(request.tool_name).view is View.QUESTIONS:
            form = read_questions(request.input)
            self._fields = form.fields if form is not None else ()

    @property
    def lines(self) -> list[str]:
        """The question, the newest part of it."""
        if self._fields:
            return self._field_lines(self._fields[len(self._answers)])
        if self.request.subtype == TRUST_PROJECT.name:
            return self._trust_lines()
        if self.request.subtype != "can_use_tool":
            return [_CANNOT, "n: refuse"]
        shown, self._readable = bounded(subject_lines(self.request))
        lines = [f"The agent asks to use {escaped_name(self.request.tool_name)} on "
                 f"{self._place}:"]  # fmt: skip
        lines += [f"  {line.gutter}{line.picture}" for line in shown]
        if reason := self.request.text("decision_reason"):
            lines.append(f"Asked because: {escaped_name(reason)}")
        lines.append(f"Sandbox: {escaped_name(self.request.text('sandbox') or 'no cage')}")
        return [*lines, *self._choices()]

    def reply(self, text: str) -> Reply:
        """Return what a line of the person means."""
        text = text.strip()
        word, _, rest = text.partition(" ")
        if self._fields:
            return self._field_reply(text)
        if self.request.subtype == TRUST_PROJECT.name:
            return Reply({"trusted": word == "1"}) if word in ("1", "2") else Reply(again="Type 1 or 2.")
        if self.request.subtype != "can_use_tool":
            return Reply({"action": "decline"}) if word == "n" else Reply(again="Type n.")
        if word in ("3", "n"):
            return Reply({"behavior": "deny", "message": _DENIED + (f" The user says: {rest}" if rest else "")})
        if not self._readable:
            return Reply(again="This call is too long to be read, so it can only be denied: type 3.")
        if word in ("1", "y"):
            return Reply({"behavior": "allow", "updatedInput": self.request.input})
        if (word == "2" and self._updates) or (word == "4" and can_be_kept(self._updates)):
            destination = "session" if word == "2" else KEPT
            updates = [{**each, "destination": destination} for each in self._updates]
            return Reply({"behavior": "allow", "updatedInput": self.request.input, "updatedPermissions": updates})
        return Reply(again="Type the number of an answer. What you say to the agent waits until this is answered.")

    def _choices(self) -> list[str]:
        if not self._readable:
            return ["3: deny (a reason may follow)"]
        rules = "; ".join(rule for each in self._updates for rule in describe_update(each))
        session = [f"2: allow, and for this session {rules}"] if rules else []
        always = [f"4: allow, and always for this host and directory {rules}; kept in {kept_in()}"]
        return [
            *("1: allow once", *session, "3: deny (a reason may follow)"),
            *(always if can_be_kept(self._updates) else []),
        ]

    def _trust_lines(self) -> list[str]:
        lines = [f"Do you trust the files of {HostText(str(self.request.input.get('directory'))).path}?"]
        lines += [f"  {line.gutter}{line.picture}" for line in trust_lines(self.request.input)]
        return [*lines, "1: trust them", "2: do not trust them"]

    def _field_lines(self, field: FormField) -> list[str]:
        lines = [f"The agent asks: {field.question}"]
        for number, option in enumerate(field.options, 1):
            said = f": {option.description}" if option.description else ""
            lines.append(f"{number}: {option.label}{said}")
        several = "Type one number or several with commas" if field.several else "Type a number"
        return [*lines, f"{several}{', or an answer of your own' if field.own_text else ''}; n alone declines."]

    def _field_reply(self, text: str) -> Reply:
        field = self._fields[len(self._answers)]
        if text == "n":
            return Reply({"behavior": "deny", "message": "The user declined to answer the questions."})
        numbers = text.replace(",", " ").split()
        if numbers and all(each.isdigit() and 0 < int(each) <= len(field.options) for each in numbers):
            if len(numbers) > 1 and not field.several:
                return Reply(again="Only one answer is possible.")
            self._answers[field.key] = ", ".join(field.options[int(each) - 1].label for each in numbers)
        elif text and field.own_text:
            self._answers[field.key] = text
        else:
            return Reply(again="Type the number of an answer.")
        if len(self._answers) < len(self._fields):
            return Reply()
        return Reply({"behavior": "allow", "updatedInput": {**self.request.input, "answers": dict(self._answers)}})
