"""The approval card: what a tool call would do, why it is asked, and the three answers.

It never takes keystrokes that were meant for the composer: it gets the focus only when the composer is empty and no key was
pressed for GRACE_S, or when the person goes there with Tab or Alt+A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from ccb.tunnel.plain_text import neutralise

from ..messages import ControlRequest
from .look import Look, diff_text

Json = dict[str, Any]

GRACE_S = 0.5

_DIFFED = ("Edit", "MultiEdit", "Write")
_MAX_DIFF = 200


@dataclass(frozen=True)
class Verdict:
    """`response` is the answer in the public shape."""

    request_id: str
    response: Json
    shown: str


def describe_update(update: Json) -> str:
    """A permission update in words: the exact rule, mode or directory."""
    kind = update.get("type")
    if kind in ("addRules", "replaceRules"):
        rules = update.get("rules")
        names = []
        for rule in rules if isinstance(rules, list) else []:
            if isinstance(rule, dict):
                content = rule.get("ruleContent")
                names.append(f"{rule.get('toolName', '?')}({content})" if content else str(rule.get("toolName", "?")))
        return "allow " + ", ".join(neutralise(name) for name in names)
    if kind == "setMode":
        return f"permission mode {neutralise(str(update.get('mode')))}"
    if kind == "addDirectories":
        directories = update.get("directories")
        return "work in " + ", ".join(
            neutralise(str(each)) for each in (directories if isinstance(directories, list) else [])
        )
    return neutralise(str(kind))


def session_updates(request: ControlRequest) -> list[Json]:
    """What "allow for this session" grants: the first suggestion, for this session only."""
    return [{**update, "destination": "session"} for update in request.request.permission_suggestions[:1]]


class ApprovalCard(Vertical, can_focus=True):
    """One pending question."""

    DEFAULT_CSS = """
    ApprovalCard { height: auto; max-height: 70%; border: round $warning; padding: 0 1; margin: 0 0; }
    ApprovalCard:focus, ApprovalCard:focus-within { border: heavy $warning; }
    ApprovalCard VerticalScroll { height: auto; max-height: 20; }
    ApprovalCard Input { border: none; height: 1; padding: 0; background: $surface; display: none; }
    ApprovalCard.denying Input { display: block; }
    """

    @dataclass
    class Answered(Message):
        """The person decided."""

        verdict: Verdict

    @dataclass
    class Interrupted(Message):
        """The person wants the turn to end."""

    def __init__(self, request: ControlRequest, where: str, look: Look, *, waiting: int) -> None:
        super().__init__(id="approval")
        self.request = request
        self._where = where
        self._look = look
        self._waiting = waiting
        self._updates = session_updates(request)

    def compose(self) -> ComposeResult:
        asked = self.request.request
        self.border_title = Text(f" {neutralise(asked.tool_name)} on {self._where} ", style="bold").plain
        if self._waiting:
            self.border_subtitle = f" {self._waiting} more waiting "
        yield VerticalScroll(Static(self._subject()), can_focus=False)
        reason = neutralise(asked.decision_reason or "")
        if reason:
            yield Static(Text(f"Asked because: {reason}", style=self._look.dim))
        yield Static(self._choices())
        yield Input(placeholder="Why not? The agent will read it. Enter denies, Esc goes back.")

    def _subject(self) -> Group | Text:
        asked = self.request.request
        if asked.tool_name in _DIFFED:
            path = Text(neutralise(str(asked.input.get("file_path", ""))), style="bold")
            return Group(path, diff_text(asked.tool_name, asked.input, [], self._look, _MAX_DIFF))
        command = asked.input.get("command")
        if isinstance(command, str):
            return Text(neutralise(command), style="bold")
        lines = [f"{neutralise(str(key))}: {neutralise(str(value))}" for key, value in asked.input.items()]
        return Text("\n".join(lines))

    def _choices(self) -> Text:
        text = Text()
        text.append("1", style=f"bold {self._look.accent}")
        text.append(" allow once   ")
        if self._updates:
            text.append("2", style=f"bold {self._look.accent}")
            text.append(f" for this session: {'; '.join(map(describe_update, self._updates))}   ")
        text.append("3", style=f"bold {self._look.accent}")
        text.append(" deny   ")
        text.append("Esc", style=f"bold {self._look.accent}")
        text.append(" interrupt   ")
        text.append("(Tab or Alt+A to answer)", style=self._look.dim)
        return text

    def on_key(self, event: events.Key) -> None:
        if "denying" in self.classes:
            if event.key == "escape":
                event.stop()
                self.remove_class("denying")
                self.focus()
            return
        if not self.has_focus:
            return
        if event.key == "1":
            self._allow([])
        elif event.key == "2" and self._updates:
            self._allow(self._updates)
        elif event.key == "3":
            self.add_class("denying")
            self.query_one(Input).focus()
        elif event.key == "escape":
            self.post_message(self.Interrupted())
        else:
            return
        event.stop()
        event.prevent_default()

    def _allow(self, updates: list[Json]) -> None:
        response: Json = {"behavior": "allow", "updatedInput": self.request.request.input}
        if updates:
            response["updatedPermissions"] = updates
        shown = "allowed for this session" if updates else "allowed once"
        self.post_message(self.Answered(Verdict(self.request.request_id, response, shown)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        reason = event.value.strip()
        message = reason or "The user does not want this to be done."
        response: Json = {"behavior": "deny", "message": message}
        shown = f"denied: {reason}" if reason else "denied"
        self.post_message(self.Answered(Verdict(self.request.request_id, response, shown)))
