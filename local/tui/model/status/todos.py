"""The agent's list of todos, as the REPL shows it."""

from __future__ import annotations

from collections import deque
from typing import Any

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

_MAX_ITEMS = 200
_MAX_CHARS = 500
_MAX_LISTS = 50


@dataclass(frozen=True)
class TodoItem:
    """One item. `doing` says what is being done while it is in progress. Both texts are safe to show."""

    text: str
    doing: str
    status: str


@dataclass(frozen=True)
class Todos:
    """The list that the agent has written last."""

    items: tuple[TodoItem, ...] = ()

    @staticmethod
    def read(value: object) -> Todos:
        """Read the `todos` of a call. What is not an item is left out."""
        listed = value[:_MAX_ITEMS] if isinstance(value, (list, tuple)) else ()
        return Todos(tuple(_item(each) for each in listed if isinstance(each, dict)))

    @property
    def done(self) -> int:
        """The number of completed items."""
        return sum(each.status == "completed" for each in self.items)

    @property
    def open(self) -> bool:
        """Whether anything is left to do."""
        return self.done < len(self.items)

    @property
    def current(self) -> int:
        """The index of the item in progress, or else of the first that is not completed; -1 if nothing is open."""
        for status in ("in_progress", "pending"):
            found = next((index for index, each in enumerate(self.items) if each.status == status), -1)
            if found >= 0:
                return found
        return next((index for index, each in enumerate(self.items) if each.status != "completed"), -1)


class TodoLists:
    """The newest lists of the agent, for the case that the person goes back to an earlier one."""

    def __init__(self) -> None:
        self._lists: deque[tuple[int, Todos]] = deque(maxlen=_MAX_LISTS)

    def note(self, seq: int, todos: Todos) -> None:
        """Remember the list that holds after event `seq`."""
        if todos is not (self._lists[-1][1] if self._lists else None):
            self._lists.append((seq, todos))

    def before(self, seq: int) -> Todos:
        """Return the list that held before event `seq`, and forget the later ones."""
        while self._lists and self._lists[-1][0] >= seq:
            self._lists.pop()
        return self._lists[-1][1] if self._lists else Todos()


def _item(value: dict[str, Any]) -> TodoItem:
    text = one_line(str(value.get("content", "")))[:_MAX_CHARS]
    doing = one_line(str(value.get("activeForm") or ""))[:_MAX_CHARS]
    return TodoItem(text, doing or text, str(value.get("status")))
