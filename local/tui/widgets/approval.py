"""The approval card: what a tool call would do, why the worker asks, and the three answers.

It never takes keys that were meant for the composer. It gets the focus only if the composer is empty and no key was
pressed for GRACE_S, or if the person goes there with Tab or Alt+A. Keys that are not an answer are passed to the
composer.
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
from ..theme.palette import Palette

Json = dict[str, Any]

GRACE_S = 0.5
"""Seconds without a key before the card may take the focus by itself."""

_MAX_LINES = 2_000
_MAX_CHARS = 200_000
_MAX_RULE = 1_000
_MAX_REASON = 500
_DENIED = "The user denied this; it was not done."
_MAX_SHARE = 0.7  # of the screen
_OTHER_LINES = 3  # lines of transcript, composer and status line, which stay on a small screen
_SCROLL_KEYS = {"up": -1, "down": 1, "home": -_MAX_CHARS, "end": _MAX_CHARS}


@dataclass(frozen=True)
class ApprovalAnswer:
    """The person's answer. `response` has the public shape of an answer to `can_use_tool`."""

    request_id: str
    response: Json


def describe_update(update: Json) -> str:
    """Return a permission update in words: the exact rule, mode or directory."""
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
    """Return what the answer "this session" grants: the first suggestion, for this session only. A suggestion that
    is too long to read is never granted."""
    first = request.request.permission_suggestions[:1]
    return [{**update, "destination": "session"} for update in first if len(describe_update(update)) <= _MAX_RULE]


class ApprovalCard(Vertical, can_focus=True):
    """Shows one open question and takes the person's answer."""

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
        """The person has answered."""

        answer: ApprovalAnswer

    @dataclass
    class Interrupted(Message):
        """The person wants the turn to end."""

    @dataclass
    class TextTyped(Message):
        """The person typed text that is not an answer."""

        text: str

    def __init__(self, request: ControlRequest, place: str, palette: Palette) -> None:
        super().__init__(id="approval")
        self.request = request
        self._place = place
        self._palette = palette
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
            self._reason.update(Text(f"Asked because: {reason}", style=self._palette.dim))
            yield self._reason
        yield self._choices
        yield self._input

    def on_mount(self) -> None:
        self.watch(self._subject_box, "scroll_y", self.show_titles, init=False)
        self.call_after_refresh(self.fit)

    def more_waiting(self, count: int) -> None:
        """Show how many questions wait behind this one."""
        self._waiting = count
        self.show_titles()

    def show_titles(self) -> None:
        """Show the tool and the host, whether there is more to read below (nobody should allow what they have not
        seen), and the number of waiting questions."""
        title = f"{one_line(self.request.request.tool_name)} on {self._place}"
        below = self._subject_box.max_scroll_y - round(self._subject_box.scroll_y) if self.is_attached else 0
        more = f"↓ {below} more line{'s' if below != 1 else ''}" if below > 0 else ""
        short = self.is_attached and self.screen.has_class("-short")  # such a card has no lower border
        self.border_title = Content(f"{more} · {title}" if more and short else title)
        waiting = f"{self._waiting} more waiting" if self._waiting else ""
        self.border_subtitle = Content(" · ".join(filter(None, ("" if short else more, waiting))))

    def set_situation(self, *, driving: bool, note: str) -> None:
        """Set whether the person may answer here, and a note about what happens to an answer now."""
        if (driving, note) == (self._driving, self._note):
            return
        self._driving, self._note = driving, note
        self.can_focus = driving
        if not driving:
            self.remove_class("denying")
        if self.is_attached:
            self.fit()

    def fit(self) -> None:
        """Limit the height of the subject, so that the answers fit on the screen."""
        if not self.is_attached:
            return
        self._show_choices()
        below = sum(each.size.height for each in (self._reason, self._choices, self._input) if each.display)
        height = self.app.size.height
        room = int(height * _MAX_SHARE) if self.screen.has_class("-tall") else height - _OTHER_LINES
        self._subject_box.styles.max_height = max(1, room - self.gutter.height - below)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fit)

    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        if self.is_attached:
            self._show_choices()

    def _subject(self) -> RenderableType:
        """Draw what the tool would do: a diff, a command, or all fields of the input."""
        asked = self.request.request
        traits = traits_of(asked.tool_name)
        if traits.view.is_diff:
            file = asked.input.get(traits.path.key, "") if traits.path else ""
            path = Text(neutralise(str(file)), style="bold")
            diff = diff_text(asked.tool_name, asked.input, [], self._palette, _MAX_CHARS, wrap=True)
            return Group(path, _bounded(diff, self._palette))
        command = asked.input.get("command")
        if isinstance(command, str):
            text = Text(neutralise(command), style="bold", overflow="fold")
            description = asked.input.get("description")
            if isinstance(description, str) and description:
                text.append(f"\n{one_line(description)}", style=f"not bold {self._palette.dim}")
            others = {key: value for key, value in asked.input.items() if key not in ("command", "description")}
            if others:
                text.append("\n").append_text(_fields(others, self._palette))
            return _bounded(text, self._palette)
        return _bounded(_fields(asked.input, self._palette), self._palette)

    def _show_choices(self) -> None:
        """Show the answers on one line, or one below the other on a narrow screen that is high enough."""
        accent, dim = f"bold {self._palette.accent}", self._palette.dim
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
            text.append(f"\n{self._note}", style=f"not bold {self._palette.warn}")
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
        elif event.key in _SCROLL_KEYS:
            self._scroll_by(_SCROLL_KEYS[event.key])
        elif event.is_printable and event.character and event.character not in "123":
            self.post_message(self.TextTyped(event.character))
        else:
            return
        event.stop()
        event.prevent_default()

    def turn(self, pages: int) -> bool:
        """Scroll the subject by pages. Return False if all of it is on the screen."""
        self._scroll_by(pages * self._subject_box.scrollable_content_region.height)
        return self._subject_box.max_scroll_y > 0

    def _scroll_by(self, lines: int) -> None:
        """Scroll at once: of several scrolls that wait for the same refresh only one takes effect."""
        self._subject_box.scroll_relative(y=lines, animate=False, immediate=True)

    def on_paste(self, event: events.Paste) -> None:
        if self.has_focus:
            event.stop()
            self.post_message(self.TextTyped(event.text))

    def _allow(self, updates: list[Json]) -> None:
        response: Json = {"behavior": "allow", "updatedInput": self.request.request.input}
        if updates:
            response["updatedPermissions"] = updates
        self.post_message(self.Answered(ApprovalAnswer(self.request.request_id, response)))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        reason = event.value.strip()
        message = _DENIED + (f" The user says: {reason}" if reason else "")
        self.post_message(
            self.Answered(ApprovalAnswer(self.request.request_id, {"behavior": "deny", "message": message}))
        )


def _bounded(text: Text, palette: Palette) -> Text:
    """Return `text`, or under a warning the beginning of it that can be shown."""
    lines = text.plain[:_MAX_CHARS].split("\n")
    end = len("\n".join(lines[:_MAX_LINES]))
    if end == len(text.plain):
        return text
    warning = f"Too long to show: these are the first {end:,} of {len(text.plain):,} characters.\n"
    return Text.assemble((warning, f"bold {palette.bad}"), text[:end], overflow="fold")


def _fields(values: Json, palette: Palette) -> Text:
    """Draw each value of an input on lines of its own."""
    text = Text(overflow="fold")
    for number, (key, value) in enumerate(values.items()):
        text.append(("\n" if number else "") + f"{one_line(str(key))}: ", style=palette.dim)
        text.append(neutralise(str(value)))
    return text
