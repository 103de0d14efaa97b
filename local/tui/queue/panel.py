"""The panel that lists the prompts that wait for the agent."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...terminal.keymap import DEFAULT_KEYMAP, Keymap
from ..model.prompt_tracker import WaitingPrompt
from ..theme.palette import Palette, palette_of

_ROWS = 8
_KEYS = (
    "{queue-edit!} edits · {queue-steer!} steers · {queue-up!}, {queue-down!} move · {queue-drop!} drops · Esc closes"
)


class QueueAct(Enum):
    """What the person does with a prompt that waits."""

    EDIT = "edit"
    DROP = "drop"
    UP = "up"
    DOWN = "down"
    STEER = "steer"


@dataclass
class _Row:
    prompt: WaitingPrompt
    taken: bool = False


class QueuePanel(Static, can_focus=True):
    """A prompt that the agent takes while the panel is open keeps its line, so that no key meets another prompt than
    the one it was meant for."""

    DEFAULT_CSS = """
    QueuePanel {
        height: auto; max-height: 14; border: round $accent; padding: 0 1; background: $background;
    }
    """

    class Wanted(Message):
        """The person wants to do something with a prompt that waits."""

        def __init__(self, prompt: WaitingPrompt, act: QueueAct) -> None:
            super().__init__()
            self.prompt = prompt
            self.act = act

    class QueueClosed(Message):
        """The person has seen enough."""

    def __init__(self, prompts: Sequence[WaitingPrompt], keymap: Keymap = DEFAULT_KEYMAP) -> None:
        super().__init__()
        self._keymap = keymap
        self._rows = [_Row(each) for each in prompts]
        self._marked = prompts[-1].id if prompts else ""
        self._doing: Mapping[str, str] = {}

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def show(self, prompts: Sequence[WaitingPrompt], doing: Mapping[str, str], dropped: Container[str]) -> None:
        """Show the prompts that wait now. `doing` names what is under way with a prompt, by its id; `dropped` are the
        prompts that the person has taken out of the queue."""
        waiting = {each.id for each in prompts}
        at = self._at
        gone = [_Row(row.prompt, taken=True) for row in self._rows if row.prompt.id not in waiting]
        rows = [*(row for row in gone if row.prompt.id not in dropped), *(_Row(each) for each in prompts)]
        if rows == self._rows and doing == self._doing:
            return
        self._rows, self._doing = rows, dict(doing)
        if rows and all(row.prompt.id != self._marked for row in rows):
            self._marked = rows[min(at, len(rows) - 1)].prompt.id
        self._draw()

    @property
    def _at(self) -> int:
        return next((at for at, row in enumerate(self._rows) if row.prompt.id == self._marked), 0)

    async def _on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_ROWS, "pagedown": _ROWS}.get(event.key, 0)
        keys = event.key, event.character or ""
        act = next((act for act in QueueAct if any(self._keymap.has(f"queue-{act.value}", key) for key in keys)), None)
        row = self._rows[self._at] if self._rows else None
        if event.key in ("escape", "q"):
            self.post_message(self.QueueClosed())
        elif act is not None and row is not None and not row.taken and row.prompt.id not in self._doing:
            self.post_message(self.Wanted(row.prompt, act))
        elif step and self._rows:
            self._marked = self._rows[min(max(self._at + step, 0), len(self._rows) - 1)].prompt.id
            self._draw()

    def _draw(self) -> None:
        palette = palette_of(self.app.theme_variables, dark=self.app.current_theme.dark)
        waiting = sum(not row.taken for row in self._rows)
        count = f"{waiting} prompt{'' if waiting == 1 else 's'} for the agent, the next one first"
        none = "The agent has every prompt" if self._rows else "No prompt waits any more"
        text = Text(count if waiting else none, style="bold", no_wrap=True, overflow="ellipsis")
        first = min(max(0, self._at - _ROWS // 2), max(0, len(self._rows) - _ROWS))
        for at, row in enumerate(self._rows[first : first + _ROWS], first):
            text.append_text(self._line(row, palette, marked=at == self._at))
        more = f"\n  … {len(self._rows)} in all" if len(self._rows) > _ROWS else ""
        text.append(more, style=f"not bold {palette.dim}")
        taken = "What it has taken cannot be changed any more · " if self._rows else ""
        keys = self._keymap.filled(_KEYS) if waiting else f"{taken}Esc closes"
        self.update(text.append(f"\n{keys}", style=f"not bold {palette.dim}"))

    def _line(self, row: _Row, palette: Palette, *, marked: bool) -> Text:
        state = self._doing.get(row.prompt.id, "")
        if row.taken:
            state = "the agent has it"
        elif row.prompt.unsent and not state:
            state = "waiting to be sent"
        elif row.prompt.facts.steers and not state:
            state = "steers"
        line = Text("\n› " if marked else "\n  ", style=f"bold {palette.accent}")
        line.append(f"{state}  " if state else "", style=f"not bold {palette.warn if not row.taken else palette.dim}")
        shown = one_line(row.prompt.text)[:200] or "(no text)"
        return line.append(shown, style=palette.dim if row.taken else "bold" if marked else "not bold")
