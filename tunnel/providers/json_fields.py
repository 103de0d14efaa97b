"""Members of JSON objects that came from outside, and may be of any type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def object_in(fields: object, name: str) -> Json:
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, dict) else {}


def list_in(fields: object, name: str) -> list[Any]:
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, list) else []


def objects_in(fields: object, name: str) -> list[Json]:
    return [each for each in list_in(fields, name) if isinstance(each, dict)]


def text_in(fields: object, name: str) -> str:
    """Return the text that a member holds, "" if it holds none."""
    found = fields.get(name) if isinstance(fields, Mapping) else None
    return found if isinstance(found, str) else ""


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
