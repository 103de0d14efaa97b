"""Log in to one host: verify the host key, authenticate the person, and say what went wrong."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack, ExitStack

import asyncssh
from asyncssh import OPEN_ADMINISTRATIVELY_PROHIBITED
from asyncssh.packet import PacketDecodeError

from ..errors import AuthFailed, ConfigError, ConnectError, Dropped, HostKeyError, Unreachable
from ..plain_text import neutralise
from ..ssh_config.host_config import HostTrust
from ..ssh_config.ssh_target import SshTarget
from ..transports.host_keys import KnownKeys, judge, look_up, read_revoked, remember, revoked
from ..transports.login_failures import closed_before_login, expired, too_many_logins
from ..transports.login_prompts import NobodyToAsk, Prompts, tell_once
from .asyncssh_options import connection_options
from .carrier import Carrier, Hop
from .login_client import LoginClient
from .past_logins import PastLogin
from .pipelined_connection import VERSION, PipelinedConnection, open_connection
from .pipelined_login import Pipelining

_GARBLED = asyncssh.ProtocolError | asyncssh.MACError | asyncssh.CompressionError | PacketDecodeError
_OUR_METHODS = ("publickey", "password", "keyboard-interactive")


async def log_in(
    hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining, *, ahead: bool = False
) -> PipelinedConnection:
    """Return an authenticated connection to `hop` over `carrier`. If a login that signed at once fails, a new one goes
    step by step. With `ahead`, it may be returned before the end of the login. Raise ConnectError, ConfigError."""
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
    await carrier.open()
    return await _log_in(hop, prompts, carrier, pipelining, ahead=False)


async def _log_in(
    hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining, *, ahead: bool
) -> PipelinedConnection:
    """Log in. An unknown host key ends the first connection; once it is accepted, a second one is made."""
    trust, listener = hop.config.trust, prompts
    if hop.config.methods.batch:
        prompts = NobodyToAsk(prompts.memory)
    with ExitStack() as on_error:
        on_error.callback(carrier.abandon)
        known = await asyncio.to_thread(look_up, trust.known_hosts, trust.name, trust.port)
        also_revoked = await asyncio.to_thread(read_revoked, trust.revoked)
        known = dataclasses.replace(known, revoked=known.revoked + also_revoked)
        certificates = bool(known.authorities)
        accepted = False
        while True:
            attempt = _Attempt(hop, prompts, carrier, pipelining, ahead=ahead)
            found = await attempt.run(known, certificates=certificates)
            client = attempt.client
            if isinstance(found, PipelinedConnection):
                if found.ahead:
                    pipelining.under_way(found, client)
                else:
                    await pipelining.succeeded(found, client)
                on_error.pop_all()
                return found
            if client.shown_key is None:
                certificates = False  # no authority vouches for the certificate, but known_hosts may have its plain key
            elif accepted:
                raise found
            else:
                await _accept_key(trust, known, client.shown_key, prompts, listener)
                accepted = True
                known = dataclasses.replace(known, trusted=(client.shown_key,))
            await carrier.open()


async def _accept_key(
    trust: HostTrust, known: KnownKeys, shown: asyncssh.SSHKey, prompts: Prompts, listener: Prompts
) -> None:
    """Decide on an unknown key as StrictHostKeyChecking says, and store it. `listener` shows warnings, also where
    `prompts` may ask nothing. Raise HostKeyError."""
    store = trust.known_hosts[0]
    accepted = prompts.memory.accepted
    for sentence in known.unread:
        tell_once(listener, neutralise(sentence))
    try:
        info = judge(known, shown, trust.name, trust.port, store)
    except HostKeyError as error:
        if trust.strict == "no" and shown not in known.revoked:
            error.evidence += "\nStrictHostKeyChecking is no: ssh would connect without passwords; ccb does not."
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


async def _happens(event: asyncio.Event, connecting: asyncio.Task[PipelinedConnection], timeout: float) -> bool:
    waiting = asyncio.create_task(event.wait())
    try:
        done, _ = await asyncio.wait((waiting, connecting), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return bool(done)


class _Attempt:
    """One connection up to the end of the login, and the errors for one that failed."""

    def __init__(self, hop: Hop, prompts: Prompts, carrier: Carrier, pipelining: Pipelining, *, ahead: bool) -> None:
        self.client = LoginClient(hop.target.shown, hop.config, prompts)
        self.client.banner_before = pipelining.banner
        self._hop = hop
        self._name = hop.target.shown
        self._place = f"{hop.config.hostname} port {hop.config.port}"
        self._prompts = prompts
        self._carrier = carrier
        self._pipelining = pipelining
        self._ahead = ahead

    async def run(self, known: KnownKeys, *, certificates: bool) -> PipelinedConnection | ConnectError:
        """Return the connection, or the error if the host did not prove itself with what is trusted. Raise that error
        if no other key or certificate is left to try, and any other one."""
        options = connection_options(self._hop.config, known, certificates=certificates)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.client.keys.close)
            await asyncio.to_thread(self.client.keys.load)
            at_once = await self._remembered(options)  # before the time of the server counts
            return await self._log_in(options, at_once, certificates=certificates)

    async def _log_in(
        self,
        options: asyncssh.SSHClientConnectionOptions,
        at_once: tuple[PastLogin, asyncssh.SSHKeyPair] | None,
        *,
        certificates: bool,
    ) -> PipelinedConnection | ConnectError:
        connecting = asyncio.create_task(self._connect(options, at_once))
        through = self._carrier.through
        try:
            await self._greeted(connecting)
            return await connecting
        except asyncssh.HostKeyNotVerifiable as error:
            found = self._untrusted(error)
            if self.client.shown_key is None and not certificates:
                raise found from error
            return found
        except asyncssh.ChannelOpenError as error:
            assert through is not None
            raise self._not_reached_through(through, error) from error
        except asyncssh.PermissionDenied as error:
            raise self._refused(error) from error
        except (asyncssh.Error, PacketDecodeError, OSError) as error:
            raise await self._broken_off(error) from error
        except asyncio.CancelledError:
            if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
                connecting.result().abort()  # the connection was made just now, but nobody will use it
            raise
        finally:
            if not connecting.done():
                connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    async def _greeted(self, connecting: asyncio.Task[PipelinedConnection]) -> None:
        route, through = self._hop.config.route, self._carrier.through
        if through is not None and not await _happens(self.client.opened, connecting, route.connect_timeout_s):
            raise Unreachable(
                f"the jump host {through.shown} got no answer from {self._place} in {route.connect_timeout_s:.0f} s",
                evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
                do="Check host and port as the jump host sees them. A larger ConnectTimeout waits longer.",
            )
        # A proxy command may ask the person something itself, so it has the time of the whole login.
        limited = route.proxy_command is None or through is not None
        if limited and not await _happens(self.client.greeted, connecting, route.greeting_s):
            raise TimeoutError(
                f"It accepted the connection, but did not ask for a login within {route.greeting_s:.0f} s."
            )

    async def _remembered(
        self, options: asyncssh.SSHClientConnectionOptions
    ) -> tuple[PastLogin, asyncssh.SSHKeyPair] | None:
        pipelining, methods = self._pipelining, self._hop.config.methods
        if pipelining.last is None:
            return None
        order = [name for name in (methods.preferred or "publickey").split(",") if name in _OUR_METHODS]
        if not methods.public_key or order[:1] != ["publickey"]:
            pipelining.why_not = "your ssh configuration does not begin with a key"
            return None
        pair = await self.client.keys.remembered(pipelining.last, options.signature_algs)
        if isinstance(pair, str):
            pipelining.why_not = pair
            return None
        return pipelining.last, pair

    async def _connect(
        self, options: asyncssh.SSHClientConnectionOptions, at_once: tuple[PastLogin, asyncssh.SSHKeyPair] | None
    ) -> PipelinedConnection:
        config = self._hop.config
        stream = self._carrier.sock or self._carrier.tunnel
        assert stream is not None
        try:
            return await open_connection(
                lambda: self.client, config.hostname, config.port, options, stream, at_once, ahead=self._ahead
            )
        finally:
            self._pipelining.tried = self.client.signed_at_once
            self._pipelining.banner = self.client.record.banner

    def _untrusted(self, error: asyncssh.HostKeyNotVerifiable) -> HostKeyError:
        """Return the error for a host without proof of its identity. Raise it for a revoked key: no other is tried."""
        said = neutralise(str(error))
        if "revoked" in said:
            raise revoked(self._name, said) from error
        return HostKeyError(f"the host key of {self._name} cannot be verified", evidence=said, do="Check known_hosts.")

    def _not_reached_through(self, through: SshTarget, error: asyncssh.ChannelOpenError) -> Unreachable:
        said = neutralise(error.reason)
        if error.code == OPEN_ADMINISTRATIVELY_PROHIBITED:
            return Unreachable(
                f"the jump host {through.shown} does not lead to {self._place}",
                evidence=f"It refuses to forward: {said}",
                do=f"Name another jump host, allow forwarding there (AllowTcpForwarding, PermitOpen), or use "
                f"-o ProxyCommand='{through.shell_command(command='nc %h %p')}'.",
            )
        return Unreachable(
            f"the jump host {through.shown} cannot reach {self._place}",
            evidence=said,
            do="Check host and port as the jump host sees them, and that an SSH server listens there.",
        )

    def _refused(self, error: asyncssh.PermissionDenied) -> AuthFailed:
        record = self.client.record
        nobody_to_ask = isinstance(self._prompts, NobodyToAsk)
        if record.gave_up and not nobody_to_ask:
            return AuthFailed(
                f"the login to {self._name} was cancelled",
                evidence=self.client.tried(),
                do="Answer its questions, or log in with a key or an agent.",
            )
        lines, wanted = [self.client.tried()], " or ".join(record.wanted)
        if record.key_accepted:
            lines.append("The key was accepted, but this server wants more than a key.")
        if "GSSAPIAuthentication" in self._hop.config.no_effect and not wanted and not record.asked_for_keys:
            lines.append("GSSAPIAuthentication is set: only --transport ssh logs in by it.")
        if wanted and nobody_to_ask:
            lines.append(f"The server wants {wanted}, and nobody can be asked for it here (headless, or BatchMode).")
        nobody_answers = wanted and nobody_to_ask and (record.key_accepted or not record.asked_for_keys)
        if not nobody_answers:
            lines.append(str(error))
        return AuthFailed(
            f"{self._name} refused the login",
            evidence="\n".join(lines),
            do="Log in with ccb in a terminal, where it can ask you, or let the server accept a key alone."
            if nobody_answers
            else f"Make `{self._hop.target.shell_command()}` work first: it needs a key in the host's authorized_keys, "
            "an agent or a password, and an account that is not locked or expired. If it already works, add "
            "--transport ssh.",
        )

    async def _broken_off(self, error: Exception) -> ConnectError:
        carrier, sock = self._carrier, self._carrier.sock
        command_failed = await carrier.command_failed()
        words = carrier.command_output()
        said = neutralise(str(error) or type(error).__name__)
        if words:
            said += f"\nThe ProxyCommand said: {words}"
        if ended := self._ended_by_server(said):
            return ended
        dropped = isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError | _GARBLED)
        if dropped and not command_failed and sock is not None and not sock.spoke_ssh:
            # A pipeline has the exit status of its last command. So if only the command printed something, blame it.
            command_failed = not sock.said and bool(words)
            if too_many_logins(sock.said) and not command_failed:
                return closed_before_login(f"{self._name} ({self._place})", self._heard(sock.said, words))
            if sock.said:
                said += f"\nIt said: {sock.said}"
        what = f"no SSH connection to {self._name} ({self._place})"
        if command_failed:
            return Unreachable(what, evidence=said, do="Correct the ProxyCommand until it connects.")
        return (Dropped if dropped else Unreachable)(what, evidence=said, do="Check that an SSH server listens there.")

    def _heard(self, server: str, command: str) -> str:
        heard = f"It said: {server}" if server else "It said nothing."
        if self._carrier.runs_command:
            heard += f"\nThe ProxyCommand said{f': {command}' if command else ' nothing, either.'}"
        return heard

    def _ended_by_server(self, said: str) -> AuthFailed | None:
        evidence = f"{self.client.tried()}\n{said}"
        if "too many authentication failures" in said.lower():
            keys = len(self.client.keys.offered) > 1
            return AuthFailed(
                f"{self._name} ended the login after too many {'keys' if keys else 'failed tries'} (MaxAuthTries)",
                evidence=evidence,
                do="Choose the key: -i KEY -o IdentitiesOnly=yes (or both in your ssh_config)."
                if keys
                else f"Make `{self._hop.target.shell_command()}` work first.",
            )
        if account_expired := expired(self._name, self.client.record.banner):
            return account_expired
        if self.client.asked:
            return AuthFailed(
                f"{self._name} closed the connection during the login",
                evidence=evidence,
                do="Log in again. A server waits for LoginGraceTime, 2 minutes by default.",
            )
        return None
