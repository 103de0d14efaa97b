"""What the loop is given, beyond the ports of the worker: the permission engine's protocol and a session's settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Protocol

from ccb.tunnel.wire.messages import as_blocks, as_dict

from ..model.clock import Clock, SystemClock
from ..model.retry import RetrySettings
from ..permissions.decision import Decision
from ..ports import Asker, Emitter, ModelTransport, PromptSource
from ..tools.contract import Tool, ToolContext

Json = dict[str, Any]


class Permissions(Protocol):
    """The permission engine, as far as the loop talks to it."""

    @property
    def mode(self) -> str:
        """The permission mode as it is now."""

    def decide(self, tool: Tool, tool_input: Json) -> Decision:
        """What happens to this call."""

    def apply(self, updates: Sequence[Json]) -> None:
        """Take over permission updates the person granted."""

    def left_out(self, name: str) -> Sequence[str]:
        """What this tool must not find when it searches: regular expressions of absolute paths in small letters."""

    def visible(self, name: str) -> bool:
        """False for a tool the model shall not see at all."""


@dataclass(frozen=True)
class Prompt:
    """What the person said, as content blocks. `input_id` is the id of the journalled input it came with ("" for none): the
    journal then holds it once."""

    blocks: Sequence[Json]
    input_id: str = ""

    @staticmethod
    def from_input(input_id: str, body: Json) -> Prompt:
        """The prompt in a public user message of a client."""
        return Prompt(as_blocks(as_dict(body.get("message")).get("content")), input_id)


@dataclass(frozen=True)
class AgentDeps:
    """Everything a session lends to its agent. `denial_text(decision, tool_name)` words a denial when nobody can be asked;
    `take_queued` gives (and removes from the queue) prompts to fold into the running turn after its tool results;
    `link_up_since` is the monotonic second since which the link to the laptop has been up, None while it is down."""

    emitter: Emitter
    transport: ModelTransport
    asker: Asker
    prompts: PromptSource
    permissions: Permissions
    tools: Sequence[Tool]
    context: ToolContext
    denial_text: Callable[[Decision, str], str]
    session_id: str
    version: str
    model: str | None = None
    max_turns: int | None = None
    partial_messages: bool = False
    api_key_source: str = "none"
    take_queued: Callable[[], Sequence[Prompt]] = tuple
    link_up_since: Callable[[], float | None] = lambda: 0.0
    heartbeat_s: float = 30.0  # a running tool says that it still runs
    limits: RetrySettings = field(default_factory=RetrySettings)
    clock: Clock = field(default_factory=SystemClock)
