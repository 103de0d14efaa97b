"""The byte stream of a login: TCP, a ProxyCommand, or a jump host's connection."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError, Unreachable, UsageError
from ..plain_text import neutralise
from ..secret import without_secrets
from ..ssh_config.config_files import resolve
from ..ssh_config.host_config import HostConfig
from ..ssh_config.ssh_target import SshTarget, flags_of
from ..tasks import cancelled
from ..transports.command_transport import StderrTail, TransportProcess, start
from ..transports.login_failures import ServerMessages
from ..transports.login_prompts import Prompts

if TYPE_CHECKING:
    import asyncssh


MAX_JUMP_HOSTS = 8


class Hop(NamedTuple):
    target: SshTarget
    config: HostConfig

    def through_the_last(self) -> Hop:
        """Return this hop as it is reached through the one before it, whatever way its configuration names."""
        route = dataclasses.replace(self.config.route, proxy_jump=None, proxy_command=None)
        return self._replace(config=dataclasses.replace(self.config, route=route))


async def route(target: SshTarget, ssh: Sequence[str] = ("ssh",)) -> list[Hop]:
    """Return the hosts to log in to, each through the one before it. `ssh` are the words that start ssh: flags among
    them count. Raise ConfigError, UsageError."""
    hops = [Hop(target, await resolve(target, ssh))]
    # As ssh does, of its flags only -F is passed on to what leads to a jump host.
    of_jumps = [ssh[0], *(word for flag in flags_of(ssh) if flag[0] == "-F" for word in flag)]
    while jump := hops[0].config.route.proxy_jump:
        targets = [SshTarget.of_jump_host(spec) for spec in jump.split(",")]
        if len(hops) + len(targets) > MAX_JUMP_HOSTS + 1:
            raise ConfigError(
                f"there are more than {MAX_JUMP_HOSTS} jump hosts on the way to {target.shown}",
                evidence=f"ProxyJump of {hops[0].target.shown}: {jump}",
                do="If a jump host is its own jump host, add `ProxyJump none` for it to your ssh_config.",
            )
        configs = await asyncio.gather(*(resolve(each, of_jumps) for each in targets))
        found = [Hop(each, config) for each, config in zip(targets, configs, strict=True)]
        hops = [found[0], *(hop.through_the_last() for hop in (*found[1:], *hops))]
    return hops


_EXIT_S = 2.0  # seconds for a ProxyCommand to end after its stream has


class Carrier:
    """What carries one login: a socket to the host, or to a ProxyCommand (a child of the person's shell: asyncssh would
    take its stderr for the server's), which `close` ends; or `tunnel`, the connection to the jump host `through`."""

    def __init__(
        self,
        config: HostConfig,
        prompts: Prompts,
        *,
        tunnel: asyncssh.SSHClientConnection | None = None,
        through: SshTarget | None = None,
    ) -> None:
        self.sock: ServerMessages | None = None
        self.tunnel = tunnel
        self.through = through
        self._config = config
        self._prompts = prompts
        self._child: TransportProcess | None = None
        self._tail = StderrTail()
        self._listening: asyncio.Task[None] | None = None
        self._askpass = AsyncExitStack()

    async def open(self) -> None:
        """Open a new stream for an attempt; a tunnel can be used again as it is. Raise Unreachable."""
        if self.tunnel is not None:
            return
        await self.close()
        command = self._config.route.proxy_command
        if command is None:
            self.sock = ServerMessages(await open_socket(self._config))
            return
        from ..transports.askpass import askpass_in

        env = without_secrets(os.environ)
        askpass = await askpass_in(self._askpass, self._prompts, env)
        argv = (env.get("SHELL") or "/bin/sh", "-c", command)  # as ssh does
        ours, its = socket.socketpair()
        try:
            with its:
                fd = its.fileno()
                child = await start(argv, command, stdin=fd, stdout=fd, env=askpass.env)
        except UsageError as error:
            ours.close()
            raise Unreachable(
                "the ProxyCommand cannot be started", evidence=error.evidence or error.what, do=f"Check {argv[0]}."
            ) from error
        except asyncio.CancelledError:
            ours.close()
            raise
        assert child.process.stderr is not None
        self.sock, self._child, self._tail = ServerMessages(ours), child, StderrTail()
        listening = self._tail.drain(child.process.stderr.read, self._prompts.banner)
        self._listening = asyncio.create_task(listening, name="stderr of a ProxyCommand")

    def abandon(self) -> None:
        if self.sock is not None:
            self.sock.close()

    async def command_failed(self) -> bool:
        """After the end of the stream: wait a moment for the ProxyCommand to end. Return whether it failed."""
        if self._child is None or self._listening is None:
            return False
        await asyncio.wait((self._listening,), timeout=_EXIT_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await self._child.exited()
        return self._child.process.returncode not in (None, 0)

    @property
    def runs_command(self) -> bool:
        return self._child is not None

    def command_output(self) -> str:
        """Return the last lines that the ProxyCommand wrote to stderr, neutralised; "" if none."""
        return neutralise(self._tail.text().strip())

    async def close(self) -> None:
        child, self._child = self._child, None
        listening, self._listening = self._listening, None
        try:
            if child is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.process.pid, signal.SIGHUP)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EXIT_S):
                        await child.exited()
        finally:
            if child is not None:
                await child.end()
            await cancelled(listening)
            await self._askpass.aclose()


