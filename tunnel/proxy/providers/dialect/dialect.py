"""The seam between a provider and the language that its API speaks."""

from __future__ import annotations

from typing import Any, Protocol

from ....wire.dataclass import dataclass
from ..answers.answer import Answer
from ..models.traits import ModelTraits

Json = dict[str, Any]


@dataclass(frozen=True)
class ModelTarget:
    """Whom a request is for: `provider` is the name that the person has given it, `model` the provider's name of the
    model, `shown` the name that the worker knows."""

    provider: str
    model: str
    shown: str
    traits: ModelTraits


class StreamReader(Protocol):
    """Reads the events of one answer."""

    answer: Answer

    def feed(self, data: bytes) -> None:
        """Take the data of the next event. Raise AnswerError when it says that the provider failed, or is not
        understood."""

    def end(self) -> None:
        """The stream has ended. Raise AnswerError if the answer has not."""


@dataclass(frozen=True)
class DialectCall:
    """A translated request. `path` is appended to the base URL."""

    path: str
    body: Json
    reader: StreamReader


class Dialect(Protocol):
    """Turns requests of the Messages API into those of another API, and its streams into Anthropic events."""

    def call(self, asked: Json, target: ModelTarget) -> DialectCall:
        """Translate a request. Raise Untranslatable for what cannot be translated."""


class TokenCounter(Protocol):
    """Asks an API for the size of a request."""

    path: str
    """Appended to the base URL."""

    def body(self, asked: Json, target: ModelTarget) -> Json:
        """Return the body that asks for the size of a request. Raise Untranslatable for what cannot be translated."""
