"""Going back to an earlier prompt."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from rich.text import Text
from textual import events, work

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import (
    REWIND_CONVERSATION,
    REWIND_FILES,
    REWIND_POINTS,
    ConversationRewind,
    FileRewind,
)
from ccb.tunnel.wire.control_protocol import A, P, Request

from ...slash_commands.about_session import ChangedFile, PastPrompt, PastPrompts, RewindPreview
from ...slash_commands.other_sessions import summary_line
from ...slash_commands.session_api import ErrorDisplay
from ...transcript.blocks import Level
from ...transcript.notices import path_in
from ...transcript.transcript_reducer import TranscriptReducer
from ..composer.composer import Composer
from ..rendering.themes import Palette
from .list_panel import ListPanel

TWICE_S = 1.5  # seconds in which Esc counts as pressed twice
_MAX_FILES = 8
CHANGE_SIGNS = {"change": "~", "create": "+", "remove": "-"}
Shape = TypeVar("Shape", bound=BaseModel)


class Scope(Enum):
    """What becomes of the conversation and the files."""

    BOTH = "conversation and files"
    CONVERSATION = "conversation only"
    FILES = "files only"
    FROM = "summarise from here: this prompt and what follows become a summary"
    UP_TO = "summarise up to here: what was before this prompt becomes a summary"


class RewindPanel(ListPanel):
    """Hidden until it is opened. First lists the prompts, then shows what would change for the chosen one."""

    DEFAULT_CSS = "RewindPanel { max-height: 20; display: none; }"
    MAX_ROWS = 8
    LETTERS = False

    def __init__(self, reducer: TranscriptReducer, composer: Composer, host: ErrorDisplay) -> None:
        super().__init__()
        self._reducer = reducer
        self._composer = composer
        self._host = host
        self._points: Sequence[PastPrompt] = ()
        self._files_kept = self._summaries = False
        self._picked: PastPrompt | None = None
        self._preview: RewindPreview | None = None
        self._scope = 0
        self._summed_up = ""  # the prompt that comes back then
        self._esc_at = -TWICE_S

    def pressed_twice(self, now: float) -> bool:
        """Note that the person pressed Esc, at `now` in monotonic seconds. Return whether it was the second time."""
        twice = now - self._esc_at < TWICE_S
        self._esc_at = -TWICE_S if twice else now
        return twice

    @work(exclusive=True, group="points")
    async def open(self) -> None:
        if self._reducer.running:
            key = self._composer.keymap.name("interrupt")
            self._host.hint(f"the agent is working: {key} interrupts it, then go back")
            return
        listed = None if self.display else await self._asked(Request(REWIND_POINTS, None), PastPrompts)
        if listed is None:
            return
        if not listed.points:
            self._reducer.notice("There is no prompt to go back to yet.")
            return
        self._points, self._files_kept, self._summaries = listed.points, listed.files_kept, listed.summaries
        self._at, self._picked, self._preview = 0, None, None
        self.display = True
        self._draw()
        self.focus()

    def _close(self) -> None:
        self.display = False
        self._composer.focus()

    # Keys.

    @property
    def _scopes(self) -> list[Scope]:
        files = self._preview.files if self._preview is not None else []
        summaries = [Scope.FROM, Scope.UP_TO] if self._summaries else []
        if all(each.why for each in files):
            return [Scope.CONVERSATION, *summaries]
        return [Scope.BOTH, Scope.CONVERSATION, Scope.FILES, *summaries]

    def _pressed(self, event: events.Key) -> None:
        if event.key == "escape":
            if self._picked is None:
                self._close()
            self._picked = self._preview = None
        elif self._picked is None and event.key == "enter":
            self._picked = self._points[self._at]
            self._look(self._picked)
        elif self._picked is None:
            self._step(event.key, len(self._points))
        elif self._preview is not None:
            self._choose(event.key, self._picked)

    def _choose(self, key: str, picked: PastPrompt) -> None:
        scopes = self._scopes
        if key in ("up", "down"):
            self._scope = min(max(self._scope + (1 if key == "down" else -1), 0), len(scopes) - 1)
        elif key.isdigit() and 0 < int(key) <= len(scopes):
            self._scope = int(key) - 1
        elif key == "enter":
            self._close()
            if scopes[self._scope] in (Scope.FROM, Scope.UP_TO):
                self._sum_up(picked, scopes[self._scope])
            else:
                self._go_back(picked, scopes[self._scope])

    def _sum_up(self, point: PastPrompt, scope: Scope) -> None:
        part = "from" if scope is Scope.FROM else "up-to"
        self._summed_up = point.prompt if scope is Scope.FROM else ""
        self._composer.post_message(Composer.Submitted(summary_line(part, point)))

    def summed_up(self, *, done: bool) -> None:
        """Give back the first prompt that was summed up, if it was `done`: it may be asked in other words."""
        prompt, self._summed_up = self._summed_up, ""
        if done and prompt and not self._composer.text:
            self._composer.give_back(prompt)

    @work(exclusive=True, group="preview")
    async def _look(self, point: PastPrompt) -> None:
        preview = await self._asked(Request(REWIND_FILES, FileRewind(point.id, dry_run=True)), RewindPreview)
        if preview is None:
            self._close()
        elif point is self._picked:
            self._preview, self._scope = preview, 0
            self._draw()

    @work
    async def _go_back(self, point: PastPrompt, scope: Scope) -> None:
        if scope is Scope.FILES:
            await self._asked(Request(REWIND_FILES, FileRewind(point.id)), RewindPreview)
            return
        rewind = ConversationRewind(point.id, files=scope is Scope.BOTH)
        done = await self._asked(Request(REWIND_CONVERSATION, rewind), RewindPreview)
        if done is not None and done.prompt:
            self._composer.give_back(done.prompt)

    async def _asked(self, request: Request[P, A], shape: type[Shape]) -> Shape | None:
        """Send a request. Show what went wrong, and return None."""
        answer = await self._host.ask(request)
        try:
            return shape.model_validate(answer) if answer is not None else None
        except ValidationError:
            self._reducer.notice("The worker's answer about going back cannot be read.", Level.ERROR)
        return None

    # What is drawn.

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
        return text.append(f"{more}Up, Down choose · Enter goes on · Esc leaves", style=f"not bold {palette.dim}")

    def _choice(self, point: PastPrompt) -> Text:
        palette = self._palette
        text = Text("Go back to before ", no_wrap=True, overflow="ellipsis")
        text.append(f"“{_shown(point)}”", style="bold").append(", or summarise\n" if self._summaries else "\n")
        if self._preview is None:
            return text.append("Looking at the files on the host …", style=palette.dim)
        for each in self._preview.files[:_MAX_FILES]:
            text.append(_file_row(each, self._reducer.notices.cwd, palette))
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
        enter = "sums up" if self._scopes[self._scope] in (Scope.FROM, Scope.UP_TO) else "goes back"
        said = f"What commands in Bash have changed stays. Enter {enter} · Esc: another prompt"
        return text.append(said, style=palette.dim)


def _shown(point: PastPrompt) -> str:
    return one_line(point.text)[:70] or "(no text)"


def _file_row(each: ChangedFile, cwd: str, palette: Palette) -> Text:
    row = Text(f"  {CHANGE_SIGNS.get(each.does, '~')} {path_in(cwd, each.path)}", no_wrap=True)
    if each.why:
        return row.append(f"  stays: {one_line(each.why)}\n", style=palette.warn)
    row.append(f"  +{each.insertions}", style=palette.good)
    row.append(f" -{each.deletions}", style=palette.bad)
    if each.changedElsewhere:
        row.append("  changed by something else since", style=palette.warn)
    return row.append("\n")
