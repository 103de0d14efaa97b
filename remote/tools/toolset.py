"""The registry of the tools that the model is offered, and the context that a session lends to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ccb.tunnel.wire.tool_traits import FINDERS

from ..session_store.session_paths import home_directory

if TYPE_CHECKING:
    from ..sandbox.cage_server import CageServer
    from .tool_contract import Tool, ToolContext

DEFER_ABOVE_CHARS = 60_000  # about a tenth of the window of most models


class Toolset:
    """Tools in the order in which the model sees them. Additions and removals take effect at the start of a turn; new
    tools go to the end. Requests do not declare deferred tools: the model finds and calls them through two tools that
    come with the first of them. Above `defer_above` characters, all added tools are deferred."""

    def __init__(self, tools: Iterable[Tool], deferred: Iterable[str] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools if tool.name not in FINDERS}
        self._built_in = frozenset(self._tools)
        self._waiting: dict[str, Tool | None] = {}  # None: to be removed
        self._deferred = set(deferred)
        self._defers_all = False  # every added tool
        self.defer_above = DEFER_ABOVE_CHARS

    @property
    def deferred(self) -> tuple[Tool, ...]:
        return tuple(tool for name, tool in self._tools.items() if name in self._deferred)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def add(self, tools: Iterable[Tool], *, deferred: bool = False) -> None:
        """Offer more tools from the next turn on. A tool replaces an added tool of the same name and takes its place in
        the order. `deferred`: requests do not declare them. Raise ValueError for the name of a built-in tool."""
        added = {tool.name: tool for tool in tools}
        self._refuse_built_in(added)
        self._waiting.update(added)
        if deferred:
            self._deferred.update(added)

    def named(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def redeclare(self, tool: Tool) -> None:
        """Offer another version of the built-in tool of that name from the next turn on."""
        self._waiting[tool.name] = tool

    def remove(self, names: Iterable[str]) -> None:
        """Withdraw added tools from the next turn on; ignore unknown names. Raise ValueError for a built-in tool."""
        removed = list(names)
        self._refuse_built_in(removed)
        self._waiting.update(dict.fromkeys(removed))

    def begin_turn(self) -> tuple[Tool, ...]:
        """Apply what has been added and removed since the last turn, and return the tools of this one."""
        for name, tool in sorted(self._waiting.items()):
            if tool is None:
                self._tools.pop(name, None)
            else:
                self._tools[name] = tool
        self._waiting.clear()
        self._defer()
        return tuple(self._tools.values())

    def _defer(self) -> None:
        added = [tool for name, tool in self._tools.items() if name not in self._built_in and name not in FINDERS]
        weight = sum(len(tool.name) + len(tool.description) + len(str(tool.input_schema)) for tool in added)
        self._defers_all = self._defers_all or weight > self.defer_above
        if self._defers_all:
            self._deferred.update(tool.name for tool in added)
        if self._deferred & self._tools.keys():
            from .tool_search import ExecuteExtraTool, ToolSearch

            search = ToolSearch(lambda: self.deferred)
            for tool in (search, ExecuteExtraTool()):
                self._tools.setdefault(tool.name, tool)

    def _refuse_built_in(self, names: Iterable[str]) -> None:
        taken = sorted(self._built_in.intersection(names))
        if taken:
            raise ValueError(f"built-in tools cannot be replaced or removed: {', '.join(taken)}")


def default_tools(*, tasks: bool = True) -> Toolset:
    """Return a registry of the built-in tools, in the order of `tool_traits.BUILT_IN`. Without `tasks` the model keeps
    its todo list with TodoWrite."""
    from .agent_definitions import TaskTool
    from .asking import AskUserQuestion, EnterPlanMode, ExitPlanMode
    from .background_tools import BashOutput, KillShell, TaskOutput, TaskStop
    from .bash import Bash
    from .edit import Edit, MultiEdit, Write
    from .notebook import NotebookEdit
    from .read import Read
    from .search_tools import LS, Glob, Grep
    from .todo import TaskCreate, TaskGet, TaskList, TaskUpdate, TodoWrite
    from .web import WebFetch, WebSearch

    shells = (Bash(), BashOutput(), KillShell())
    files = (Glob(), Grep(), LS(), Read(), Edit(), MultiEdit(), Write())
    todos = (TodoWrite(), *((TaskCreate(), TaskUpdate(), TaskGet(), TaskList()) if tasks else ()))
    work = (TaskTool(), AskUserQuestion(), EnterPlanMode(), ExitPlanMode(), TaskOutput(), TaskStop())
    return Toolset((*shells, *files, *todos, *work, NotebookEdit(), WebFetch(), WebSearch()))


def make_context(cwd: str, outputs: str, token: str = "", caged: CageServer | None = None) -> ToolContext:
    """Return the context of a session, which `close_context` ends. `outputs` is the place of long outputs, or ""."""
    import os

    from ..permissions.modes import Cages
    from ..sandbox.cage_server import CageServer
    from ..session_store.file_history import FileHistory
    from ..session_store.session_directory import SessionDirectory
    from ..system.host import Host
    from ..system.login_shell import LoginEnvironment
    from .background_shells import BackgroundShells
    from .output import OutputFiles
    from .tasks import TaskRegistry
    from .tool_contract import ToolContext, WebSettings
    from .tool_state import AgentTodos, FileState

    environ = dict(os.environ)
    tasks = TaskRegistry()
    caged = caged or CageServer()
    host = Host(token, untrusted=[cwd], environ=environ, cages=caged)
    return ToolContext(
        host=host,
        cwd=cwd,
        add_dirs=[],
        files=FileState(),
        shells=BackgroundShells(cwd, tasks, host.session),
        spill=OutputFiles(outputs),
        todos=AgentTodos(),
        cages=Cages(host.cages, environ, home_directory()),
        history=FileHistory(os.path.join(os.path.dirname(outputs), "history") if outputs else ""),
        tasks=tasks,
        web=WebSettings(),
        login=LoginEnvironment(environ, host.session, caged),
        directory=SessionDirectory(cwd),
    )


async def close_context(context: ToolContext) -> None:
    """End every process the tools have started, and close their files."""
    from ..system.deadline import in_thread

    context.tasks.closing = True
    try:
        await context.login.close()
        await context.tasks.stop_all()
        await context.shells.close()
    finally:
        await in_thread(context.host.close)
        context.spill.close()
