"""The interface of a tool."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Callable, Protocol, Union

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.json_schema import restored, tool_schema
from ccb.tunnel.wire.tool_traits import ToolTraits

from ..session_store.session_files import PlanFile
from .output import MAX_OUTPUT_CHARS

if TYPE_CHECKING:
    from ccb.tunnel.wire.journal_records import TodoRecord
    from ccb.tunnel.wire.web_fetch import FetchedText

    from ..model.model_call import ModelQuestion, ReplyListener
    from ..permissions.modes import Cages
    from ..sandbox.cage_rules import CageRules
    from ..session_store.file_history import FileHistory
    from ..session_store.session_directory import SessionDirectory
    from ..system.host import Host
    from ..system.login_shell import LoginEnvironment
    from .background_shells import BackgroundShells
    from .output import OutputFiles
    from .tasks import TaskRegistry
    from .tool_state import AgentTodos, FileState

Json = dict[str, Any]
Content = Union[str, list[Json]]


@dataclass(frozen=True)
class ToolDeclaration:
    """Everything about a tool except its code. `traits` is the part that permission rules and the laptop use as well;
    `description` and `input_schema` are for the model. `max_output_chars` limits the text of a result."""

    traits: ToolTraits
    description: str
    input_schema: Json
    max_output_chars: int = MAX_OUTPUT_CHARS
    if_nobody_can_be_asked: str = ""
    """The result of a call of a tool that `asks`, in a session where nobody can be asked."""
    checked_schema: object = None
    """The schema that an input must fit, where `input_schema` is only what the APIs of models take of it."""
    spelled: Mapping[str, str] = field(default_factory=dict)
    """The properties that have another name in `input_schema`, by that name."""
    adapted: bool = False
    """Whether a model could be surprised: it sees other names, or less of the schema."""


def declared(traits: ToolTraits, description: str, schema: object) -> ToolDeclaration:
    """Return the declaration of a tool whose schema somebody else has written: what no API takes at its place stands in
    the description."""
    shown = tool_schema(schema)
    rules = f"\n\nThe input must also fit this JSON Schema: {shown.rules}" if shown.rules else ""
    adapted = bool(shown.spelled or shown.rules)
    return ToolDeclaration(
        traits, description + rules, shown.schema, checked_schema=schema, spelled=shown.spelled, adapted=adapted
    )


@dataclass(frozen=True)
class ToolResult:
    """`content` is what the model sees: text, or Messages API blocks such as images. `structured` is what clients see
    as `tool_use_result`, in the shapes of the public protocol. An error is an ordinary result with `is_error`."""

    content: Content
    is_error: bool = False
    structured: Any = None


class ToolRefused(Exception):
    """A call does nothing, or has failed; the text says why, for the model."""

    @property
    def result(self) -> ToolResult:
        return ToolResult(str(self), is_error=True, structured=f"Error: {self}")


@dataclass(frozen=True)
class FileVersion:
    """One version of a file: its real path, and the digest of its content (`ABSENT` if there is no file)."""

    real: str
    digest: str


@dataclass(frozen=True)
class UpcomingChange:
    """What a tool is about to do to the file `path`, with every link resolved. `data` is its content now, None without
    a file; `before` and `after` are the digests."""

    path: str
    data: bytes | None
    mode: int
    before: str
    after: str


async def _not_kept(change: UpcomingChange) -> str:
    return ""


@dataclass(frozen=True)
class Preview:
    """What a call would do to a file as it is now, for the person who is asked. `public` goes into the question;
    `version` is the version that it was compared with."""

    public: Json
    version: FileVersion


class Modes(Protocol):
    """The permission mode of the session, for a tool that changes it."""

    @property
    def mode(self) -> str:
        """The present mode."""

    def enter_plan(self) -> None:
        """Switch to plan mode."""

    def leave_plan(self) -> None:
        """Switch to the mode that plan mode has replaced. Do nothing in any other mode."""

    def grant(self, rules: Sequence[str]) -> None:
        """Let the allow rules of a skill hold until the turn ends."""


class SubAgentRunner(Protocol):
    """Runs the sub-agents that an agent starts."""

    def refusal(self, tool_input: Json) -> str | None:
        """Return why no agent can be started with this input of a call; None if one can."""

    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """Run an agent and return its answer. When it is cancelled, the agent has ended before this returns."""


@dataclass(frozen=True)
class CallContext:
    """What one call of a tool may do, and whom it tells."""

    tool_use_id: str = ""
    agent_id: str = ""
    """The agent that makes the call; "" for the main agent."""
    approved: FileVersion | None = None
    """The version of the file that the person has seen. The tool changes no other version."""
    left_out: tuple[str, ...] = ()
    """The files that a search must not find: regular expressions (for fullmatch) of absolute paths in lower case."""
    cage: CageRules | None = None
    """The cage in which the call runs commands; None for no cage."""
    pinned: str = ""
    """The real path that the call may use and no other, wherever its path leads by now; "" if there is no need."""
    for_person: bool = False
    """Whether the call stands for a question to a person, who may take their time."""
    progress: Callable[[Json], None] = lambda update: None
    """Report live output: {"output": str (its end), "total_bytes": int, "elapsed_seconds": float}. Replaces the last
    report."""
    remind: Callable[[str, str], None] = lambda key, text: None
    """Tell the model something together with the results of its calls; see `Reminders.add`."""
    stopped: Callable[[str], None] = lambda printed: None
    """A cancelled call passes the output it had printed so far to this function, for the model."""
    before_change: Callable[[UpcomingChange], Awaitable[str]] = _not_kept
    """Keep the present version of a file in the file history. A tool awaits this before it changes a file. Returns why
    it could not be kept, "" if it was."""
    todo_changed: Callable[[TodoRecord], object] = lambda item: None
    """Record an item of the todo list that the call has made or changed."""
    modes: Modes | None = None
    """Changes the permission mode; None where no call runs."""
    web_access: WebAccess | None = None
    """How the tools of the web reach a model, and the laptop."""


_NO_CALL = CallContext()


@dataclass(frozen=True)
class ToolContext:
    """The resources of a session that its tools use; `call` belongs to one call."""

    host: Host
    cwd: str  # the session's directory, absolute
    add_dirs: list[str]
    files: FileState
    shells: BackgroundShells
    spill: OutputFiles
    todos: AgentTodos
    cages: Cages
    history: FileHistory
    tasks: TaskRegistry
    web: WebSettings
    login: LoginEnvironment
    directory: SessionDirectory
    sub_agents: SubAgentRunner | None = None
    """Runs sub-agents; None where they cannot be started."""
    call: CallContext = _NO_CALL

    @property
    def roots(self) -> list[str]:
        """The directories of the session."""
        return [self.cwd, *self.add_dirs]

    @property
    def plan(self) -> PlanFile:
        return PlanFile.beside(self.spill.directory)

    def for_call(self, call: CallContext) -> ToolContext:
        """Return the same resources for another call."""
        return replace(self, call=call)


class Tool(ABC):
    """One tool. Subclasses set `declaration`."""

    declaration: ToolDeclaration

    @property
    def name(self) -> str:
        return self.declaration.traits.name

    @property
    def traits(self) -> ToolTraits:
        return self.declaration.traits

    @property
    def description(self) -> str:
        return self.declaration.description

    @property
    def input_schema(self) -> Json:
        return self.declaration.input_schema

    @property
    def checked_schema(self) -> object:
        """The schema that an input must fit. The model may see another one."""
        own = self.declaration.checked_schema
        return self.declaration.input_schema if own is None else own

    def meant(self, tool_input: Json) -> Json:
        """Return what a model means with an input, in the names that the tool knows."""
        spelled = self.declaration.spelled
        given: Json = restored(tool_input, spelled) if spelled else tool_input
        return given

    def is_read_only(self, tool_input: Json) -> bool:
        """Return whether a call changes nothing, so that it may run beside others, and in plan mode."""
        return self.traits.parallel

    def stands_for(self, tool_input: Json) -> tuple[str, Json] | None:
        """Return the name and the input of the call that this one stands for; None for a call of its own."""
        return None

    def validate(self, tool_input: Json, context: ToolContext) -> str | None:
        """Return why `tool_input`, which matches the schema, cannot be run; None if it can. Called before the
        permission check, so that nobody is asked about a call that would fail anyway."""
        return None

    def question(self, tool_input: Json, context: ToolContext) -> Json:
        """Return the input with which the person is asked about a call, and which it has if they change nothing."""
        return tool_input

    async def preview(self, tool_input: Json, context: ToolContext) -> Preview | None:
        """Return what the call would do to a file, or None if it changes no file in a way that can be foretold. Raise
        ToolRefused if it would fail. Called when the person is about to be asked."""
        return None

    @abstractmethod
    async def run(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """Run the call. Expected failures are results with `is_error`, or raise ToolRefused; another exception is a
        bug. When it is cancelled, it must leave no process and no half-written file behind."""

    async def call(self, tool_input: Json, context: ToolContext) -> ToolResult:
        """Return the result of the call, also if it is refused."""
        try:
            return await self.run(tool_input, context)
        except ToolRefused as refused:
            return refused.result


@dataclass
class WebSettings:
    """`on_laptop`: pages are fetched in the network of the laptop. `allow_private`: also from private addresses."""

    on_laptop: bool = False
    allow_private: bool = False

    def use(self, network: str, allow_private: bool) -> None:
        """Take the options of a client: whose `network`, host or laptop."""
        self.on_laptop, self.allow_private = network == "laptop", allow_private


@dataclass(frozen=True)
class WebAccess:
    """`ask` puts a question to a model, and `fetch_on_laptop` fetches a page there; it raises RequestFailed."""

    ask: Callable[[ModelQuestion], Awaitable[ReplyListener]]
    fetch_on_laptop: Callable[[str], Awaitable[FetchedText]]
