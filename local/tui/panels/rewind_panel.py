"""Points to go back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from rich.text import Text
from textual import events
from textual.containers import Vertical
from textual.message import Message

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import (
    REWIND_CONVERSATION,
    REWIND_FILES,
    REWIND_POINTS,
    ConversationRewind,
    FileRewind,
)
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestFailed

from ...session.session_client import SessionClient
from ...slash_commands.about_session import PastPrompt, PastPrompts
from ...slash_commands.other_sessions import ChangedFile, RewindPreview
from ...slash_commands.session_api import ErrorDisplay
from ...transcript.blocks import Level
from ...transcript.notices import path_in
from ...transcript.transcript_reducer import TranscriptReducer
from ..composer.composer import Composer
from ..rendering.themes import Palette
from .list_panel import ListPanel, PanelClosed

_MAX_FILES = 8
_SIGNS = {"change": "~", "create": "+", "remove": "-"}


class Scope(Enum):
    """What goes back."""

    BOTH = "conversation and files"
    CONVERSATION = "conversation only"
    FILES = "files only"


class RewindPanel(ListPanel):
    """First lists the prompts, then shows what would change for the chosen one."""

    DEFAULT_CSS = "RewindPanel { max-height: 20; }"
    MAX_ROWS = 8
    LETTERS = False

    @dataclass
    class Picked(Message):
        """The person has picked a prompt: the preview of its files is wanted."""

        point: PastPrompt

    @dataclass
    class Chosen(Message):
        """The person has chosen what goes back."""

        point: PastPrompt
        scope: Scope

    def __init__(self, points: Sequence[PastPrompt], cwd: str, *, files_kept: bool) -> None:
        """Paths in `cwd` are shown relative to it."""
        super().__init__()
        self._cwd = cwd
        self._points = points
        self._files_kept = files_kept
        self._picked: PastPrompt | None = None
        self._preview: RewindPreview | None = None
        self._scope = 0

    def show(self, preview: RewindPreview) -> None:
        """Show what would change for the picked prompt."""
        self._preview = preview
        self._scope = 0
        self._draw()

    @property
    def _scopes(self) -> list[Scope]:
        changes = self._preview is not None and bool(self._preview.restorable)
        return [Scope.BOTH, Scope.CONVERSATION, Scope.FILES] if changes else [Scope.CONVERSATION]

    def _pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            self._back()
        elif self._picked is None and event.key == "enter":
            self._picked = self._points[self._at]
            self.post_message(self.Picked(self._picked))
        elif self._picked is None:
            self._step(event.key, len(self._points))
        elif self._preview is not None:
            self._choose(event.key, self._picked)

    def _back(self) -> None:
        if self._picked is None:
            self.post_message(PanelClosed())
        self._picked = self._preview = None

    def _choose(self, key: str, picked: PastPrompt) -> None:
        scopes = self._scopes
        if key in ("up", "down"):
            self._scope = min(max(self._scope + (1 if key == "down" else -1), 0), len(scopes) - 1)
        elif key.isdigit() and 0 < int(key) <= len(scopes):
            self._scope = int(key) - 1
        elif key == "enter":
            self.post_message(self.Chosen(picked, scopes[self._scope]))

    def _draw(self) -> None:
        self.update(self._list() if self._picked is None else self._choice(self._picked))

    def _list(self) -> Text:
        palette = self._palette
        text = Text("Go back to before which prompt?\n", style="bold", no_wrap=True, overflow="ellipsis")
        for place in self._window(len(self._points), self.MAX_ROWS):
            point, marked = self._points[place], place == self._at
            row = self._row(marked=marked).append(_shown(point), style="bold" if marked else "")
            if point.files:
                row.append(f"  {point.files} file{'s' if point.files != 1 else ''} changed since", style=palette.dim)
            text.append_text(row).append("\n")
        more = f"{len(self._points)} prompts · " if len(self._points) > self.MAX_ROWS else ""
        text.append(f"{more}Up, Down choose · Enter goes on · Esc leaves", style=f"not bold {palette.dim}")
        return text

    def _choice(self, point: PastPrompt) -> Text:
        palette = self._palette
        text = Text("Go back to before ", no_wrap=True, overflow="ellipsis")
        text.append(f"“{_shown(point)}”\n", style="bold")
        if self._preview is None:
            return text.append("Looking at the files on the host …", style=palette.dim)
        for each in self._preview.files[:_MAX_FILES]:
            text.append(_file_row(each, self._cwd, palette))
        left = len(self._preview.files) - _MAX_FILES
        if left > 0:
            text.append(f"  … and {left} more\n", style=palette.dim)
        if not self._preview.files:
            none = "No file was changed by the agent since." if self._files_kept else "This session keeps no versions."
            text.append(f"  {none}\n", style=palette.dim)
        for place, scope in enumerate(self._scopes):
            marked = place == self._scope
            text.append(f"{'›' if marked else ' '} {place + 1} ", style=f"bold {palette.accent}")
            text.append(f"{scope.value}\n", style="bold" if marked else "")
        said = "What commands in Bash have changed stays. Enter goes back · Esc: another prompt"
        return text.append(said, style=palette.dim)


def _shown(point: PastPrompt) -> str:
    return one_line(point.text)[:70] or "(no text)"


def _file_row(each: ChangedFile, cwd: str, palette: Palette) -> Text:
    row = Text(f"  {_SIGNS.get(each.does, '~')} {path_in(cwd, each.path)}", no_wrap=True)
    if each.why:
        return row.append(f"  stays: {one_line(each.why)}\n", style=palette.warn)
    row.append(f"  +{each.insertions}", style=palette.good)
    row.append(f" -{each.deletions}", style=palette.bad)
    if each.changedElsewhere:
        row.append("  changed by something else since", style=palette.warn)
    return row.append("\n")


TWICE_S = 1.5
"""Seconds in which Esc counts as pressed twice."""

Shape = TypeVar("Shape", bound=BaseModel)


class Rewinding(Vertical):
    """Holds the panel while the person goes back."""

    DEFAULT_CSS = "Rewinding { height: auto; }"

    def __init__(
        self, client: SessionClient, reducer: TranscriptReducer, composer: Composer, errors: ErrorDisplay
    ) -> None:
        super().__init__()
        self._client = client
        self._reducer = reducer
        self._composer = composer
        self._errors = errors
        self.panel: RewindPanel | None = None
        self._pressed_at = -TWICE_S

    def pressed_twice(self, now: float) -> bool:
        """Note that the person pressed Esc, at `now` in monotonic seconds. Return whether it was the second time."""
        twice = now - self._pressed_at < TWICE_S
        self._pressed_at = -TWICE_S if twice else now
        return twice

    async def open(self) -> None:
        """Let the person pick a prompt."""
        if self.panel is not None:
            return
        listed = await self._asked(Request(REWIND_POINTS, None), PastPrompts)
        if listed is None:
            return
        if not listed.points:
            self._reducer.notice("There is no prompt to go back to yet.")
            return
        if self.panel is None:
            self.panel = RewindPanel(listed.points, self._reducer.notices.cwd, files_kept=listed.files_kept)
            await self.mount(self.panel)
            self.panel.focus()

    async def on_rewind_panel_picked(self, event: RewindPanel.Picked) -> None:
        preview = await self._asked(Request(REWIND_FILES, FileRewind(event.point.id, dry_run=True)), RewindPreview)
        if preview is None:
            await self._close()
        elif self.panel is not None:
            self.panel.show(preview)

    async def on_rewind_panel_chosen(self, event: RewindPanel.Chosen) -> None:
        await self._close()
        point = event.point
        if event.scope is Scope.FILES:
            await self._asked(Request(REWIND_FILES, FileRewind(point.id)), RewindPreview)
            return
        rewind = ConversationRewind(point.id, files=event.scope is Scope.BOTH)
        done = await self._asked(Request(REWIND_CONVERSATION, rewind), RewindPreview)
        if done is not None and done.prompt:
            self._composer.give_back(done.prompt)

    async def on_panel_closed(self) -> None:
        await self._close()

    async def _close(self) -> None:
        panel, self.panel = self.panel, None
        if panel is not None:
            await panel.remove()
        self._composer.focus()

    async def _asked(self, request: Request[P, A], shape: type[Shape]) -> Shape | None:
        """Send a request. Show what went wrong, and return None."""
        try:
            return shape.model_validate(await self._client.request(request))
        except (CcbError, RequestFailed) as error:
            self._errors.show_error(error)
        except ValidationError:
            self._reducer.notice("The worker's answer about going back cannot be read.", Level.ERROR)
        return None
