"""The panel in which the person picks a prompt, and then what goes back: files, conversation, or both."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ..model.notices import path_in
from ..theme.palette import Palette, palette_of
from .answers import ChangedFile, PastPrompt, RewindPreview

_ROWS = 8
_MAX_FILES = 8
_SIGNS = {"change": "~", "create": "+", "remove": "-"}


class Scope(Enum):
    """What goes back."""

    BOTH = "conversation and files"
    CONVERSATION = "conversation only"
    FILES = "files only"


class RewindPanel(Static, can_focus=True):
    """First lists the prompts, then shows what would change for the chosen one."""

    DEFAULT_CSS = """
    RewindPanel {
        height: auto; max-height: 20; border: round $accent; padding: 0 1; background: $background;
    }
    """

    class Picked(Message):
        """The person has picked a prompt: the preview of its files is wanted."""

        def __init__(self, point: PastPrompt) -> None:
            super().__init__()
            self.point = point

    class Chosen(Message):
        """The person has chosen what goes back."""

        def __init__(self, point: PastPrompt, scope: Scope) -> None:
            super().__init__()
            self.point = point
            self.scope = scope

    class Closed(Message):
        """The person does not want to go back."""

    def __init__(self, points: Sequence[PastPrompt], cwd: str, *, files_kept: bool) -> None:
        """Paths in `cwd` are shown relative to it."""
        super().__init__()
        self._cwd = cwd
        self._points = points
        self._files_kept = files_kept
        self._at = 0
        self._picked: PastPrompt | None = None
        self._preview: RewindPreview | None = None
        self._scope = 0

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def show(self, preview: RewindPreview) -> None:
        """Show what would change for the picked prompt."""
        self._preview = preview
        self._scope = 0
        self._draw()

    @property
    def _scopes(self) -> list[Scope]:
        changes = self._preview is not None and bool(self._preview.restorable)
        return [Scope.BOTH, Scope.CONVERSATION, Scope.FILES] if changes else [Scope.CONVERSATION]

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        step = {"up": -1, "down": 1, "pageup": -_ROWS, "pagedown": _ROWS}.get(event.key, 0)
        if event.key == "escape":
            self._back()
        elif self._picked is None and step:
            self._at = min(max(self._at + step, 0), len(self._points) - 1)
        elif self._picked is None and event.key == "enter":
            self._picked = self._points[self._at]
            self.post_message(self.Picked(self._picked))
        elif self._picked is not None and self._preview is not None:
            self._choose(event.key, step)
        self._draw()

    def _back(self) -> None:
        if self._picked is None:
            self.post_message(self.Closed())
        self._picked = self._preview = None

    def _choose(self, key: str, step: int) -> None:
        scopes = self._scopes
        self._scope = min(max(self._scope + step, 0), len(scopes) - 1)
        if key.isdigit() and 0 < int(key) <= len(scopes):
            self._scope = int(key) - 1
        elif key == "enter" and self._picked is not None:
            self.post_message(self.Chosen(self._picked, scopes[self._scope]))

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        self.update(self._list(palette) if self._picked is None else self._choice(self._picked, palette))

    def _list(self, palette: Palette) -> Text:
        text = Text("Go back to before which prompt?\n", style="bold", no_wrap=True, overflow="ellipsis")
        first = min(max(0, self._at - _ROWS // 2), max(0, len(self._points) - _ROWS))
        for place, point in enumerate(self._points[first : first + _ROWS], first):
            marked = place == self._at
            text.append("› " if marked else "  ", style=f"bold {palette.accent}")
            text.append(_shown(point), style="bold" if marked else "not bold")
            if point.files:
                files = f"{point.files} file{'s' if point.files != 1 else ''} changed since"
                text.append(f"  {files}", style=f"not bold {palette.dim}")
            text.append("\n")
        more = f"{len(self._points)} prompts · " if len(self._points) > _ROWS else ""
        text.append(f"{more}Up, Down choose · Enter goes on · Esc leaves", style=f"not bold {palette.dim}")
        return text

    def _choice(self, point: PastPrompt, palette: Palette) -> Text:
        text = Text("Go back to before ", no_wrap=True, overflow="ellipsis")
        text.append(f"“{_shown(point)}”\n", style="bold")
        if self._preview is None:
            return text.append("Looking at the files on the host …", style=palette.dim)
        for each in self._preview.files[:_MAX_FILES]:
            text.append(_row(each, self._cwd, palette))
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


def _row(each: ChangedFile, cwd: str, palette: Palette) -> Text:
    row = Text(f"  {_SIGNS.get(each.does, '~')} {path_in(cwd, each.path)}", no_wrap=True)
    if each.why:
        return row.append(f"  stays: {one_line(each.why)}\n", style=palette.warn)
    row.append(f"  +{each.insertions}", style=palette.good)
    row.append(f" -{each.deletions}", style=palette.bad)
    if each.changedElsewhere:
        row.append("  changed by something else since", style=palette.warn)
    return row.append("\n")
