"""The approval card: what a tool call would do, why it is asked, and the three answers.

It never takes keystrokes that were meant for the composer: it gets the focus only when the composer is empty and no key was
pressed for GRACE_S, or when the person goes there with Tab or Alt+A; what is typed on it that is no answer goes to the composer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.tool_traits import traits_of

from ...session.messages import ControlRequest
from ..render.diffs import diff_text
from ..theme.palette import Look

Json = dict[str, Any]

GRACE_S = 0.5

_MAX_LINES = 2_000
_MAX_CHARS = 200_000
_MAX_RULE = 1_000
_MAX_REASON = 500
_DENIED = "The user denied this; it was not done."
_SHARE = 0.7  # of the screen that a card may take
_LINES = {"up": -1, "down": 1, "home": -_MAX_CHARS, "end": _MAX_CHARS}
_REST = 3  # lines of transcript, composer and status that stay on a small screen


@dataclass(frozen=True)
class Verdict:
    """`response` is the answer in the public shape."""

    request_id: str
    response: Json


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
        return f"{one_line(str(update.get('behavior', 'allow')))} " + ", ".join(map(one_line, names))
    if kind == "setMode":
        return f"permission mode {one_line(str(update.get('mode')))}"
    if kind == "addDirectories":
        directories = update.get("directories")
        return "work in " + ", ".join(
            one_line(str(each)) for each in (directories if isinstance(directories, list) else ())
        )
    return one_line(str(kind))


def session_updates(request: ControlRequest) -> list[Json]:
    """What "allow for this session" grants: the first suggestion, for this session only; nothing that is too long to read."""
    first = request.request.permission_suggestions[:1]
    return [{**update, "destination": "session"} for update in first if len(describe_update(update)) <= _MAX_RULE]


class ApprovalCard(Vertical, can_focus=True):
    """One pending question."""

    DEFAULT_CSS = """
    ApprovalCard { height: auto; border: round $warning; padding: 0 1; background: $background; }
    ApprovalCard:focus, ApprovalCard:focus-within { border: heavy $warning; }
    ApprovalCard VerticalScroll { height: auto; scrollbar-size-vertical: 1; }
    ApprovalCard Static { height: auto; }
    ApprovalCard Input {
        border: none; height: 1; padding: 0; background: $surface; display: none;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    ApprovalCard.denying Input { display: block; }
    ApprovalCard.denying .choices { display: none; }
    """

    @dataclass
    class Answered(Message):
        """The person decided."""

        verdict: Verdict

    @dataclass
    class Interrupted(Message):
        """The person wants the turn to end."""

    @dataclass
    class Typed(Message):
        """Something was typed that is no answer."""

        text: str

    def __init__(self, request: ControlRequest, where: str, look: Look) -> None:
        super().__init__(id="approval")
        self.request = request
        self._where = where
        self._look = look
        self._updates = session_updates(request)
        self._subject_box = VerticalScroll(Static(self._subject()), can_focus=False)
        self._reason = Static(classes="reason")
        self._choices = Static(classes="choices")
        self._driving = True
        self._note = ""
        self._waiting = 0
        self._input = Input(placeholder="Why not? The agent reads it. Enter denies, Esc goes back.", compact=True)

    def compose(self) -> ComposeResult:
        self.show_titles()
        yield self._subject_box
        reason = one_line(self.request.request.decision_reason or "")[:_MAX_REASON]
        if reason:
            self._reason.update(Text(f"Asked because: {reason}", style=self._look.dim))
            yield self._reason
        yield self._choices
        yield self._input

    def on_mount(self) -> None:
        self.watch(self._subject_box, "scroll_y", self.show_titles, init=False)
        self.call_after_refresh(self.fit)

    def more_waiting(self, count: int) -> None:
        """Say how many questions come after this one."""
        self._waiting = count
        self.show_titles()

    def show_titles(self) -> None:
        """What is asked where; that there is more to read below, so that nobody allows what they have not seen; what waits."""
        title = f"{one_line(self.request.request.tool_name)} on {self._where}"
        below = self._subject_box.max_scroll_y - round(self._subject_box.scroll_y) if self.is_attached else 0
        more = f"↓ {below} more line{'s' if below != 1 else ''}" if below > 0 else ""
        short = self.is_attached and self.screen.has_class("-short")  # has no lower border
        self.border_title = Content(f"{more} · {title}" if more and short else title)
        waiting = f"{self._waiting} more waiting" if self._waiting else ""
        self.border_subtitle = Content(" · ".join(filter(None, ("" if short else more, waiting))))

    def situation(self, *, driving: bool, note: str) -> None:
        """Whether the person may answer here, and what else there is to say about an answer now."""
        if (driving, note) == (self._driving, self._note):
            return
        self._driving, self._note = driving, note
        self.can_focus = driving
        if not driving:
            self.remove_class("denying")
        if self.is_attached:
            self.fit()

    def fit(self) -> None:
        """Leave room for the answers, whatever the size of the subject and of the screen."""
        if not self.is_attached:
            return
        self._show_choices()
        below = sum(each.size.height for each in (self._reason, self._choices, self._input) if each.display)
        height = self.app.size.height
        room = int(height * _SHARE) if self.screen.has_class("-tall") else height - _REST
        self._subject_box.styles.max_height = max(1, room - self.gutter.height - below)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fit)

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        if self.is_attached:
            self._show_choices()

    def _subject(self) -> RenderableType:
        asked = self.request.request
        if traits_of(asked.tool_name).view.is_diff:
            path = Text(neutralise(str(asked.input.get("file_path", ""))), style="bold")
            diff = diff_text(asked.tool_name, asked.input, [], self._look, _MAX_CHARS, wrap=True)
            return Group(path, _bounded(diff, self._look))
        command = asked.input.get("command")
        if isinstance(command, str):
            text = Text(neutralise(command), style="bold", overflow="fold")
            said = asked.input.get("description")
            if isinstance(said, str) and said:
                text.append(f"\n{one_line(said)}", style=f"not bold {self._look.dim}")
            others = {key: value for key, value in asked.input.items() if key not in ("command", "description")}
            if others:
                text.append("\n").append_text(_fields(others, self._look))
            return _bounded(text, self._look)
        return _bounded(_fields(asked.input, self._look), self._look)

    def _show_choices(self) -> None:
        """The answers in one line; one a line where that is too narrow but high enough."""
        accent, dim = f"bold {self._look.accent}", self._look.dim
        if not self._driving:
            self._choices.update(Text(self._note, style=dim))
            return
        answers = [("1", "once")]
        if self._updates:
            answers.append(("2", f"this session: {'; '.join(map(describe_update, self._updates))}"))
        answers += [("3", "deny"), ("Esc", "interrupt")]
        parts = [Text.assemble((key, accent), f" {does}", style="" if self.has_focus else dim) for key, does in answers]
        if not self.has_focus:
            parts.insert(0, Text.assemble(("Tab", accent), " to answer:"))
        text = Text("   ").join(parts)
        if text.cell_len > self.content_size.width and self.screen.has_class("-tall"):
            text = Text("\n").join(parts)
        if self._note:
            text.append(f"\n{self._note}", style=f"not bold {self._look.warn}")
        self._choices.update(text)

    def on_key(self, event: events.Key) -> None:
        if self.has_class("denying"):
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
            self._input.focus()
        elif event.key == "escape":
            self.post_message(self.Interrupted())
        elif event.key in _LINES:
            self._scroll_by(_LINES[event.key])
        elif event.is_printable and event.character and event.character not in "123":
            self.post_message(self.Typed(event.character))
        else:
            return
        event.stop()
        event.prevent_default()

    def turn(self, pages: int) -> bool:
        """Scroll the subject by pages; False when all of it is seen."""
        self._scroll_by(pages * self._subject_box.scrollable_content_region.height)
        return self._subject_box.max_scroll_y > 0

    def _scroll_by(self, lines: int) -> None:
        """At once: of several keys that wait for the same refresh, all but one are lost."""
        self._subject_box.scroll_relative(y=lines, animate=False, immediate=True)

    def on_paste(self, event: events.Paste) -> None:
        if self.has_focus:
            event.stop()
            self.post_message(self.Typed(event.text))

    def _allow(self, updates: list[Json]) -> None:
        response: Json = {"behavior": "allow", "updatedInput": self.request.request.input}
        if updates:
            response["updatedPermissions"] = updates
        self.post_message(self.Answered(Verdict(self.request.request_id, response)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        said = event.value.strip()
        message = _DENIED + (f" The user says: {said}" if said else "")
        self.post_message(self.Answered(Verdict(self.request.request_id, {"behavior": "deny", "message": message})))


def _bounded(text: Text, look: Look) -> Text:
    """`text`, or as much of it as can be shown, under a line that says so."""
    lines = text.plain[:_MAX_CHARS].split("\n")
    end = len("\n".join(lines[:_MAX_LINES]))
    if end == len(text.plain):
        return text
    warning = f"Too long to show: these are the first {end:,} of {len(text.plain):,} characters.\n"
    return Text.assemble((warning, f"bold {look.bad}"), text[:end], overflow="fold")


def _fields(values: Json, look: Look) -> Text:
    text = Text(overflow="fold")
    for number, (key, value) in enumerate(values.items()):
        text.append(("\n" if number else "") + f"{one_line(str(key))}: ", style=look.dim)
        text.append(neutralise(str(value)))
    return text
