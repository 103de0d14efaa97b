"""What the person wants next: to leave, or another session on the screen."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ccb.tunnel.wire.dataclass import dataclass

from ...command_line.model import Arguments, SessionChoice


@dataclass(frozen=True)
class NextSession:
    """The session that comes next: an existing one, or a new one if `session` is "". A new one begins with `model` and
    `mode`, where they are not ""."""

    session: str = ""
    model: str = ""
    mode: str = ""


class Switching:
    """Tells whoever holds the connection which session the person wants next."""

    def __init__(self) -> None:
        self._next: asyncio.Queue[NextSession] = asyncio.Queue()

    def go_to(self, following: NextSession) -> None:
        """Show another session in place of this one."""
        self._next.put_nowait(following)

    async def wait(self, left: asyncio.Event) -> NextSession | None:
        """Return the next session, None once the person has `left`."""
        leaving, going = asyncio.ensure_future(left.wait()), asyncio.ensure_future(self._next.get())
        try:
            await asyncio.wait({leaving, going}, return_when=asyncio.FIRST_COMPLETED)
            return going.result() if going.done() and not leaving.done() else None
        finally:
            for each in (leaving, going):
                each.cancel()
            await asyncio.gather(leaving, going, return_exceptions=True)


def arguments_for(following: NextSession, arguments: Arguments, cwd: str) -> Arguments:
    """Return the arguments of the run for the session that the person wants next. `cwd` is the directory of the one
    before, in which a new session works, too."""
    patience = arguments.session.reconnect_timeout
    choice = SessionChoice(resume=following.session or None, reconnect_timeout=patience)
    agent = arguments.agent
    if following.session:  # an existing session has a model and a mode
        agent = replace(agent, model=None, permission_mode=None, dangerously_skip_permissions=False)
    else:
        bypass = agent.allow_bypass or agent.dangerously_skip_permissions
        agent = replace(agent, model=following.model or agent.model, permission_mode=following.mode or None)
        agent = replace(agent, allow_bypass=bypass, dangerously_skip_permissions=False)
    directory = None if following.session else cwd
    return replace(arguments, prompt=None, session=choice, agent=agent, directory=directory)
