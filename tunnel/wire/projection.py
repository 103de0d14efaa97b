"""Projections: everything that is derived from a journal by reading its records in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, ClassVar, TypeVar

from .journal_records import MAIN_AGENT, MessageRecord, Record

Handler = TypeVar("Handler", bound=Callable[..., None])


def on(*types: type[Any], main_only: bool = False) -> Callable[[Handler], Handler]:
    """Mark a method of a projection as the handler of these types: record contents, or public lines of `message`
    records. `main_only`: not for the records of sub-agents."""

    def mark(handler: Handler) -> Handler:
        handler.__dict__["handles"] = types
        handler.__dict__["main_only"] = main_only
        return handler

    return mark


class Projection:
    """A value built from records. A handler marked with `on` gets the typed content and its record. A `message` record
    goes to the handler of MessageRecord, or else to that of its public line."""

    _handlers: ClassVar[dict[type[Any], Callable[..., None]]] = {}

    def __init_subclass__(cls) -> None:
        cls._handlers = dict(cls._handlers)
        for handler in vars(cls).values():
            for each in getattr(handler, "handles", ()):
                cls._handlers[each] = handler

    def apply(self, record: Record) -> None:
        content: object = record.content
        handler = self._handlers.get(type(content))
        if handler is None and isinstance(content, MessageRecord):
            content = content.public
            handler = self._handlers.get(type(content))
        if handler is not None and (not handler.__dict__["main_only"] or record.agent_id == MAIN_AGENT):
            handler(self, content, record)


def replay(records: Iterable[Record], *projections: Projection) -> None:
    """Feed a journal to projections, record by record: it may be larger than the memory."""
    for record in records:
        for projection in projections:
            projection.apply(record)
