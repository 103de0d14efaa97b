"""What a connection shows about the server, for `ccb doctor`."""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh

from ..plain_text import neutralise
from ..wire.dataclass import dataclass
from .asyncssh_transport import SshTransport
from .login_client import LoginClient
from .pipelined_connection import start_waiting

_DEADLINE_S = 10.0
_WINDOW = 64 << 10  # bytes of a command whose output nobody reads


@dataclass(frozen=True)
class LoginFacts:
    """Facts about a connection, neutralised. The last of what was `tried` to log in was accepted."""

    user: str
    server: str
    host_key: str
    cipher: str
    compression: str
    tried: str
    pipelined: str


def login_facts(transport: SshTransport) -> LoginFacts:
    connection = transport.connection
    key = connection.get_server_host_key()
    owner = connection.get_owner()

    def said(name: str) -> str:
        return neutralise(str(connection.get_extra_info(name) or ""))

    return LoginFacts(
        user=said("username"),
        server=said("server_version"),
        host_key=f"{key.get_algorithm()} {key.get_fingerprint()}" if key is not None else "",
        cipher=said("send_cipher"),
        compression=said("send_compression"),
        tried=owner.tried() if isinstance(owner, LoginClient) else "",
        pipelined=neutralise(transport.pipelining.report()),
    )


async def more_sessions(transport: SshTransport, limit: int) -> int:
    """Return how many more commands, at most `limit`, the server runs at the same time on this connection."""
    opened = await asyncio.gather(*(_one_more(transport) for _ in range(limit)), return_exceptions=True)
    running = [each for each in opened if isinstance(each, asyncssh.SSHClientProcess)]
    for process in running:
        process.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DEADLINE_S):
            await asyncio.gather(*(process.wait_closed() for process in running), return_exceptions=True)
    return len(running)


async def _one_more(transport: SshTransport) -> asyncssh.SSHClientProcess[bytes]:
    async with asyncio.timeout(_DEADLINE_S):
        return await start_waiting(transport.connection, "exec cat", _WINDOW)
