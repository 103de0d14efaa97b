"""The card on which the person fills in the form of an MCP server."""

from __future__ import annotations

from ccb.tunnel.wire.kinds.mcp import ELICITATION
from ccb.tunnel.wire.messages import ControlRequestLine

from ....session.answers.own_questions import is_own
from ....terminal.keymap import Keymap
from ...model.forms.elicitation import ServerForm, read_server_form, yes_only
from ...model.forms.form import Answers, Form
from ...render.untrusted.escapes import escaped_name
from ...theme.palette import Palette
from .form_card import FormCard

_MAX_SERVER = 64
_MAX_MESSAGE = 10_000
_OPENED = "I have opened it"
_UNREADABLE = "The server wants a form that ccb cannot show. Esc declines it."


class ElicitationCard(FormCard):
    """Shows the form of a server, or the address that the person should visit. A form that cannot be shown can only be
    declined."""

    def __init__(self, request: ControlRequestLine, place: str, palette: Palette, keymap: Keymap) -> None:
        message = request.text("message")[:_MAX_MESSAGE]
        if request.text("mode") == "url":
            shown = f"{message}\nOpen this address in a browser, if you trust it: {request.text('url')}"
            form: ServerForm | None = ServerForm(Form((yes_only("", shown, _OPENED),)), {})
        else:
            form = read_server_form(message, request.request.get("requested_schema"))
        self._server_form = form
        unreadable = Form((yes_only("", f"{message}\n{_UNREADABLE}", "decline"),))
        super().__init__(request, place, palette, form.form if form is not None else unreadable, keymap)
        self._place = "this laptop" if is_own(request.request_id) else place

    def asker(self) -> str:
        return f"The MCP server {escaped_name(self.request.text('mcp_server_name'))[:_MAX_SERVER]} asks"

    def answer_form(self, answers: Answers) -> None:
        form = self._server_form
        if form is None:
            self.decline("")
        elif self.request.text("mode") == "url":
            self.respond({"action": "accept"})
        else:
            self.respond({"action": "accept", "content": form.content(answers)})

    def decline(self, reason: str) -> None:
        self.respond({"action": "decline"})

    def escape(self) -> None:
        self.decline("")


def is_elicitation(request: ControlRequestLine) -> bool:
    """Return whether this is the form of an MCP server."""
    return request.subtype == ELICITATION.name