_BETWEEN_ATTEMPTS_S = 1.0


async def open_socket(config: HostConfig) -> socket.socket:
    route = config.route
    where = f"{config.hostname} port {config.port}"
    addresses = await _addresses(config)
    last: OSError = OSError("no address")
    for attempt in range(route.attempts):
        if attempt:
            await asyncio.sleep(_BETWEEN_ATTEMPTS_S)
        for family, _, proto, _, address in addresses:
            try:
                sock = socket.socket(family, socket.SOCK_STREAM, proto)
            except OSError as error:
                last = error
                continue
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if route.bind_address:
                    sock.bind((route.bind_address, 0))
                async with asyncio.timeout(route.connect_timeout_s):
                    await asyncio.get_running_loop().sock_connect(sock, address)
                return sock
            except OSError as error:  # TimeoutError is one
                sock.close()
                last = error
            except asyncio.CancelledError:
                sock.close()
                raise
    if isinstance(last, TimeoutError):
        raise Unreachable(
            f"{where} did not answer in {route.connect_timeout_s:.0f} s",
            evidence="Neither accepted nor refused: a firewall, a wrong address or a host that is down.",
            do="Check host and port. `-o ConnectTimeout=30` waits longer.",
        ) from last
    reason = last.strerror or str(last)
    if last.errno and reason.startswith("Connect call failed"):  # asyncio replaces the system's text
        reason = os.strerror(last.errno)
    raise Unreachable(
        f"cannot reach {where}", evidence=reason, do="Check that the host is up and its SSH server listens there."
    ) from last


async def _addresses(config: HostConfig) -> list[tuple[Any, ...]]:
    family = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(config.route.family, socket.AF_UNSPEC)
    # A number needs no thread. One would run beside the import of asyncssh, and the first packet would wait for both.
    with suppress(socket.gaierror, UnicodeError):
        number = config.hostname.encode("ascii")  # as bytes: a text would load the codec for names
        return socket.getaddrinfo(number, config.port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    try:
        async with asyncio.timeout(config.route.connect_timeout_s):
            return await asyncio.get_running_loop().getaddrinfo(
                config.hostname, config.port, family=family, type=socket.SOCK_STREAM
            )
    except (socket.gaierror, UnicodeError) as error:
        raise Unreachable(
            f"the name {config.hostname} does not resolve",
            evidence=(error.strerror if isinstance(error, OSError) else "") or str(error),
            do="Check the spelling, or the network.",
        ) from error
    except TimeoutError:
        raise Unreachable(f"the name {config.hostname} did not resolve in time", do="Check the network.") from None
