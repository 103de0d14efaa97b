"""The seam between a session and whatever shows it: REPL, headless run, later SDK and editors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import Hello
from ccb.tunnel.wire.records import Record, parse_event
from ccb.tunnel.wire.requests import A, P, Request, RequestKind

from .state import LinkState

__all__ = [
    "Item",
    "Json",
    "LinkChange",
    "LinkState",
    "Received",
    "SessionClient",
    "Skipped",
    "shown_name",
]

Json = dict[str, Any]

_MARK = re.compile(r"(?<=\d) [0-9a-f]{6}$")


@dataclass(frozen=True)
class Received:
    """One thing a session said. `kind` is the event kind of the wire (`message`, `input`, `tool_start`, …) or `progress`;
    `body` is the public stream-json object for `message` and `progress`. `replayed`: it had happened before this client
    attached, so it is shown without bells."""

    kind: str
    body: Json
    seq: int
    replayed: bool = False

    @cached_property
    def record(self) -> Record:
        """The journal record of an event; progress has none."""
        return parse_event(self.seq, self.kind, self.body)


@dataclass(frozen=True)
class Skipped:
    """The events up to `seq` were too many to be replayed; `body` is what has to be known of them (see the wire's
    `Snapshot`), `earlier` gets them. What was shown before stays true; there is a hole between it and what follows. A `seq`
    that was passed already, with nothing to know: the host has lost what came after it."""

    seq: int
    body: Json


@dataclass(frozen=True)
class LinkChange:
    """The connection changed; `reason` is one sentence for the person. While RECONNECTING, `attempt` counts from 1 and
    `retry_at` is the monotonic second of the next one, None while it runs."""

    state: LinkState
    reason: str = ""
    attempt: int = 0
    retry_at: float | None = None


Item = Received | Skipped | LinkChange


def shown_name(client: str) -> str:
    """The name of a client as a person reads it: without the mark at its end that makes it unique."""
    return _MARK.sub("", neutralise(client))


class SessionClient(Protocol):
    """One attached session. All methods but `events` may be called at any time, also during a turn."""

    @property
    def hello(self) -> Hello:
        """The newest hello of the session."""

    @property
    def state(self) -> LinkState:
        """The connection now."""

    @property
    def driving(self) -> bool:
        """Whether inputs of this client count: it is not a viewer and was not fenced."""

    @property
    def unsent(self) -> int:
        """Inputs that the host has not confirmed yet."""

    def events(self) -> AsyncIterator[Item]:
        """Everything from here on, in order, until the session ends. Raises `CcbError` when it is lost for good."""

    async def earlier(self, before: int, most: int = 256 * 1024) -> list[Received]:
        """The events before number `before`, about `most` bytes of them, oldest first; [] at the start of the session.
        Raises CcbError while there is no connection."""

    def retry(self) -> None:
        """Connect now, without waiting for the next attempt; a login may ask the person."""

    def take_back(self) -> None:
        """Drive again after another client took over (or instead of only watching); that one is fenced."""

    async def prompt(self, content: str | list[Json], *, uuid: str | None = None) -> str:
        """Send a user message; its uuid. Queued by the worker while a turn runs, and here while there is no connection: what
        was sent is sent again after a reconnect and applied once. Raises UsageError when this client does not drive."""

    async def send(self, body: Json) -> str:
        """Send a raw public object (headless stream-json input). Return the id under which the journal has it (`input`, `prompt`).
        Raises UsageError when this client does not drive, and ConnectionLost when the session has ended."""

    async def request(self, request: Request[P, A]) -> A:
        """Ask the worker (`set_model`, `set_permission_mode`, …) and return its typed answer. Raises RequestFailed."""

    async def interrupt(self) -> None:
        """Stop the running turn; returns when the worker has taken the request. Raises RequestFailed."""

    def register(self, kind: RequestKind[P, A], service: Callable[[P], Awaitable[Json]] | None = None) -> None:
        """Let the worker ask this laptop for something: it is answered with the payload that `service` returns, or, without one, by
        the reader of `events` with `answer`. Register before reading `events`; what is not registered is refused."""

    async def answer(self, request_id: str, response: Json) -> None:
        """Answer a `can_use_tool`: {"behavior": "allow", "updatedInput", "updatedPermissions"?} or {"behavior": "deny",
        "message", "interrupt"?}."""

    async def stop(self, *, finish: bool = False) -> None:
        """End the session on the host; with `finish` after the queued work."""

    async def close(self, *, done: bool = False) -> None:
        """Leave; the session goes on. With `done` its worker may end at once when it has nothing to do."""
