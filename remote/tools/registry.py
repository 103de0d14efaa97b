"""The tools of the agent, under the names and with the inputs that models are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import Tool, ToolContext


def default_tools() -> list[Tool]:
    """Every tool, in the order the model sees them: fixed, because the request prefix must not change."""
    from .files.edit import Edit, MultiEdit
    from .files.ls import LS
    from .files.read import Read
    from .files.write import Write
    from .search.glob import Glob
    from .search.grep import Grep
    from .shell.bash import Bash
    from .shell.shell_tools import BashOutput, KillShell
    from .todo import TodoWrite

    return [
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
    ]


def make_context(cwd: str, outputs: str, token: str = "") -> ToolContext:
    """What a session lends to its tools. `outputs` is the directory for outputs too long for the model, "" for none; `token` is
    for the mark of its processes, when another than a fresh one. The caller ends it with `close_context`."""
    from ..system.host import LocalHost
    from .contract import ToolContext
    from .files.file_state import FileState
    from .shell.shells import Shells
    from .spill import Spill

    host = LocalHost(token, untrusted=[cwd])
    return ToolContext(
        host=host,
        cwd=cwd,
        add_dirs=[],
        files=FileState(),
        shells=Shells(cwd, host.session),
        spill=Spill(outputs),
    )


async def close_context(context: ToolContext) -> None:
    """End every process the tools have started, and close their files."""
    try:
        await context.shells.close()
    finally:
        context.spill.close()
