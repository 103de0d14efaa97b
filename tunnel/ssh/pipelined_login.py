"""The pipelined login of one host: what is remembered, whether it was used, and why not."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from ..tasks import cancelled
from .past_logins import ALWAYS_WAIT, PastLogin, PastLogins

if TYPE_CHECKING:
    from ..ssh_config.host_config import HostConfig
    from .login_client import LoginClient
    from .pipelined_connection import PipelinedConnection


log = logging.getLogger(__name__)

SWITCHED_OFF = "it is switched off (pipelinedLogin in the settings, or --no-pipelined-login)"
_NOT_BORNE = "the server did not bear a command that came before it had opened a channel"


class Pipelining:
    """What one login takes from the last one, which is `last` or None for `why_not`, and leaves to the next one. `past`
    is None if logins are plain. `tried`: the key signed at once. `banner` is what the server said then."""

    def __init__(self, config: HostConfig, past: PastLogins | None) -> None:
        self.last: PastLogin | None = None
        self.tried = False
        self.banner = ""
        nothing = "no login with one key alone is remembered for this host"
        self.why_not = SWITCHED_OFF if past is None else nothing
        self._why_never = ""
        self._signed_at_once = False
        self._sent_ahead = False
        self._config = config
        self._past = past
        self._stored: PastLogin | None = None
        self._ending: asyncio.Task[bool] | None = None
        self._failed_ahead: PastLogin | None = None

    async def recall(self) -> None:
        if self._past is not None:
            self.last = self._stored = await asyncio.to_thread(self._past.last, self._config)

    def under_way(self, connection: PipelinedConnection, client: LoginClient) -> None:
        """Note a login that goes on behind the first command."""
        self._signed_at_once = True
        self._ending = asyncio.create_task(self._end(connection, client), name="the end of a login")

    async def _end(self, connection: PipelinedConnection, client: LoginClient) -> bool:
        import asyncssh

        try:
            await connection.logged_in  # to cancel this is to cancel that: nobody waits for it any more
        except (asyncssh.Error, OSError) as error:
            self._failed_ahead = self._stored
            await self.forget(str(error))
            return False
        finally:
            self.banner = client.record.banner
        await self.succeeded(connection, client)
        return True

    async def ended(self) -> bool:
        """Wait for the end of the login. Return whether it has succeeded."""
        return self._ending is None or await asyncio.shield(self._ending)

    async def close(self) -> None:
        await cancelled(self._ending)

    async def forget(self, why: str) -> None:
        log.info("the pipelined login to %s failed: %s", self._config.hostname, why)
        self.last, self.why_not = None, "the pipelined login failed, and a plain one followed"
        self._signed_at_once = self._sent_ahead = False
        await self._store(None)

    async def succeeded(self, connection: PipelinedConnection, client: LoginClient) -> None:
        offered = client.keys.offered
        found = "this login asked for something" if client.asked else connection.to_remember(offered)
        self._signed_at_once = connection.signed_at_once
        self.why_not = connection.why_not or self.why_not
        if isinstance(found, str):
            self._why_never = found
            await self._store(None)
            return
        last, failed = self._stored, self._failed_ahead
        if last is not None and (last.host_key, last.server) == (found.host_key, found.server):
            found = dataclasses.replace(found, channel=last.channel)
        key = found.host_key, found.server, found.key
        if failed is not None and (failed.host_key, failed.server, failed.key) == key:  # the command was at fault
            self.why_not = _NOT_BORNE
            found = dataclasses.replace(found, channel=ALWAYS_WAIT)
        await self._store(found)

    @property
    def guesses(self) -> bool:
        """Whether the first command need not wait for its channel: the server will give that the number 0 again."""
        return self._signed_at_once and self._guesses

    @property
    def ahead(self) -> bool:
        """Whether the first command need not even wait for the end of the login, with which compression begins."""
        return self._guesses and not self._config.stream.compression

    @property
    def _guesses(self) -> bool:
        login = self._stored
        return login is not None and login.channel == 0 and login.server.startswith("SSH-2.0-OpenSSH_")

    async def first_channel(self, number: int | None, *, ahead: bool) -> None:
        """Note the number of the first channel, and whether its command did not wait for it."""
        self._sent_ahead = ahead
        if number is not None and self._stored is not None and self._stored.channel != ALWAYS_WAIT:
            await self._store(dataclasses.replace(self._stored, channel=number))

    async def guessed_wrong(self, why: str) -> None:
        """Let the commands to this server wait from now on: it did not bear one ahead of its channel."""
        login = self._stored
        await self.forget(why)
        self.why_not = _NOT_BORNE
        if login is not None:
            await self._store(dataclasses.replace(login, channel=ALWAYS_WAIT))

    def report(self) -> str:
        """Return whether this login was pipelined and what the next one will be, for the doctor."""
        if self._signed_at_once:
            return "yes, the key signed at once" + (" and the command did not wait" if self._sent_ahead else "")
        if self._past is None:
            return f"no: {self.why_not}"
        never = f"the next login will not be either: {self._why_never}"
        return f"no: {self.why_not}; {never if self._why_never else 'the next login will be'}"

    async def _store(self, login: PastLogin | None) -> None:
        if self._past is None or login == self._stored:
            return
        self._stored = login
        if login is None:
            await asyncio.to_thread(self._past.forget, self._config)
        else:
            await asyncio.to_thread(self._past.remember, self._config, login)
