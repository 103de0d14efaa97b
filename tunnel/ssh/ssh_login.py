"""Log in to one host: verify the host key, then authenticate the person."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial

import asyncssh
from asyncssh.packet import PacketDecodeError

from ..errors import ConfigError, ConnectError, HostKeyError
from ..plain_text import neutralise
from ..ssh_config.host_config import HostTrust, LoginMethods
from ..transports.host_keys import KnownKeys, judge, look_up, read_revoked, remember
from ..transports.login_prompts import NobodyToAsk, Prompts, tell_once
from .asyncssh_options import connection_options
from .carrier import Carrier, Hop
from .login_client import (
    FailedLogin,
    LoginClient,
    broken_off,
    no_answer_through,
    not_reached_through,
    refused,
    untrusted,
)
from .past_logins import PastLogin
from .pipelined_connection import VERSION, PipelinedConnection, open_connection
from .pipelined_login import Pipelining


async def log_in(
    hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining | None = None, *, ahead: bool = False
) -> PipelinedConnection:
    """Return an authenticated connection to `hop` over `carrier`. Raise Unreachable, AuthFailed, HostKeyError,
    ConfigError, which is also raised for an asyncssh in which a server could fill the memory.

    If a login that signed at once fails, whatever the reason, a new connection logs in step by step. With `ahead`, the
    connection may be returned before the end of the login, of which `pipelining` knows.
    """
    pipelining = pipelining or Pipelining(hop.config, None)
    if not asyncssh.__version__.startswith(VERSION):
        raise ConfigError(
            "ccb's own SSH does not know this version of asyncssh",
            evidence=f"It is asyncssh {asyncssh.__version__}; the limits against a hostile host are for {VERSION}x.",
            do="Connect with ssh itself: --transport ssh.",
        )
    await pipelining.recall()
    try:
        return await _log_in(hop, prompts, carrier, pipelining, ahead=ahead and pipelining.ahead)
    except ConnectError as error:
        if not pipelining.tried:
            raise
        await pipelining.forget(error.what)
    await carrier.reopen()
    return await _log_in(hop, prompts, carrier, pipelining)


async def _log_in(
    hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining, *, ahead: bool = False
) -> PipelinedConnection:
    """Do what `log_in` does, once.

    A host key that is not trusted yet ends the first connection; once it is accepted, a second one is made.
    """
    trust, listener = hop.config.trust, prompts
    if hop.config.methods.batch:
        prompts = NobodyToAsk(prompts.memory)
    try:
        known = await known_keys(trust)
        certificates = bool(known.authorities)
        accepted = False
        while True:
            attempt = _Attempt(hop, prompts, carrier, pipelining, ahead=ahead)
            found = await attempt.run(known, certificates=certificates)
            if isinstance(found, PipelinedConnection):
                offered, asked = attempt.client.keys.offered, attempt.client.asked
                succeeded = partial(pipelining.succeeded, found, offered, asked=asked)
                if found.ahead:
                    pipelining.under_way(found, succeeded, attempt.banner)
                else:
                    await succeeded()
                return found
            shown = attempt.client.shown_key
            if shown is None:
                certificates = False  # no authority vouches for the certificate, but known_hosts may have its plain key
            elif accepted:
                raise found
            else:
                await accept_key(trust, known, shown, prompts, listener)
                accepted = True
                known = dataclasses.replace(known, trusted=(shown,))
            await carrier.reopen()
    except BaseException:
        carrier.abandon()
        raise


class _Attempt:
    """One connection up to the end of the login."""

    def __init__(self, hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining, *, ahead: bool) -> None:
        self.client = LoginClient(hop.target.shown, hop.config, prompts)
        self.client.banner_before = pipelining.banner
        self._hop = hop
        self._carrier = carrier
        self._pipelining = pipelining
        self._ahead = ahead
        self._failed = FailedLogin(hop, self.client, carrier, prompts)

    def banner(self) -> str:
        """Return what the server has said."""
        return self.client.record.banner

    async def run(self, known: KnownKeys, *, certificates: bool) -> PipelinedConnection | ConnectError:
        """Return the connection, or the error if the host did not prove itself with what is trusted.

        Raise that error if no other key or certificate is left to try, and any other error that prevents the login.
        """
        options = connection_options(self._hop.config, known, certificates=certificates)
        at_once = await self._prepare(options)  # before the time of the server counts
        connecting = asyncio.create_task(self._connect(options, at_once))
        through = self._carrier.through
        try:
            if through is not None:
                route = self._hop.config.route
                if not await _happens(self.client.opened, connecting, route.connect_timeout_s):
                    raise no_answer_through(through, self._failed)
            await self._greeted(connecting)
            return await connecting
        except asyncssh.HostKeyNotVerifiable as error:
            found = untrusted(self._failed, error)
            if self.client.shown_key is None and not certificates:
                raise found from error
            return found
        except asyncssh.ChannelOpenError as error:
            assert through is not None
            raise not_reached_through(through, self._failed, error) from error
        except asyncssh.PermissionDenied as error:
            raise refused(self._failed, error) from error
        except (asyncssh.Error, PacketDecodeError, OSError, TimeoutError) as error:
            raise await broken_off(self._failed, error) from error
        except asyncio.CancelledError:
            if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
                connecting.result().abort()  # the connection was made just now, but nobody will use it
            raise
        finally:
            if not connecting.done():
                connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            await self.client.keys.close()

    async def _greeted(self, connecting: asyncio.Task[PipelinedConnection]) -> None:
        """Wait until the server asks for a login. Raise TimeoutError after `greeting_s`.

        A proxy command may ask the person something itself, so it has the time of the whole login.
        """
        route = self._hop.config.route
        if route.proxy_command is not None and self._carrier.tunnel is None:
            return
        if not await _happens(self.client.greeted, connecting, route.greeting_s):
            raise TimeoutError(
                f"It accepted the connection, but did not ask for a login within {route.greeting_s:.0f} s."
            )

    async def _prepare(
        self, options: asyncssh.SSHClientConnectionOptions
    ) -> tuple[PastLogin, asyncssh.SSHKeyPair] | None:
        """Load the keys. Return the last login and the key that it took, if that key can sign at once."""
        try:
            await asyncio.to_thread(self.client.keys.load)
            return await self._remembered(options)
        except BaseException:
            await self.client.keys.close()
            raise

    async def _connect(
        self, options: asyncssh.SSHClientConnectionOptions, at_once: tuple[PastLogin, asyncssh.SSHKeyPair] | None
    ) -> PipelinedConnection:
        config, carrier, pipelining = self._hop.config, self._carrier, self._pipelining
        stream = carrier.sock or carrier.tunnel
        assert stream is not None
        try:
            return await open_connection(
                lambda: self.client, config.hostname, config.port, options, stream, at_once, ahead=self._ahead
            )
        finally:
            pipelining.tried = self.client.signed_at_once
            pipelining.banner = self.client.record.banner

    async def _remembered(
        self, options: asyncssh.SSHClientConnectionOptions
    ) -> tuple[PastLogin, asyncssh.SSHKeyPair] | None:
        pipelining = self._pipelining
        if pipelining.last is None:
            return None
        if not _prefers_keys(self._hop.config.methods):
            pipelining.why_not = "your ssh configuration does not begin with a key"
            return None
        pair = await self.client.keys.remembered(pipelining.last, options.signature_algs)
        if isinstance(pair, str):
            pipelining.why_not = pair
            return None
        return pipelining.last, pair


def _prefers_keys(methods: LoginMethods) -> bool:
    """Return whether a login begins with a key (PubkeyAuthentication, PreferredAuthentications)."""
    ours = ("publickey", "password", "keyboard-interactive")
    order = [name for name in (methods.preferred or "publickey").split(",") if name in ours]
    return methods.public_key and order[:1] == ["publickey"]


async def _happens(event: asyncio.Event, connecting: asyncio.Task[PipelinedConnection], timeout: float) -> bool:
    """Wait for `event` or the end of `connecting`. Return False if neither comes within `timeout` seconds."""
    waiting = asyncio.create_task(event.wait())
    try:
        done, _ = await asyncio.wait((waiting, connecting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return bool(done)


async def known_keys(trust: HostTrust) -> KnownKeys:
    """Return what known_hosts and RevokedHostKeys say about a host. Raise HostKeyError."""
    known = await asyncio.to_thread(look_up, trust.known_hosts, trust.name, trust.port)
    revoked = await asyncio.to_thread(read_revoked, trust.revoked)
    return dataclasses.replace(known, revoked=known.revoked + revoked)


async def accept_key(
    trust: HostTrust, known: KnownKeys, shown: asyncssh.SSHKey, prompts: Prompts, listener: Prompts
) -> None:
    """Decide on a key that is not in known_hosts as StrictHostKeyChecking says, and store it. Raise HostKeyError.

    `prompts` asks the person; `listener` shows warnings, also where `prompts` may ask nothing.
    """
    store = trust.known_hosts[0]
    accepted = prompts.memory.accepted
    for sentence in known.unread:
        tell_once(listener, neutralise(sentence))
    try:
        info = judge(known, shown, trust.name, trust.port, store)
    except HostKeyError as error:
        if trust.strict == "no" and shown not in known.revoked:
            error.evidence += (
                "\nStrictHostKeyChecking is no: ssh would connect without passwords; ccb does not connect."
            )
        raise
    if trust.strict == "yes":
        raise HostKeyError(
            f"the host key of {trust.name} is not known and StrictHostKeyChecking is yes",
            evidence=f"It shows {info.algorithm} {info.fingerprint}.",
            do=f"Add the key to {store}.",
        )
    if (trust.name, trust.port, shown.public_data) in accepted:
        return
    if trust.strict not in ("no", "accept-new") and not await prompts.confirm_host_key(info):
        raise HostKeyError(
            f"the host key of {trust.name} was not accepted",
            evidence=info.fingerprint,
            do="Nothing was stored. Ask the host's administrator for the right fingerprint.",
        )
    try:
        remember(store, trust.name, trust.port, shown, hashed=trust.hash_names)
    except OSError as error:  # a read-only home, a container: ssh connects there too
        accepted.add((trust.name, trust.port, shown.public_data))
        why = f"could not be stored in {store}: {error.strerror}"
        tell_once(listener, neutralise(f"The host key of {trust.name} {why}. It is trusted for this run only."))
