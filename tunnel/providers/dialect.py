"""What a dialect of a model API must offer; ids, names and schemas within the limits of OpenAI's APIs."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from ..wire.dataclass import dataclass
from ..wire.json_schema import SCHEMA_LISTS, SCHEMA_MAPS, SINGLE_SCHEMAS, cleaned, plain_root
from .anthropic_events import WRONG, AnswerBuilder, AnswerError
from .api_errors import error_of
from .json_fields import Json, object_in, objects_in, text_in
from .model_traits import ModelTraits
from .request_content import Untranslatable, blocks_of
from .thinking import opened, sealed


@dataclass(frozen=True)
class ModelTarget:
    """The model that a request asks. `provider` is the name that the person has given its provider, `model` the name by
    which that knows it, `shown` the name that the worker knows."""

    provider: str
    model: str
    shown: str
    traits: ModelTraits

    def state_in(self, block: Json) -> Json:
        """Return what this model has sealed in a thinking block."""
        return opened(block, self.provider, self.model)


class StreamReader(ABC):
    """Reads the events of one answer."""

    def __init__(self, target: ModelTarget, names: ToolNames) -> None:
        self._target = target
        self._names = names
        self.answer = AnswerBuilder(target.shown, f"msg_{uuid4().hex}", self._sealed({}))

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Take the data of the next event. Raise AnswerError when the provider failed, or is not understood."""

    def end(self) -> None:
        """The stream has ended. Raise AnswerError if the answer has not."""
        self.answer.finish()

    def _event(self, data: bytes) -> object:
        """Return an event of the stream. Raise AnswerError for what is not JSON."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise AnswerError(WRONG, f"{self._target.provider} sent an event that is not JSON") from None

    def _failure(self, event: object) -> AnswerError:
        failure = error_of(event, 500, {}, self._target.provider)
        return AnswerError(failure.kind, failure.message)

    def _sealed(self, state: Json) -> str:
        return sealed(self._target.provider, self._target.model, state)


@dataclass(frozen=True)
class DialectCall:
    """A translated request. `path` is appended to the base URL."""

    path: str
    body: Json
    reader: StreamReader


Dialect = Callable[[Json, ModelTarget], DialectCall]
"""Translates a request of the Messages API into one of another API. Raise Untranslatable for what cannot be."""


_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def short_id(call_id: str, limit: int) -> str:
    """Return an id of at most `limit` characters for a tool call: the same one for its result."""
    if len(call_id) <= limit and _ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[: min(32, limit - 5)]


class ToolNames:
    """The names of the tools of one request, in both directions."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sent: dict[str, str] = {}
        self._known: dict[str, str] = {}
        for name in names:
            self.sent(name)

    @classmethod
    def of(cls, asked: Json) -> ToolNames:
        blocks = (each for message in objects_in(asked, "messages") for each in blocks_of(message.get("content")))
        calls = (each for each in blocks if each.get("type") == "tool_use")
        return cls(str(each.get("name") or "") for each in (*objects_in(asked, "tools"), *calls))

    def sent(self, name: str) -> str:
        """Return the name under which the provider knows a tool."""
        if name not in self._sent:
            short = name
            if not _NAME.fullmatch(name):
                digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
                short = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:55] + "_" + digest
            self._sent[name] = short
            self._known[short] = name
        return self._sent[name]

    def known(self, name: str) -> str:
        """Return the tool that a provider means."""
        return self._known.get(name, name)


MAX_TOOLS = 128


def own_tools(asked: Json, provider: str, names: ToolNames) -> list[Json]:
    """Return the tools of a request: name, description, parameters. Raise Untranslatable for one that Anthropic's
    servers would have to run, and for more than OpenAI's APIs take."""
    found = objects_in(asked, "tools")
    for each in found:
        if each.get("type") not in (None, "custom"):
            raise Untranslatable(f"{provider} does not have the tool {each.get('type')} of Anthropic's servers")
    if len(found) > MAX_TOOLS:
        raise Untranslatable(f"{provider} takes {MAX_TOOLS} tools at most, and this session has {len(found)}")
    return [
        {
            "name": names.sent(str(each.get("name"))),
            "description": str(each.get("description") or ""),
            "parameters": each.get("input_schema"),
        }
        for each in found
    ]


def user_fields(asked: Json, *names: str) -> Json:
    """Return fields about who asks: 64 characters that say nothing of the user. Without names, they are OpenAI's."""
    user = text_in(object_in(asked, "metadata"), "user_id")
    hashed = hashlib.sha256(user.encode("utf-8", "replace")).hexdigest()
    return dict.fromkeys(names or ("prompt_cache_key", "safety_identifier"), hashed) if user else {}


def object_schema(schema: object) -> Json:
    """Return a schema whose top level is a plain object, as OpenAI's API wants it. Each array says what it holds."""
    made = _with_items(plain_root(cleaned(schema, None)))
    assert isinstance(made, dict)
    return made


def _with_items(schema: Any) -> Any:
    """Return a schema in which arrays have `items`, and no schema is just true or false: some servers take neither."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    made = {name: _member_with_items(name, value) for name, value in schema.items()}
    kinds = made.get("type") or ()
    if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        made.setdefault("items", {})
    if isinstance(made.get("items"), bool):
        made["items"] = {}
    return made


def _member_with_items(name: str, value: Any) -> Any:
    if name in SCHEMA_LISTS and isinstance(value, list):
        return [_with_items(each) for each in value]
    if name in SCHEMA_MAPS and isinstance(value, dict):
        return {key: _with_items(each) for key, each in value.items()}
    return _with_items(value) if name in SINGLE_SCHEMAS and isinstance(value, dict) else value
