"""By what a host is told from others: its host keys. Decisions about its projects are kept under them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

from ...command_line.model import ConnectionOptions
from ...command_line.transport_choice import TransportKind, host_label, ssh_target, transport_kind
from ...config.projects import HostIdentity


async def host_identity(connection: ConnectionOptions) -> HostIdentity:
    """Return the identity of the host of these options. It is asked after the login, so known_hosts has its key, unless
    the person told ssh to keep none. Raises CcbError."""
    kind = transport_kind(connection)
    if kind is TransportKind.LOCAL:
        keys = ["local"]
    elif kind in (TransportKind.ASYNCSSH, TransportKind.OPENSSH):
        keys = await _ssh_keys(connection)
    else:
        target = connection.target.login if connection.target else ""
        command = f"{connection.ssh_command or connection.transport} {target}"
        keys = [f"command {hashlib.sha256(command.encode()).hexdigest()}"]  # it may contain a password
    place = f" container {connection.container}" if connection.container else ""
    return HostIdentity(host_label(connection), tuple(f"{key}{place}" for key in keys))


async def _ssh_keys(connection: ConnectionOptions) -> list[str]:
    from ccb.tunnel.login.host_keys import KnownKeys, look_up
    from ccb.tunnel.ssh_config.resolve import resolve
    from ccb.tunnel.transports.command_line import words_of

    words = words_of(connection.ssh_command or "ssh", "--ssh-command")
    trust = (await resolve(ssh_target(connection), words)).trust
    known = await asyncio.to_thread(look_up, trust.known_hosts, trust.name, trust.port)

    def fingerprints(found: KnownKeys) -> Iterator[str]:
        yield from (key.get_fingerprint() for key in found.trusted)
        yield from (f"authority {key.get_fingerprint()} {trust.name}" for key in found.authorities)

    return list(dict.fromkeys(fingerprints(known))) or [f"name {trust.name}:{trust.port}"]
