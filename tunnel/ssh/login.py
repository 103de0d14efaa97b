"""One login over SSH: the host proves itself, then the person does."""

from __future__ import annotations

import asyncio
import dataclasses
import fnmatch
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

from ..errors import AuthFailed, ConnectError, Dropped, HostKeyError, Unreachable
from ..login.expired import expired
from ..login.host_keys import KnownKeys, judge, look_up, read_revoked, remember, revoked
from ..login.prompter import NobodyToAsk, Prompts, tell_once
from ..login.server_messages import Overheard, taken_by_nobody, takes_nobody
from ..plain_text import neutralise
from ..ssh_config.ssh_command import ssh_by_hand

if TYPE_CHECKING:
    import asyncssh

    from ..ssh_config.resolve import HostConfig, SshTarget
    from .client import LoginClient
    from .jumps import Hop
    from .proxy_command import FirstLine

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 2  # asyncssh gives up after (count + 1) intervals: 15 s
LOGIN_TIMEOUT_S = 300  # a push to a phone takes its time
_NEVER_SENT = ("ANTHROPIC_*", "CLAUDE_CODE_OAUTH_TOKEN", "CCB_*")


async def log_in(
    hop: Hop,
    prompts: Prompts,
    tunnel: asyncssh.SSHClientConnection | None,
    line: FirstLine | None = None,
    sock: Overheard | None = None,
    through: SshTarget | None = None,
) -> asyncssh.SSHClientConnection:
    """An authenticated connection to `hop` through `tunnel`, to the jump host `through`, or over `sock`, which
    `line` has opened.

    Raises Unreachable, AuthFailed, HostKeyError, ConfigError.
    """
    config, listener = hop[1], prompts
    if config.batch:
        prompts = NobodyToAsk(prompts.memory)
    name = config.host_key_alias or config.hostname
    port = 22 if config.host_key_alias else config.port
    anybody = config.trust_loopback and config.host_key_alias is None and _is_loopback(sock)
    try:
        known = await asyncio.to_thread(look_up, config.known_hosts, name, port)
        withdrawn = await asyncio.to_thread(read_revoked, config.revoked)
        known = dataclasses.replace(known, revoked=known.revoked + withdrawn)
        certificates = bool(known.authorities)
        accepted = False
        while True:
            attempt = _Attempt(hop, prompts, known, tunnel, line, sock, certificates=certificates)
            connection = await attempt.run(through)
            if connection is not None:
                return connection
            shown = attempt.client.offered
            if shown is None:
                certificates = False  # no authority vouches for the certificate: the key alone may be known, as for ssh
            elif accepted:
                raise attempt.error
            else:
                if not anybody:
                    await _accept(hop, prompts, listener, known, shown)
                accepted = True
                known = dataclasses.replace(known, trusted=(shown,))
            if line is not None:
                sock = await line.open()
    except BaseException:
        if sock is not None:
            sock.close()
        raise


