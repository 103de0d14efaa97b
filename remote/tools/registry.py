"""The registry of the tools that the model is offered, and the context that a session lends to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from ..sessions.paths import home_directory

if TYPE_CHECKING:
    from ..sandbox.server import CageServer
    from .contract import Tool, ToolContext


class ToolRegistry(Sequence["Tool"]):
    """Tools in the order in which the model sees them. Additions and removals take effect at the start of a turn. New
    tools go to the end, sorted by name, so the request prefix changes only when the set of tools does."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._built_in = frozenset(self._tools)
        self._waiting: dict[str, Tool | None] = {}  # None: to be removed

    @overload
    def __getitem__(self, index: int) -> Tool: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tool]: ...
    def __getitem__(self, index: Any) -> Any:
        return tuple(self._tools.values())[index]

    def __len__(self) -> int:
        return len(self._tools)

    def add(self, tools: Iterable[Tool]) -> None:
        """Offer more tools from the next turn on. A tool replaces an added tool of the same name and takes its place in
        the order. Raise ValueError for the name of a built-in tool."""
        added = {tool.name: tool for tool in tools}
        self._refuse_built_in(added)
        self._waiting.update(added)

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
        return tuple(self._tools.values())

    def _refuse_built_in(self, names: Iterable[str]) -> None:
        taken = sorted(self._built_in.intersection(names))
        if taken:
            raise ValueError(f"built-in tools cannot be replaced or removed: {', '.join(taken)}")


def default_tools() -> ToolRegistry:
    """Return a registry of the built-in tools, in the order of `tool_traits.BUILT_IN`."""
    from .agents.task import Task
    from .ask import AskUserQuestion
    from .files.edit import Edit, MultiEdit
    from .files.ls import LS
    from .files.read import Read
    from .files.write import Write
    from .planning.plan_mode import EnterPlanMode, ExitPlanMode
    from .search.glob import Glob
    from .search.grep import Grep
    from .shell.bash import Bash
    from .shell.shell_tools import BashOutput, KillShell
    from .todo import TodoWrite

    return ToolRegistry(
        (
            Bash(),
            BashOutput(),
            KillShell(),
            Glob(),
            Grep(),
            LS(),
            Read(),
            Edit(),
            MultiEdit(),
            Write(),
            TodoWrite(),
            Task(),
            AskUserQuestion(),
            EnterPlanMode(),
            ExitPlanMode(),
        )
    )


def make_context(cwd: str, outputs: str, token: str = "", caged: CageServer | None = None) -> ToolContext:
    """Return the context for the tools of a session; the caller ends it with `close_context`. `outputs` is the
    directory for outputs too long for the model, "" for none. `token` marks the session's processes; with "", a new one
    is generated. `caged` starts caged commands; None for a new one."""
    import os

    from ..file_history.store import FileHistory
    from ..permissions.sandbox_mode import Cages
    from ..system.host import LocalHost
    from ..tasks.registry import TaskRegistry
    from .contract import ToolContext
    from .files.file_state import FileState
    from .plan_file import PlanFile
    from .shell.shells import Shells
    from .spill import Spill
    from .todo import TodoList

    environ = dict(os.environ)
    tasks = TaskRegistry()
    host = LocalHost(token, untrusted=[cwd], environ=environ, cages=caged)
    return ToolContext(
        host=host,
        cwd=cwd,
        add_dirs=[],
        files=FileState(),
        shells=Shells(cwd, tasks, host.session),
        spill=Spill(outputs),
        todos=TodoList(),
        cages=Cages(host.cages, environ, home_directory()),
        plan=PlanFile.beside(outputs),
        history=FileHistory(os.path.join(os.path.dirname(outputs), "history") if outputs else ""),
        tasks=tasks,
    )


async def close_context(context: ToolContext) -> None:
    """End every process the tools have started, and close their files."""
    import asyncio

    context.tasks.closing()
    try:
        await context.tasks.stop_all()
        await context.shells.close()
    finally:
        await asyncio.get_running_loop().run_in_executor(None, context.host.close)
        context.spill.close()
