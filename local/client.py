"""The seam between a session and whatever shows it: REPL, headless run, later SDK and editors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from ccb.tunnel.wire import Hello

Json = dict[str, Any]


class LinkState(Enum):
    """What the status line shows of the connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    LOST = "lost"
    FENCED = "fenced"
    CLOSED = "closed"


@dataclass(frozen=True)
class Received:
    """One thing a session said. `kind` is the event kind of the wire (`message`, `input`, `tool_start`, …) or `progress`;
    `body` is the public stream-json object for `message` and `progress`."""

    kind: str
    body: Json
    seq: int


@dataclass(frozen=True)
class LinkChange:
    """The connection changed; `reason` is one sentence for the person."""

    state: LinkState
    reason: str = ""


class SessionClient(Protocol):
    """One attached session. All methods but `events` may be called at any time, also during a turn."""

    @property
    def hello(self) -> Hello:
        """The newest hello of the session."""

    @property
    def state(self) -> LinkState:
        """The connection now."""

    def events(self) -> AsyncIterator[Received | LinkChange]:
        """Everything from here on, in order, until the session ends. Raises `CcbError` when it is lost for good."""

    async def prompt(self, content: str | list[Json], *, uuid: str | None = None) -> str:
        """Send a user message; its uuid. Queued by the worker while a turn runs."""

    async def send(self, body: Json) -> str:
        """Send a raw public object (headless stream-json input); the id under which the journal has it (`input`, `prompt`)."""

    async def control(self, subtype: str, **fields: Any) -> Json:
        """Send a control request (`set_model`, `set_permission_mode`, …) and await its payload. Raises `ControlError`."""

    async def interrupt(self) -> None:
        """Stop the running turn; returns when the worker has taken it."""

    async def answer(self, request_id: str, response: Json) -> None:
        """Answer a `can_use_tool`: {"behavior": "allow", "updatedInput", "updatedPermissions"?} or {"behavior": "deny",
        "message", "interrupt"?}."""

    async def stop(self, *, finish: bool = False) -> None:
        """End the session on the host; with `finish` after the queued work."""

    async def close(self) -> None:
        """Leave; the session goes on."""


class ControlError(Exception):
    """The worker answered a control request with an error."""
