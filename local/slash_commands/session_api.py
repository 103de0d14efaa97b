"""What a slash command may use, and the text that stays on the terminal after a session."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import field, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict

from ccb import __version__
from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, neutralise, one_line
from ccb.tunnel.wire.client_requests import LIST_COMMANDS
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ModelNames
from ccb.tunnel.wire.session_options import cage_of

from ..command_line.arguments import Arguments, SessionChoice
from ..session.session_client import LinkState
from ..transcript.session_facts import used_text
from ..transcript.transcript_reducer import SessionFacts, TranscriptReducer

if TYPE_CHECKING:
    from ..connect.connect_session import OpenSession
    from ..connect.host_sessions import HostSessions
    from ..connect.project_trust import ProjectDesk
    from ..files.copying import Transfers
    from ..files.fetched_files import FetchedFiles
    from ..mcp.mcp_service import LaptopServers
    from ..ports.port_forwards import PortForwards
    from ..providers.known_models import OfferedModels
    from ..session.session_client import Json, SessionClient
    from ..terminal.shell_relay import PersonShells
    from ..transcript.blocks import BlockContainer

Shape = TypeVar("Shape", bound=BaseModel)
_MAX_COMMANDS = 1000


@dataclass(frozen=True)
class LaptopSide:
    """What the laptop lends to a session. A part is None where the laptop does not lend it, as in a test."""

    projects: ProjectDesk | None = None
    mcp: LaptopServers | None = None
    sessions: HostSessions | None = None
    transfers: Transfers | None = None
    models: OfferedModels | None = None
    fetched: FetchedFiles | None = None
    ports: PortForwards | None = None
    log_in: Callable[[str, str], Awaitable[str]] | None = None
    shells: PersonShells | None = None


NO_LAPTOP = LaptopSide()


class Place(Enum):
    """Where a command is given: on the screen, in the lines of `--plain`, as the prompt of a headless run."""

    SCREEN = "screen"
    LINES = "lines"
    HEADLESS = "headless"


class WorkerAnswer(BaseModel):
    """An answer of the worker, or a part of one. A newer worker may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class WorkerCommand(WorkerAnswer):
    """A slash command that the worker carries out. `builtin`: it comes neither from a file nor from a server."""

    name: str
    argumentHint: str = ""
    description: str = ""
    builtin: bool = False


class WorkerCommands(WorkerAnswer):
    """The answer to `list_commands`."""

    commands: Annotated[list[WorkerCommand], AfterValidator(lambda listed: listed[:_MAX_COMMANDS])] = []


@dataclass(eq=False)
class SessionApi:
    """What a command uses. `waits` is called if a request waits for a connection; `terminal` and `problems` are for
    reports. While `lent` is open, the terminal is there for questions."""

    client: SessionClient
    info: ReplInfo
    transcript: TranscriptReducer
    laptop: LaptopSide = NO_LAPTOP
    place: Place = field(kw_only=True)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    waits: Callable[[], None] = lambda: None
    terminal: Callable[[], str] = lambda: "none"
    problems: Callable[[], Sequence[str]] = tuple
    lent: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    async def request(self, request: Request[P, A]) -> A:
        if self.client.state is not LinkState.CONNECTED:
            self.waits()
        return await self.client.request(request)

    async def read(self, request: Request[P, Json], shape: type[Shape]) -> Shape:
        """Send a request, and return its answer. Raise CcbError, RequestFailed, ValidationError."""
        return shape.model_validate(await self.request(request))

    async def worker_commands(self) -> list[WorkerCommand]:
        return (await self.read(Request(LIST_COMMANDS, None), WorkerCommands)).commands

    def left(self, *, stopped: bool, error: CcbError | None, asking: bool, answer: str = "") -> LeftSession:
        """Return how the person leaves the session. The first thing that becomes of it is told."""
        hello, lost = self.client.hello, error.what if error is not None else ""
        sentences = (
            (stopped, "It was stopped on the host."),
            (lost, f"Lost: {lost}."),
            (asking, "The agent waits there for an answer."),
            (self.transcript.running, "The agent keeps working there."),
        )
        fate, in_memory = [sentence for holds, sentence in sentences if holds][:1], hello.storage == "memory"
        if in_memory:
            fate.append("It was in memory only." if stopped else "It is in memory only, and gone when its worker ends.")
        return LeftSession(hello.session, used_text(self.transcript.totals), fate, in_memory and stopped, answer)

    @property
    def laptop_servers(self) -> list[str]:
        return [*self.laptop.mcp.states()] if self.laptop.mcp is not None else []

    @property
    def only_here(self) -> str:
        if self.laptop.sessions is None:
            return "This terminal shows one session only."
        if self.client.state not in (LinkState.CONNECTED, LinkState.FENCED):
            return "There is no connection now, so this session stays."
        return ""


