"""What a session and an agent of others have of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Callable, Protocol

from ccb.tunnel.wire.control_protocol import Broker
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.turn_state import Prompt, TurnEnding
from ..hooks.hook_runner import HookRunner
from ..permissions.engine import PermissionEngine
from ..permissions.modes import DEFAULT
from ..tools.tool_contract import ToolContext
from .acp_translation import NO_CHOICE, AgentChoice
from .answer_writer import AnswerWriter


class AgentFailed(Exception):
    """The agent cannot be used; the text says why, for the person."""


@dataclass(frozen=True)
class LentToAgent:
    """What the session lends to the agent of others that works in it."""

    context: ToolContext
    permissions: PermissionEngine
    broker: Broker
    hooks: HookRunner
    options: Callable[[], SessionOptions]
    trusted: Callable[[], bool]  # the project is
    take_queued: Callable[[], Sequence[Prompt]]  # prompts that may join the running turn


@dataclass
class AgentFacts:
    """What an agent says of itself. `session` is its own id of the conversation; `used` and `size` are what fills its
    window and how large that is, in tokens, and `usage` what the last turn took, if it says so. `follows` is the
    permission mode of ccb that it was last told, `unmet` what it has not taken of the session, for the person."""

    session: str = ""
    models: AgentChoice = NO_CHOICE
    modes: AgentChoice = NO_CHOICE
    commands: Sequence[tuple[str, str, str]] = ()
    usage: Json = field(default_factory=dict)
    used: int = 0
    size: int = 0
    cost_usd: float = 0.0
    can_steer: bool = False
    follows: str = DEFAULT
    unmet: list[str] = field(default_factory=list)


class AgentConnection(Protocol):
    """One process of an agent, as its dialect makes it."""

    facts: AgentFacts

    async def open(self, known: str) -> bool:
        """Agree on the protocol, and begin a conversation, or go on with the one that it has under the id `known`.
        Return whether it goes on. Raise AgentFailed."""

    async def begin_anew(self) -> None:
        """Begin another conversation. Raise AgentFailed."""

    async def prompt(self, blocks: Sequence[Json], writer: AnswerWriter) -> TurnEnding:
        """Run a turn. Raise AgentFailed when the agent ends or fails, and NotKept."""

    async def steer(self, blocks: Sequence[Json]) -> bool:
        """Give an agent that `can_steer` a prompt while it works on another one. Return whether it was in time."""

    async def cancel(self) -> None:
        """Ask the agent to end its turn, which `prompt` then returns."""

    async def use_model(self, value: str) -> None:
        """Raise AgentFailed."""

    async def use_mode(self, value: str) -> None:
        """Raise AgentFailed."""

    async def close(self) -> None:
        """Let go of the process, which somebody else ends."""
