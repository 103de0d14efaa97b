"""Messages that a broken or hostile host may send: whole ones in which one field has another type or an odd value."""

from __future__ import annotations

from typing import Any

from tests.support.model.model_script import Json

BROKEN: list[Any] = [None, True, -7, 10**400, 0.5, "x", [], [7], [{}], {}, {"type": 7, "content": 7}]


def broken_messages(body: Json) -> list[Json]:
    """Return the message with each of its fields but `type`, and each one of its objects, broken in each way."""
    outer = [{**body, name: wrong} for name in body if name != "type" for wrong in BROKEN]
    objects = {name: value for name, value in body.items() if isinstance(value, dict)}
    return outer + [
        {**body, name: {**value, key: wrong}} for name, value in objects.items() for key in value for wrong in BROKEN
    ]
