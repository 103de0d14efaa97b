"""Request bodies as values, read once.

It takes less than a JSON parser does: what two parsers could read in two ways has no reading. That is a member that
stands twice, or again in other letters (parsers in Go take `Model` for `model`), another encoding than UTF-8, and
numbers that are not JSON's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..wire.frames import FrameError
from ..wire.ndjson import MAX_DEPTH, MAX_VALUES, count_values
from .api_errors import Refusal
from .json_fields import Json

_LARGE = f"the request body has more than {MAX_VALUES:,} values, or {MAX_DEPTH} levels of them"


class _Ambiguous(ValueError):
    """The body can be read in two ways; the text says why."""


def read_request(body: bytes) -> Json:
    """Return the object in a whole request body. Raise Refusal: 32 MB of `[],` would take 800 MB of memory."""
    try:
        text = body.decode("utf-8")
        if sum(map(text.count, "[{,")) > MAX_VALUES:  # in its texts, too: counting without them takes longer
            count_values(text)
        data = _DECODER.decode(text)
    except FrameError:
        raise Refusal(413, _LARGE) from None
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, _Ambiguous) else "is not JSON"
        raise _refusal(f"the request body {why}, so the laptop cannot check it") from None
    if not isinstance(data, dict):
        raise _refusal("the request body is not a JSON object")
    if len({name.casefold() for name in data}) != len(data):
        raise _refusal("the request body has a member in small and in large letters, so the laptop cannot check it")
    return data


def model_of(request: Mapping[str, Any]) -> str:
    model = request.get("model")
    return model if isinstance(model, str) else ""


def _members(pairs: Sequence[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Ambiguous("has a member twice")
    return members


def _constant(name: str) -> NoReturn:
    raise _Ambiguous(f"has the number {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant)


def _refusal(text: str) -> Refusal:
    return Refusal(400, text, headers={"x-should-retry": "false"})


_IN_THREAD = 64 * 1024  # bytes from which on a body is read in a thread: it takes a millisecond and more


async def read_json(body: bytes) -> Json:
    """Return the object in a body, as `read_request` reads it. Raise Refusal."""
    return await asyncio.to_thread(read_request, body) if len(body) > _IN_THREAD else read_request(body)
