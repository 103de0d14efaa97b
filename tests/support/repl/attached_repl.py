"""The REPL on a session that needs no connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack

from ccb.local.config.settings_loading import DEFAULT_SCREEN, ScreenSettings
from ccb.local.session.session_client import SessionClient
from ccb.local.slash_commands.session_api import NO_LAPTOP, LaptopSide, ReplInfo
from ccb.local.terminal.terminal_prompts import TerminalPrompts
from ccb.local.tui.app import Repl
from ccb.local.tui.between_sessions import run_repl


def repl_on(
    session: SessionClient,
    info: ReplInfo,
    environ: Mapping[str, str] = os.environ,
    prompts: TerminalPrompts | None = None,
    screen: ScreenSettings = DEFAULT_SCREEN,
    laptop: LaptopSide = NO_LAPTOP,
) -> Repl:
    """A REPL that shows `session` as soon as it has shown itself. Questions of a login come through `prompts`."""

    async def attend(app: Repl) -> None:
        with ExitStack() as stack:
            if prompts is not None:
                stack.enter_context(app.login_handover.serving(prompts))
            await app.attach(session, info, (), laptop)
            await app.switching.wait()

    return Repl(info.host, attend, first_prompt=info.first_prompt, environ=environ, screen=screen)


async def run_on(session: SessionClient, info: ReplInfo, *, prompts: TerminalPrompts | None = None) -> int:
    """Run the REPL on the terminal; its exit code."""
    return await run_repl(repl_on(session, info, prompts=prompts))
