"""Lines on stdout that every client can read: the official ones take at most 1 MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccb.tunnel.wire.ndjson import dump_line

if TYPE_CHECKING:
    from ..session.client import Json


MAX_LINE = 1_000_000
"""The most characters of a line."""

_STEPS = (200_000, 20_000, 2_000)


def limited_line(body: Json) -> str:
    """Return a message as JSON. If it is too long, long texts in it are cut and images are left out."""
    line = dump_line(body)
    for most in _STEPS:
        if len(line) <= MAX_LINE:
            break
        short = _cut(body, most)
        assert isinstance(short, dict)
        line = dump_line(short)
    return line


def _cut(value: object, most: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… ({len(value) - most} characters left out)"
    if isinstance(value, list):
        return [_cut(each, most) for each in value]
    if isinstance(value, dict):
        source = value.get("source")
        if value.get("type") in ("image", "document") and isinstance(source, dict) and _is_long(source, most):
            return {"type": "text", "text": f"({value['type']} left out: the message is too long)"}
        return {name: _cut(each, most) for name, each in value.items()}
    return value


def _is_long(source: Json, most: int) -> bool:
    data = source.get("data")
    return isinstance(data, str) and len(data) > most
