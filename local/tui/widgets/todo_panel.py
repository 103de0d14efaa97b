"""What the agent is at, above the composer: the todo in progress in one line, or the list."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ..model.status.todos import TodoItem, Todos
from ..theme.palette import Palette

_MAX_ROWS = 8
_MARKS = {"completed": "☒", "in_progress": "◐"}


class TodoPanel(Static):
    """Shows the list while something in it is open; `whole` shows more than the item in progress. `key`
    shows the rest."""

    DEFAULT_CSS = """
    TodoPanel { height: auto; padding: 0 1; }
    TodoPanel.none { display: none; }
    """

    def __init__(self, key: str) -> None:
        super().__init__(id="todos", classes="none")
        self._key = key
        self._shown: tuple[Todos, Palette, bool] | None = None
        self.whole = False

    def show(self, todos: Todos, palette: Palette) -> None:
        """Show a list, if it is not on the screen already."""
        now = (todos, palette, self.whole)
        if now != self._shown:
            self._shown = now
            self.set_class(not todos.open, "none")
            if todos.open:
                self.update(self._rows(todos, palette) if self.whole else self._line(todos, palette))

    def toggle(self) -> bool:
        """Show the whole list, or one line again. Return False if there is no list."""
        if self._shown is None or not self._shown[0].open:
            return False
        self.whole = not self.whole
        self.show(*self._shown[:2])
        return True

    def _line(self, todos: Todos, palette: Palette) -> Text:
        item = todos.items[todos.current]
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f"{_MARKS.get(item.status, '☐')} ", style=palette.accent)
        text.append(item.doing if item.status == "in_progress" else item.text)
        text.append(f"   {todos.done} of {len(todos.items)} done, {self._key}", style=palette.dim)
        return text

    def _rows(self, todos: Todos, palette: Palette) -> Text:
        count = len(todos.items)
        first = max(0, min(todos.current - _MAX_ROWS // 2, count - _MAX_ROWS))
        shown = todos.items[first : first + _MAX_ROWS]
        rows = [_row(item, palette) for item in shown]
        left_out = count - len(shown)
        if left_out:
            rows.append(Text(f"… {left_out} more, {todos.done} of {count} done", style=palette.dim))
        return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)


def _row(item: TodoItem, palette: Palette) -> Text:
    style = {"completed": f"strike {palette.dim}", "in_progress": "bold"}.get(item.status, "")
    return Text.assemble((f"{_MARKS.get(item.status, '☐')} ", palette.accent), (item.text, style))