def _is_loopback(sock: socket.socket | None) -> bool:
    """Whether `sock` leads to this machine; nobody knows where a proxy command or a jump host leads."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return ipaddress.ip_address(sock.getpeername()[0].partition("%")[0]).is_loopback


async def _accept(hop: Hop, prompts: Prompts, listener: Prompts, known: KnownKeys, shown: asyncssh.SSHKey) -> None:
    """Decide on a key that is not on file, as StrictHostKeyChecking says. `listener` hears what is to be said, also where
    `prompts` may ask nothing. Raises HostKeyError."""
    config = hop[1]
    name = config.host_key_alias or config.hostname
    port = 22 if config.host_key_alias else config.port
    store = config.known_hosts[0]
    strict = config.strict_host_keys
    accepted = prompts.memory.accepted
    for each in known.unread:
        tell_once(listener, neutralise(each))
    try:
        info = judge(known, shown, name, port, store)
    except HostKeyError as error:
        if strict == "no" and shown not in known.revoked:
            error.evidence += (
                "\nStrictHostKeyChecking is no: ssh would connect without passwords; ccb does not connect."
            )
        raise
    if strict == "yes":
        raise HostKeyError(
            f"the host key of {name} is not known and StrictHostKeyChecking is yes",
            evidence=f"It shows {info.algorithm} {info.fingerprint}.",
            do=f"Add the key to {store}.",
        )
    if (name, port, shown.public_data) in accepted:
        return
    if strict not in ("no", "accept-new") and not await prompts.confirm_host_key(info):
        raise HostKeyError(
            f"the host key of {name} was not accepted",
            evidence=info.fingerprint,
            do="Nothing was stored. Ask the host's administrator for the right fingerprint.",
        )
    try:
        remember(store, name, port, shown, hashed=config.hash_known_hosts)
    except OSError as error:  # a read-only home, a container: ssh connects, too
        accepted.add((name, port, shown.public_data))
        why = f"could not be stored in {store}: {error.strerror}"
        tell_once(listener, neutralise(f"The host key of {name} {why}. It is trusted for this run only."))


class _Attempt:
    """One connection up to the end of the login. `error` is why the host was not trusted when `run` gave None."""

    def __init__(
        self,
        hop: Hop,
        prompts: Prompts,
        known: KnownKeys,
        tunnel: asyncssh.SSHClientConnection | None,
        line: FirstLine | None,
        sock: Overheard | None,
        *,
        certificates: bool,
    ) -> None:
        from .client import LoginClient

        self.client: LoginClient = LoginClient(hop[0].shown, hop[1], prompts)
        self.error: ConnectError = HostKeyError(f"the host key of {hop[0].shown} cannot be verified")
        self._target, self._config = hop
        self._prompts = prompts
        self._known = known
        self._tunnel = tunnel
        self._line = line
        self._sock = sock
        self._certificates = certificates

    async def run(self, through: SshTarget | None) -> asyncssh.SSHClientConnection | None:
        """The connection; None when the host did not prove itself with what is trusted."""
        import asyncssh
        from asyncssh.packet import PacketDecodeError

        await asyncio.to_thread(self.client.load_keys)
        waiting = asyncio.create_task(self._connect())
        try:
            if through is not None:
                await self._way_opened(waiting, through)
            await self._greeted(waiting)
            return await waiting
        except asyncssh.HostKeyNotVerifiable as error:
            said = neutralise(str(error))
            if "revoked" in said:
                raise revoked(self._target.shown, said) from error
            self.error = HostKeyError(
                f"the host key of {self._target.shown} cannot be verified", evidence=said, do="Check known_hosts."
            )
            if self.client.offered is None and not self._certificates:
                raise self.error from error
            return None
        except asyncssh.ChannelOpenError as error:
            assert through is not None
            raise self._no_way_on(error, through) from error
        except asyncssh.PermissionDenied as error:
            raise self._refused(neutralise(str(error))) from error
        except (asyncssh.Error, PacketDecodeError, OSError, TimeoutError) as error:
            no_way = self._line is not None and await self._line.settle()
            raise self._failed(error, no_way=no_way) from error
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                waiting.result().abort()  # it was there in this very moment, and is nobody's
            raise
        finally:
            if not waiting.done():
                waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await self.client.close()

    async def _way_opened(self, waiting: asyncio.Task[asyncssh.SSHClientConnection], through: SshTarget) -> None:
        """Wait until the jump host has reached the next one, as long as it may take to reach it from here. Raises Unreachable."""
        opened = asyncio.create_task(self.client.opened.wait())
        patience = self._config.connect_timeout_s
        try:
            done, _ = await asyncio.wait((opened, waiting), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if not done:
            where = f"{self._config.hostname} port {self._config.port}"
            raise Unreachable(
                f"the jump host {through.shown} got no answer from {where} in {patience:.0f} s",
                evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
                do="Check host and port as the jump host sees them; a larger ConnectTimeout waits longer.",
            )

    async def _greeted(self, waiting: asyncio.Task[asyncssh.SSHClientConnection]) -> None:
        """Wait until the server asks for a login, or until there is nothing to wait for. Raises TimeoutError. A proxy command may
        itself ask somebody for something, so it has as long as the whole login."""
        if self._config.proxy_command is not None and self._tunnel is None:
            return
        greeted = asyncio.create_task(self.client.greeted.wait())
        try:
            patience = self._config.greeting_s
            done, _ = await asyncio.wait((greeted, waiting), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            greeted.cancel()
        if not done:
            raise TimeoutError(f"It accepted the connection, but said too little in {patience:.0f} s to log in.")

    async def _connect(self) -> asyncssh.SSHClientConnection:
        import asyncssh

        from .algorithms import chosen, host_key_algorithms

        config, known = self._config, self._known
        trusted = (known.trusted, known.authorities, known.revoked, (), (), (), ())
        stored = [kind for key in known.trusted for kind in key.sig_algorithms]
        interval, count = _keepalive(config)
        rekey_bytes, rekey_seconds = config.rekey
        options = asyncssh.SSHClientConnectionOptions(
            config=None,
            known_hosts=lambda host, address, port: trusted,
            host_key_alias=config.host_key_alias,
            username=config.user,
            client_keys=None,  # keys and agent are the client's: asyncssh has no agent without key files
            agent_path=None,
            compression_algs=["zlib@openssh.com", "none"] if config.compression else None,
            encryption_algs=chosen(config.algorithms, "ciphers") or (),
            mac_algs=chosen(config.algorithms, "macs") or (),
            kex_algs=chosen(config.algorithms, "kexalgorithms") or (),
            signature_algs=chosen(config.algorithms, "pubkeyacceptedalgorithms") or (),
            server_host_key_algs=host_key_algorithms(config.algorithms, stored, certificates=self._certificates),
            preferred_auth=config.methods or (),
            public_key_auth=config.public_key,
            password_auth=config.password,
            kbdint_auth=config.challenges,
            env={**_sent(config.send_env), **config.set_env} or None,
            rekey_bytes=rekey_bytes or (),
            rekey_seconds=rekey_seconds or (),
            keepalive_interval=interval,
            keepalive_count_max=count,
            login_timeout=LOGIN_TIMEOUT_S,
        )
        connection, _ = await asyncssh.create_connection(
            lambda: self.client,
            config.hostname,
            config.port,
            config=None,  # else asyncssh reads ~/.ssh/config again
            options=options,
            sock=self._sock,
            tunnel=self._tunnel if self._tunnel is not None else (),
        )
        return connection

    def _refused(self, said: str) -> AuthFailed:
        name = self._target.shown
        if self.client.gave_up and not isinstance(self._prompts, NobodyToAsk):
            return AuthFailed(
                f"the login to {name} was given up",
                evidence=self.client.tried(),
                do="Answer what it asks, or let a key or an agent log in.",
            )
        lines, wanted = [self.client.tried()], " or ".join(self.client.wanted)
        more = self.client.key_accepted
        if more:
            lines.append("The key was accepted, but this server wants more than a key.")
        if "GSSAPIAuthentication" in self._config.no_effect and not wanted and not self.client.asked_for_keys:
            lines.append("GSSAPIAuthentication is set: only --transport ssh logs in by it.")
        if wanted and isinstance(self._prompts, NobodyToAsk):
            lines.append(f"The server wants {wanted}, and nobody can be asked for it here (headless, or BatchMode).")
            if more or not self.client.asked_for_keys:
                return AuthFailed(
                    f"{name} refused the login",
                    evidence="\n".join(lines),
                    do="Log in from a ccb in a terminal, where it can be asked for, or let the server take a key alone.",
                )
        return AuthFailed(
            f"{name} refused the login",
            evidence="\n".join([*lines, said]),
            do=f"Make `{ssh_by_hand(self._target)}` work first: it needs a key in the host's authorized_keys, an agent or a "
            "password, and an account that is not locked or expired. Where it works already, add `--transport ssh`.",
        )

    def _no_way_on(self, error: asyncssh.ChannelOpenError, through: SshTarget) -> ConnectError:
        """The jump host was reached, but does not lead further."""
        from asyncssh import OPEN_ADMINISTRATIVELY_PROHIBITED

        said = neutralise(error.reason)
        where = f"{self._config.hostname} port {self._config.port}"
        if error.code == OPEN_ADMINISTRATIVELY_PROHIBITED:
            return Unreachable(
                f"the jump host {through.shown} does not lead to {where}",
                evidence=f"It refuses to forward: {said}",
                do=f"Name another jump host, have forwarding allowed there (AllowTcpForwarding, PermitOpen), or use "
                f"-o ProxyCommand='{ssh_by_hand(through, command='nc %h %p')}'.",
            )
        return Unreachable(
            f"the jump host {through.shown} cannot reach {where}",
            evidence=said,
            do="Check host and port as the jump host sees them, and that an SSH server listens there.",
        )

    def _failed(self, error: Exception, *, no_way: bool) -> ConnectError:
        """`no_way`: the proxy command has failed, and would again."""
        import asyncssh
        from asyncssh.packet import PacketDecodeError

        name = self._target.shown
        said = neutralise(str(error) or type(error).__name__)
        words = self._line.last_words() if self._line is not None else ""
        if words:
            said += f"\nThe ProxyCommand said: {words}"
        if "too many authentication failures" in said.lower():
            return AuthFailed(
                f"{name} ended the login after too many keys (MaxAuthTries)",
                evidence=f"{self.client.tried()}\n{said}",
                do="Say which key is meant: -i KEY -o IdentitiesOnly=yes (or both in your ssh_config).",
            )
        if too_old := expired(name, self.client.said):
            return too_old
        if self.client.asked:
            return AuthFailed(
                f"{name} closed the connection during the login",
                evidence=f"{self.client.tried()}\n{said}",
                do="Log in again; a server waits for LoginGraceTime (2 minutes if nothing else is said).",
            )
        garbled = asyncssh.ProtocolError | asyncssh.MACError | asyncssh.CompressionError | PacketDecodeError
        dropped = isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError | garbled)
        where = f"({self._config.hostname} port {self._config.port})"
        if dropped and not no_way and self._sock is not None and not self._sock.spoke_ssh:
            first = self._sock.said
            blamed = not first and bool(words)  # a pipeline of which the first command failed ends well
            if takes_nobody(first) and not blamed:
                heard = f"It said: {first}" if first else "It said nothing."
                if self._line is not None and self._line.runs:
                    heard += (
                        f"\nThe ProxyCommand said: {words}" if words else "\nThe ProxyCommand said nothing, either."
                    )
                return taken_by_nobody(f"{name} {where}", heard)
            no_way = blamed
            if first:
                said += f"\nIt said: {first}"
        return (Dropped if dropped and not no_way else Unreachable)(
            f"no SSH connection to {name} {where}",
            evidence=said,
            do="Mend the ProxyCommand until it connects." if no_way else "Check that an SSH server listens there.",
        )


def _keepalive(config: HostConfig) -> tuple[int, int]:
    """Interval and count for asyncssh: ours, or what the person set where that gives up earlier."""
    if config.alive is None:
        return KEEPALIVE_S, KEEPALIVE_COUNT
    interval, count = config.alive
    total = min(KEEPALIVE_S * (KEEPALIVE_COUNT + 1), interval * count)
    interval = min(KEEPALIVE_S, interval)
    return interval, max(1, total // interval - 1)


def _sent(patterns: tuple[str, ...]) -> dict[str, str]:
    """Variables that SendEnv names; never one that holds a credential for the model."""
    return {
        name: value
        for name, value in os.environ.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NEVER_SENT)
    }