@dataclass(frozen=True)
class NextSession:
    """The session that comes next: an existing one, or a new one if `session` is "". `copied`: a copy of that one."""

    session: str = ""
    model: str = ""
    mode: str = ""
    copied: bool = False


def arguments_for(following: NextSession, arguments: Arguments, cwd: str) -> Arguments:
    """Return the arguments for the session that the person wants next. `cwd` is the directory of the one before."""
    patience = arguments.session.reconnect_timeout
    choice = SessionChoice(resume=following.session or None, fork_session=following.copied, reconnect_timeout=patience)
    agent, permissions, directory = arguments.agent, arguments.permissions, None if following.session else cwd
    if following.session:  # an existing session has a model and a mode
        agent = replace(agent, model=None)
        permissions = replace(permissions, permission_mode=None, dangerously_skip_permissions=False)
    else:
        bypass = permissions.allow_bypass or permissions.dangerously_skip_permissions
        agent = replace(agent, model=following.model or agent.model)
        permissions = replace(permissions, permission_mode=following.mode or None, allow_bypass=bypass)
        permissions = replace(permissions, dangerously_skip_permissions=False)
    chosen = replace(arguments, agent=agent, permissions=permissions)
    return replace(chosen, prompt=None, session=choice, directory=directory)


class ErrorDisplay(Protocol):
    """Asks the host, and shows what came of it: an error as a card in the conversation, a hint in the status line."""

    async def ask(self, request: Request[P, A]) -> A | None: ...

    def show_error(self, error: CcbError | RequestFailed) -> None: ...

    def hint(self, text: str) -> None: ...


_SHORT_ID = 8
_MAX_ANSWER_LINES = 60


@dataclass(frozen=True)
class ReplInfo:
    """Facts about the session. `host`: as it was typed; `resume` returns to it, `revoke` ends its model calls."""

    host: str
    path: str
    model: str
    mode: str
    version: str
    resume: str = ""
    client_name: str = ""
    first_prompt: str = ""
    sandbox: str = ""
    effort: str = ""
    revoke: Callable[[], None] = lambda: None

    @property
    def place(self) -> str:
        return f"{one_line(self.host)}:{HostText(self.path).path}"

    def transcript(self, container: BlockContainer) -> TranscriptReducer:
        """Return the transcript of the session, empty, which shows itself in `container`."""
        facts = SessionFacts(self.model, self.mode, self.sandbox, self.effort)
        return TranscriptReducer(container, facts=facts, own_name=self.client_name, cwd=self.path.rstrip("/"))


def info_of(opened: OpenSession, first_prompt: str = "") -> ReplInfo:
    hello, options = opened.session.hello, opened.options
    foreign, can_cage = options.agent_name, "sandbox" in hello.capabilities
    wanted = cage_of(options.sandbox, options.permission_mode) if can_cage and not foreign else ""
    chosen = options.model or ("" if hello.seq else foreign or "default")  # events of a session that exists name it
    return ReplInfo(
        host=opened.host,
        path=hello.cwd.raw,
        model=ModelNames(options.model_aliases).resolved(chosen),
        mode=options.permission_mode,
        version=__version__,
        resume=opened.resume,
        client_name=options.client,
        first_prompt=first_prompt,
        sandbox=hello.sandbox.cell or wanted,
        effort=options.effort or "",
        revoke=opened.revoke,
    )


def laptop_of(
    opened: OpenSession, transfers: Transfers | None = None, fetched: FetchedFiles | None = None
) -> LaptopSide:
    lends = (
        opened.projects,
        opened.mcp,
        opened.sessions,
        transfers,
        opened.models,
        fetched,
        opened.ports,
        opened.log_in,
        opened.shells,
    )
    return LaptopSide(*lends)


@dataclass(frozen=True)
class LeftSession:
    """A session that the person leaves. Nobody comes back to one that `is_gone`."""

    session_id: str
    used: str
    fate: Sequence[str] = ()
    is_gone: bool = False
    answer: str = ""


def farewell(info: ReplInfo, left: LeftSession) -> list[str]:
    used = f": {left.used}" if left.used else ""
    lines = [*_end_of(left.answer), f"Session {left.session_id} on {info.place}{used}", *left.fate]
    if info.resume and not left.is_gone:
        lines += ["Come back with:", f"  {info.resume}"]
    return lines


def _end_of(answer: str) -> list[str]:
    lines = neutralise(answer).strip().splitlines()
    left_out = len(lines) - _MAX_ANSWER_LINES
    more = [f"… {left_out:,} earlier lines of the last answer are in the session"] if left_out > 0 else []
    return [*more, *lines[-_MAX_ANSWER_LINES:], ""] if lines else []


def way_back(left: LeftSession) -> str:
    name = left.session_id[:_SHORT_ID]
    return " ".join([f"Before this: session {name}.", *left.fate, f"/resume {name} goes back to it."])
