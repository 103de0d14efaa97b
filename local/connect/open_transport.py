"""Log in to the host while this machine loads what the session needs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.errors import AuthFailed, Dropped, Unreachable
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.reconnecting import waits
from ccb.tunnel.ssh.past_logins import PastLogins
from ccb.tunnel.tasks import cancelled
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import NOTHING_SHARED, Transport

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_label, open_chosen_transport
from ..config import policy as policies
from ..config.log import state_dir
from ..config.settings_loading import load_policy, load_sharing
from ..session.dialing import FIRST_TRIES
from .startup import StartupLoader

if TYPE_CHECKING:
    from ccb.tunnel.transports.pipe import Sharing

log = logging.getLogger(__name__)
LogIn = Callable[[Prompts], Awaitable[Transport]]
"""Connects and logs in; its prompts ask the person. Raises CcbError."""
BANNER_LIMIT_S = 20.0
"""Seconds left to a login after a banner, jump host or ProxyCommand printed text: it may be a question."""
_MAX_QUOTED = 160
_MAX_BANNERS = 20
_MAX_BANNER = 2_000


async def first_transport(log_in: LogIn, prompts: Prompts) -> Transport:
    """Log in, and try again if the connection breaks off (MaxStartups). Raises CcbError."""
    delays = waits()
    for number in range(2, FIRST_TRIES + 1):
        try:
            return await log_in(prompts)
        except Dropped as error:
            log.info("the first connection: %s", error)
            prompts.banner(f"{error.what}; trying again ({number} of {FIRST_TRIES})")
            await asyncio.sleep(next(delays))
    return await log_in(prompts)


async def open_transport(
    arguments: Arguments,
    environ: Mapping[str, str],
    startup: StartupLoader,
    prompts: Prompts,
    sharing: Sharing | None = None,
) -> Transport:
    """Connect, and start the loader once the network is busy. `sharing`: None for what the settings allow."""
    connection, began = arguments.connection, asyncio.get_running_loop().time()
    allowed = load_sharing(environ)  # what is wrong with the settings is told by their check
    pipelined = allowed.pipelined and not connection.plain_login
    past = PastLogins(state_dir(environ) / "logins") if pipelined else None
    policy = load_policy()
    policies.check_connection(policy, connection)
    if policies.binds_routes(policy):  # nobody knows where a connection leads that ccb has not made
        sharing = replace(NOTHING_SHARED, admit=partial(policies.check_route, policy))
    opening = open_chosen_transport(connection, prompts, environ, startup.start, past, sharing or allowed)
    connecting = asyncio.create_task(opening, name="connect")
    connecting.add_done_callback(lambda _: startup.start())
    try:
        settings = (await startup.loaded()).settings
        limit = settings.connectTimeoutSeconds if "connectTimeoutSeconds" in settings.given else None
        try:
            async with asyncio.timeout_at(began + limit if limit is not None and arguments.headless else None):
                return await connecting
        except TimeoutError:
            raise Unreachable(
                f"no connection to {host_label(connection)} within {limit:g} s",
                do="Check the host, or raise connectTimeoutSeconds in the settings.",
            ) from None
    except BaseException:
        await cancelled(connecting)
        if not connecting.cancelled() and connecting.exception() is None:
            await connecting.result().close()  # the transport was made, but nobody will use it
        raise


class _BannerWatch(NobodyToAsk):
    def __init__(self, prompts: Prompts, first: Callable[[], None]) -> None:
        super().__init__(prompts.memory)
        self.banners: deque[str] = deque(maxlen=_MAX_BANNERS)
        self.over = False
        self._first = first

    def banner(self, text: str) -> None:
        if text.strip() and not self.over:
            if not self.banners:
                self._first()
            self.banners.append(text.strip()[:_MAX_BANNER])


async def log_in_unattended(
    log_in: LogIn, prompts: Prompts, host: str, *, limit_s: float = BANNER_LIMIT_S
) -> Transport:
    """Log in with prompts that ask nobody. Raises AuthFailed with the banners after `limit_s` from the first one."""
    if isinstance(prompts, NobodyToAsk):
        return await log_in(prompts)
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    watch = _BannerWatch(prompts, lambda: limit.reschedule(loop.time() + limit_s))
    try:
        async with limit:
            transport = await log_in(watch)
            async with AsyncExitStack() as on_error:
                on_error.push_async_callback(transport.close)
                await transport.logged_in()
                on_error.pop_all()
            return transport
    except TimeoutError:
        if not limit.expired():
            raise
        raise AuthFailed(
            f"the login to {host} waits for you: {one_line(watch.banners[-1])[:_MAX_QUOTED]}",
            evidence="\n".join(watch.banners),
            do="Press r to log in again: its questions appear then.",
        ) from None
    finally:
        watch.over = True
