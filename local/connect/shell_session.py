"""Connect to a session only for its shells: without a model credential, and without taking it from who drives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, NoSuchSession
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.wire.control_protocol import new_uuid

from ..command_line.arguments import Arguments, SessionChoice
from ..config.settings import settings_choice
from ..session.dialing import AttachOptions
from ..session.remote_session import RemoteSession
from . import session_request as requests
from . import startup as starting
from .connect_session import HEADLESS_TAIL, first_dialer

if TYPE_CHECKING:
    from ccb.tunnel.transports.login_prompts import Prompts


@asynccontextmanager
async def connect_for_shells(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str]
) -> AsyncIterator[RemoteSession]:
    """Yield the latest session of the directory, which is only watched, or else a new one. Raises CcbError."""
    choice = settings_choice(arguments)
    async with AsyncExitStack() as stack:
        loading = starting.StartupLoader(lambda: starting.load_dialing_startup(environ, choice))
        loader = await stack.enter_async_context(loading)
        dialer, basics = await first_dialer(arguments, prompts, environ, loader, stack, None)
        options = requests.session_options(arguments, basics.settings)

        async def entered(*, new: bool) -> RemoteSession:
            chosen = replace(arguments, session=SessionChoice(continue_latest=not new))
            parameters = await requests.session_parameters(chosen, new_uuid(), basics.settings, _nobody_chooses)
            dialer.begin(parameters)
            attach = AttachOptions(
                options=options.to_json() if new else {"client": options.client},
                who=options.client,
                role="driver" if new else "viewer",
                tail=HEADLESS_TAIL,
                later_tail=HEADLESS_TAIL,
                patience=requests.reconnect_seconds(arguments, basics.settings),
            )
            return await stack.enter_async_context(RemoteSession(partial(dialer.dial, None), attach))

        try:
            session = await entered(new=False)
        except NoSuchSession:
            session = await entered(new=True)
        stack.push_async_callback(session.close, done=True)
        stack.push_async_callback(cancelled, asyncio.create_task(_drop_events(session), name="events"))
        yield session


async def _nobody_chooses() -> str:
    raise AssertionError("the session is the latest one, or new")


async def _drop_events(session: RemoteSession) -> None:
    with suppress(CcbError):  # the shell says that the connection is lost
        async for _ in session.events():
            pass
