"""What a tool is to the agent loop: a name, a schema, and one coroutine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Protocol, Union

if TYPE_CHECKING:
    from ..system.host import Host
    from .files.file_state import FileState
    from .shell.shells import Shells
    from .spill import Spill

Json = dict[str, Any]
Content = Union[str, list[Json]]


@dataclass(frozen=True)
class ToolResult:
    """`content` is what the model sees (text, or Messages API blocks such as images); `structured` is what clients see as
    `tool_use_result` (shapes as the public protocol has them). An error is an ordinary result with `is_error`."""

    content: Content
    is_error: bool = False
    structured: Any = None


@dataclass(frozen=True)
class ToolContext:
    """What a session lends to its tools. One object for the life of the session, but for the four last fields, which
    belong to the call."""

    host: Host
    cwd: str  # the session's directory, absolute
    add_dirs: list[str]
    files: FileState
    shells: Shells
    spill: Spill
    todos: list[Json] = field(default_factory=list)  # replaced in place by TodoWrite
    tool_use_id: str = ""
    left_out: tuple[str, ...] = ()
    """What a search must not find: regular expressions (for fullmatch) of absolute paths in small letters."""
    progress: Callable[[Json], None] = lambda update: None
    """Live output of this call: {"output": str tail, "total_bytes": int, "elapsed_seconds": float}. Replaceable."""
    stopped: Callable[[str], None] = lambda printed: None
    """A call that is cancelled says what it had printed, for the model."""


class Tool(Protocol):
    """One tool. `run` is cancelled on interrupt and must leave no process and no half-written file behind."""

    name: str
    description: str
    input_schema: Json

    def is_read_only(self, tool_input: Json) -> bool:
        """True when this call changes nothing: it may then run in parallel with others, and in plan mode."""

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        """The reason why `tool_input` cannot be run, or None. Comes before the permission question, never asks a person
        about a call that would fail anyway. The schema has been checked before."""

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """Do it. Expected failures are results with `is_error`; an exception is a bug and becomes one as well."""
