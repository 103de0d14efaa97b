"""A todo list as a value. Its items come from the whole lists that TodoWrite gives, and from `todo` records."""

from __future__ import annotations

from .dataclass import dataclass
from .frames import Json
from .journal_records import TodoRecord
from .messages import as_blocks, as_text

MAX_TODOS = 200
MAX_SUBJECT = 2_000  # characters
MAX_STATUS = 20
_MAX_ID = 100
PENDING, IN_PROGRESS, COMPLETED, DELETED = "pending", "in_progress", "completed", "deleted"


@dataclass(frozen=True)
class TodoList:
    items: tuple[TodoRecord, ...] = ()

    @staticmethod
    def written(todos: object) -> TodoList:
        """Return the list of an input of TodoWrite, or of a snapshot. An item without an id is known by its place."""
        listed = as_blocks(todos)[:MAX_TODOS] if isinstance(todos, list) else []
        return TodoList(tuple(_item(place, each) for place, each in enumerate(listed, 1)))

    @property
    def done(self) -> int:
        return sum(each.status == COMPLETED for each in self.items)

    @property
    def open(self) -> bool:
        return self.done < len(self.items)

    @property
    def current(self) -> int:
        """The index of the item in progress, or else of the first that is not completed; -1 if nothing is open."""
        order = {IN_PROGRESS: 0, PENDING: 1}
        left = [(order.get(each.status, 2), at) for at, each in enumerate(self.items) if each.status != COMPLETED]
        return min(left)[1] if left else -1

    def named(self, item_id: object) -> TodoRecord | None:
        return next((each for each in self.items if each.id == item_id), None)

    def blockers(self, item: TodoRecord, *, only_open: bool = False) -> list[str]:
        """Return the ids of the items that come before `item`, of those that are there."""
        known = [each for each in self.items if each.id in item.blocked_by]
        return [each.id for each in known if not (only_open and each.status == COMPLETED)]

    def changed(self, item: TodoRecord) -> TodoList:
        """Return the list with an item that is new or has changed. If all is completed, a new one begins a new list."""
        if self.named(item.id) is None:
            before = self.items if self.open else ()
            is_kept = item.status != DELETED and len(before) < MAX_TODOS
            return TodoList((*before, item)) if is_kept else self
        items = (item if each.id == item.id else each for each in self.items)
        return TodoList(tuple(each for each in items if each.status != DELETED))


def _item(place: int, given: Json) -> TodoRecord:
    subject, active = (as_text(given.get(name))[:MAX_SUBJECT] for name in ("content", "activeForm"))
    item_id = as_text(given.get("id"))[:_MAX_ID] or str(place)
    return TodoRecord(item_id, subject, as_text(given.get("status"))[:MAX_STATUS], active)


def public_todo(item: TodoRecord) -> Json:
    """Return an item as TodoWrite names its parts."""
    return {"content": item.subject, "status": item.status, "activeForm": item.active_form}
