"""The ports of the agent loop: the interfaces it needs from a session. Tests run the loop without a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from ccb.tunnel.wire.records import Content, Record
from ccb.tunnel.wire.requests import Request, RequestKind

P = TypeVar("P")
A = TypeVar("A")
Json = dict[str, Any]


class NotKept(Exception):
    """The journal could not take a record. `full`: the disk, the quota or the file is full, so a person has to make
    room. When this ended a turn, `result` is the result message that could not be written either."""

    def __init__(self, text: str, *, full: bool = False) -> None:
        super().__init__(text)
        self.full = full
        self.result: Json = {}


class Emitter(Protocol):
    """The sink for the records and the progress of one agent. Everything it emits carries the agent's id."""

    def emit(self, content: Content) -> Record:
        """Append a record to the journal and return it. A public message is complete but for `session_id` and `uuid`,
        which are added here. Raises NotKept."""

    def progress(self, key: str, body: Json) -> None:
        """Show a public object that is not journalled and may be lost. A newer one with the same non-empty `key`
        replaces an older one that was not sent yet."""

    async def commit(self) -> None:
        """Return when everything emitted before is durable (group commit). Call it once for each model message, before
        a tool starts, and after its result. Raises NotKept."""


class ModelResponse(Protocol):
    """The response of the auth proxy. Leaving its context cancels the rest of it."""

    status: int
    headers: Mapping[str, str]  # names in lower case

    def body(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive. Raises `ModelLinkError` when the call is lost for good."""


class ModelLinkError(Exception):
    """The model call failed below HTTP: the provider cannot be reached, or the auth proxy refused to go on. It may be
    retried. A lost link to the laptop is not an error: the call waits for it."""


class ModelTransport(Protocol):
    """Carries a model call to the auth proxy."""

    def request(
        self, call_id: str, method: str, path: str, headers: Mapping[str, str], body: Sequence[bytes]
    ) -> AbstractAsyncContextManager[ModelResponse]:
        """Send a request, whose pieces are joined on the way, and return the response once its head has arrived."""

    def resume(self, call_id: str) -> float:
        """Open a call anew under its id, as after a lost link, unless its request is still being sent. What the laptop
        has of the answer comes from the byte on that has been reached; the model is not asked again. Return the
        monotonic time at which the last piece of the request was sent."""


class Broker(Protocol):
    """Sends requests to someone outside the worker: the person, the driving program, or a service on the laptop."""

    def can_ask(self, kind: RequestKind[P, A]) -> bool:
        """Return whether anyone in this session can answer requests of this kind. Return False for requests to the
        person in a headless run without a prompt tool; calls that would need a question are denied there."""

    async def request(self, request: Request[P, A]) -> A:
        """Send a request and return the typed answer. Keep waiting across lost connections; the request fails for lack
        of an answer only if its kind has a deadline. Cancelling withdraws the request. Raise RequestFailed, NotKept."""


class PromptSource(Protocol):
    """The texts at the start of every request. They are gathered once on the host and do not change during the
    session."""

    async def system(self) -> list[Json]:
        """Return the system blocks with their cache_control marks, the static ones first."""

    async def first_user_blocks(self) -> list[Json]:
        """Return the blocks that go before the first prompt: CLAUDE.md or AGENTS.md, and the date."""
