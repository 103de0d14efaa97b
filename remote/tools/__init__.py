"""The tools of the agent, under the names and with the inputs that models are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Tool, ToolContext


def default_tools() -> list[Tool]:
    """Every tool, in the order the model sees them: fixed, because the request prefix must not change."""
    from .bash import Bash
    from .edit import Edit, MultiEdit
    from .glob import Glob
    from .grep import Grep
    from .ls import LS
    from .read import Read
    from .shell_tools import BashOutput, KillShell
    from .todo import TodoWrite
    from .write import Write

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
    from ..host import LocalHost
    from .base import ToolContext
    from .file_state import FileState
    from .shells import Shells
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
