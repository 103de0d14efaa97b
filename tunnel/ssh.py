"""The SSH transport, on asyncssh: one connection, authenticated as ssh would, on which commands run as pipes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from .errors import AuthFailed, ConnectionLost, Dropped, HostKeyError, Unreachable
from .host_keys import KnownKeys, judge, look_up, remember
from .login import Prompts
from .plain_text import neutralise
from .ssh_config import HostConfig, SshTarget, resolve
from .stderr_tail import StderrTail

if TYPE_CHECKING:
    import asyncssh

    from .ssh_client import LoginClient

log = logging.getLogger(__name__)

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 2  # asyncssh gives up after (count + 1) intervals: 15 s
LOGIN_TIMEOUT_S = 180  # a push to a phone takes its time
_CLOSE_S = 5.0
_MAX_JUMPS = 8


async def connect(target: SshTarget, prompts: Prompts) -> SshTransport:
    """Log in to `target` with what `ssh -G` resolves for it; jump hosts are logged in to one by one, each host key checked.

    Raises Unreachable, AuthFailed, HostKeyError, ConfigError.
    """
    loading = asyncio.create_task(asyncio.to_thread(_load))
    try:
        config = await resolve(target)
        early = await _early_socket(target, config)
    finally:
        await loading
    hops: list[asyncssh.SSHClientConnection] = []
    try:
        tunnel: asyncssh.SSHClientConnection | None = None
        for hop in _jumps(config, target):
            hop_config = await resolve(hop)
            tunnel = await _log_in(hop, hop_config, prompts, tunnel, None)
            hops.append(tunnel)
        connection = await _log_in(target, config, prompts, tunnel, early)
    except BaseException:
        if early is not None:
            early.close()
        await _close_all(hops)
        raise
    return SshTransport(target.shown, connection, hops)


def _load() -> None:
    """Import asyncssh while the network is busy."""
    import asyncssh

    assert asyncssh


def _jumps(config: HostConfig, target: SshTarget) -> list[SshTarget]:
    if config.proxy_jump is None:
        return []
    hops = []
    for spec in config.proxy_jump.split(",")[:_MAX_JUMPS]:
        user, _, rest = spec.strip().removeprefix("ssh://").rpartition("@")
        host, port = rest, None
        if rest.startswith("["):
            host, _, tail = rest[1:].partition("]")
            port = int(tail[1:]) if tail[1:].isdigit() else None
        elif rest.count(":") == 1:
            host, _, tail = rest.partition(":")
            port = int(tail) if tail.isdigit() else None
        kept = tuple(
            option for option in target.options if option.lower().startswith(("userknownhosts", "stricthostkey"))
        )
        hops.append(SshTarget(host, user or None, port, target.identities, kept))
    return hops


async def _early_socket(target: SshTarget, config: HostConfig) -> socket.socket | None:
    """A TCP connection made while asyncssh is still being imported; None where a proxy makes the connection."""
    if config.proxy_jump is not None or config.proxy_command is not None:
        return None
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(config.family, socket.AF_UNSPEC)
    loop = asyncio.get_running_loop()
    where = f"{config.hostname} port {config.port}"
    try:
        found = await asyncio.wait_for(
            loop.getaddrinfo(config.hostname, config.port, family=family, type=socket.SOCK_STREAM),
            config.connect_timeout_s,
        )
    except (socket.gaierror, UnicodeError) as error:
        raise Unreachable(
            f"the name {config.hostname} does not resolve",
            evidence=str(error),
            do="Check the spelling, or the network.",
        ) from error
    except TimeoutError:
        raise Unreachable(f"the name {config.hostname} did not resolve in time", do="Check the network.") from None
    last: OSError | TimeoutError = OSError("no address")
    for kind, _, proto, _, address in found:
        sock = socket.socket(kind, socket.SOCK_STREAM, proto)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if config.bind_address:
                sock.bind((config.bind_address, 0))
            await asyncio.wait_for(loop.sock_connect(sock, address), config.connect_timeout_s)
        except (OSError, TimeoutError) as error:
            sock.close()
            last = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    if isinstance(last, TimeoutError):
        raise Unreachable(
            f"{where} did not answer in {config.connect_timeout_s:.0f} s",
            evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
            do="Check host and port; `-o ConnectTimeout=30` waits longer.",
        ) from last
    raise Unreachable(
        f"cannot reach {where}",
        evidence=str(last),
        do="Check that the host is up and its SSH server listens on that port.",
    ) from last


async def _log_in(
    target: SshTarget,
    config: HostConfig,
    prompts: Prompts,
    tunnel: asyncssh.SSHClientConnection | None,
    sock: socket.socket | None,
) -> asyncssh.SSHClientConnection:
    name = config.host_key_alias or config.hostname
    port = 22 if config.host_key_alias else config.port
    known = await asyncio.to_thread(look_up, config.known_hosts, name, port)
    store = config.known_hosts[0]
    for attempt in (1, 2):
        client, connection, error = await _try(target, config, prompts, known, tunnel, sock)
        if connection is not None:
            return connection
        if client.offered is None or attempt == 2:
            raise error if error is not None else AssertionError("neither a connection nor an error")
        info = judge(known, client.offered, name, port, store)
        if config.strict_host_keys in ("yes", "true"):
            raise HostKeyError(
                f"the host key of {name} is not known and StrictHostKeyChecking is yes",
                evidence=f"It shows {info.algorithm} {info.fingerprint}.",
                do=f"Add the key to {store}.",
            )
        if config.strict_host_keys not in ("no", "accept-new") and not await prompts.confirm_host_key(info):
            raise HostKeyError(
                f"the host key of {name} was not accepted", evidence=info.fingerprint, do="Nothing was stored."
            )
        remember(store, name, port, client.offered, hashed=config.hash_known_hosts)
        known = KnownKeys((client.offered,), known.authorities, known.revoked, known.places)
        if sock is not None:
            sock = await _early_socket(target, config)
    raise AssertionError("unreachable")


async def _try(
    target: SshTarget,
    config: HostConfig,
    prompts: Prompts,
    known: KnownKeys,
    tunnel: asyncssh.SSHClientConnection | None,
    sock: socket.socket | None,
) -> tuple[LoginClient, asyncssh.SSHClientConnection | None, Exception | None]:
    """One login. An unverified host key is no exception here: it is in `client.offered`."""
    import asyncssh
    from asyncssh.packet import PacketDecodeError

    from .ssh_client import LoginClient

    client = LoginClient(target.shown, config, prompts)
    await asyncio.to_thread(client.load_keys)
    trusted = (known.trusted, known.authorities, known.revoked, (), (), (), ())
    options = asyncssh.SSHClientConnectionOptions(
        config=None,
        known_hosts=lambda host, address, port: trusted,
        host_key_alias=config.host_key_alias,
        username=config.user,
        client_keys=None,  # keys and agent are the client's: asyncssh has no agent without key files
        agent_path=None,
        compression_algs=["zlib@openssh.com", "none"] if config.compression else None,
        env=dict(config.set_env) or None,
        proxy_command=["/bin/sh", "-c", config.proxy_command] if config.proxy_command and tunnel is None else None,
        keepalive_interval=KEEPALIVE_S,
        keepalive_count_max=KEEPALIVE_COUNT,
        login_timeout=LOGIN_TIMEOUT_S,
    )
    try:
        connection, _ = await asyncssh.create_connection(
            lambda: client,
            config.hostname if sock is None else "",
            config.port if sock is None else (),
            options=asyncssh.SSHClientConnectionOptions(options=options, host=config.hostname, port=config.port)
            if sock is not None
            else options,
            sock=sock,
            tunnel=tunnel if tunnel is not None else (),
        )
    except asyncssh.HostKeyNotVerifiable as error:
        if client.offered is not None:
            return client, None, HostKeyError(f"the host key of {target.shown} cannot be verified", evidence=str(error))
        raise HostKeyError(
            f"the host key of {target.shown} cannot be verified",
            evidence=neutralise(str(error)),
            do="Check known_hosts.",
        ) from error
    except asyncssh.PermissionDenied as error:
        raise AuthFailed(
            f"{target.shown} refused the login",
            evidence=client.tried() + "\n" + neutralise(str(error)),
            do=f"Make `ssh {target.shown}` work first: it needs a key in the host's authorized_keys, an agent or a password.",
        ) from error
    except (asyncssh.Error, PacketDecodeError, OSError, TimeoutError) as error:
        garbled = asyncssh.ProtocolError | asyncssh.MACError | asyncssh.CompressionError | PacketDecodeError
        dropped = isinstance(error, asyncssh.ConnectionLost | ConnectionResetError | BrokenPipeError | garbled)
        raise (Dropped if dropped else Unreachable)(
            f"no SSH connection to {target.shown} ({config.hostname} port {config.port})",
            evidence=neutralise(str(error) or type(error).__name__),
            do="Check that an SSH server listens there.",
        ) from error
    finally:
        await client.close()
    return client, connection, None


class SshTransport:
    """An authenticated connection (and the jump hosts under it)."""

    def __init__(
        self, name: str, connection: asyncssh.SSHClientConnection, hops: list[asyncssh.SSHClientConnection]
    ) -> None:
        self._name = name
        self._connection = connection
        self._hops = hops

    @property
    def name(self) -> str:
        return self._name

    @property
    def connection(self) -> asyncssh.SSHClientConnection:
        """The connection to the host itself, for who looks into it."""
        return self._connection

    async def execute(self, command: str) -> SshPipe:
        import asyncssh

        try:
            process = await self._connection.create_process(command, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if not self.alive:
                raise _lost(self._name, error) from error
            raise Unreachable(
                f"{self._name} refused to run a command",
                evidence=neutralise(error.reason),
                do="Its SSH server allows no session (MaxSessions 0, or all of them are in use).",
            ) from error
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error
        return SshPipe(self._name, process)

    @property
    def alive(self) -> bool:
        return not self._connection.is_closed()

    def abort(self) -> None:
        for connection in (self._connection, *reversed(self._hops)):
            connection.abort()

    async def close(self) -> None:
        await _close_all([self._connection, *reversed(self._hops)])


class SshPipe:
    """One exec channel."""

    def __init__(self, name: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._name = name
        self._process = process
        self._tail = StderrTail()
        self._stderr_task = asyncio.create_task(self._drain_stderr())

    async def _drain_stderr(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            await self._tail.drain(self._process.stderr.read)

    async def read(self, n: int = 65536) -> bytes:
        import asyncssh

        try:
            return await self._process.stdout.read(n)
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error

    async def write(self, data: bytes) -> None:
        import asyncssh

        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (asyncssh.Error, OSError) as error:
            raise _lost(self._name, error) from error

    async def close(self) -> None:
        self._process.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait_closed(), _CLOSE_S)
        self._stderr_task.cancel()
        await asyncio.gather(self._stderr_task, return_exceptions=True)

    async def exit_status(self) -> int | None:
        await self._process.wait_closed()
        status = self._process.exit_status
        return status if status is not None and status >= 0 else None  # asyncssh says -1 for a signal

    def stderr_tail(self) -> str:
        return self._tail.text()


def _lost(name: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {name} was lost", evidence=neutralise(str(error) or type(error).__name__))


async def _close_all(connections: list[asyncssh.SSHClientConnection]) -> None:
    for connection in connections:
        connection.close()
        try:
            await asyncio.wait_for(connection.wait_closed(), _CLOSE_S)
        except TimeoutError:
            connection.abort()
