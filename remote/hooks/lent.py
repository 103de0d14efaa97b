"""What a session and its agents lend to the hooks that run for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Callable, Protocol

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.records import MAIN_AGENT, Content, Record

from ..ports import Broker
from ..system.host import Host
from .table import Hook


class HookLog(Protocol):
    """The journal of a session, as its hooks see it."""

    def emit(self, content: Content, agent_id: str = MAIN_AGENT) -> Record:
        """Append a record of an agent."""

    async def commit(self) -> None:
        """Return when every record so far is durable."""


@dataclass(frozen=True)
class HookSession:
    """What a session lends to its hooks. `connected`: the driving program can be reached now.
    `allow_private`: hooks may be sent to private addresses. `directory` is the session's own, "" without one. Commands
    run with `variables`, to which SessionStart hooks add."""

    id: str
    transcript: str
    cwd: str
    host: Host
    broker: Broker
    log: HookLog
    connected: Callable[[], bool] = lambda: True
    allow_private: Callable[[], bool] = lambda: False
    directory: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Working:
    """An agent that works: its name, the hooks of its own, and the directory in which hooks run for it, "" for that of
    the session."""

    agent_type: str = ""
    hooks: Sequence[Hook] = ()
    cwd: str = ""


NOBODY = Working()
