"""Run the REPL on the terminal, and say what becomes of what it leaves behind."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from ..command_line.exit_codes import ExitCode
from ..config.log import state_dir
from ..terminal.guarded_streams import print_line, say
from ..terminal.restoring import SCREENS, restored_at_the_end
from ..terminal.signals import Interrupts
from .app import Repl

_WORDS: dict[int, str] = {
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.TERMINATED: "terminated",
    ExitCode.HANGUP: "hung up",
}


async def run_repl(app: Repl) -> int:
    """Show the interface until the person leaves, a signal ends it or the task of its session fails. Return the exit
    code.

    The session goes on on its host, unless the person gave /stop. Raises what the session's task raises.
    """
    streams = sys.stdout, sys.stderr
    try:
        with restored_at_the_end(state_dir() / SCREENS), Interrupts() as signals:
            signals.first.add_done_callback(lambda code: app.exit(int(code.result())))
            code = await app.run_async(mouse=app.uses_mouse) or ExitCode.OK
        if app.return_code:
            raise app.bug or RuntimeError("the interface ended")
        failed = app.session_task is not None and app.session_task.done()
        with suppress(OSError):  # the window may be closed
            if app.attached is not None:
                print_line(*app.attached.farewell())
            else:
                _tell_of_no_session(app, said=failed, why="" if failed else _WORDS.get(code, ""))
        app.left.set()
        if app.session_task is not None and (failed or app.attached is not None):
            await app.session_task
        return code
    finally:
        if app.session_task is not None:
            app.session_task.cancel()
            await asyncio.gather(app.session_task, return_exceptions=True)
        sys.stdout, sys.stderr = streams  # a login that was given up in the middle leaves others


def _tell_of_no_session(app: Repl, *, said: bool, why: str) -> None:
    """Write what the person would miss: what the login `said`, what they typed, and `why` ccb ends."""
    lines = [line for text in app.opening.said for line in text.splitlines()] if said else []
    unsent = [text for text in (*app.opening.queued, app.composer.text.strip()) if text]
    if unsent:
        lines += ["ccb: this was not sent:", *"\n".join(unsent).split("\n")]
    if why:
        lines.append(f"ccb: {why}")
    say(*lines)
