"""Logins that are remembered, and what the doctor would say of the next one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncssh
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import logged_in, target

from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh.past_logins import PastLogin, PastLogins, fingerprint
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import Prompts

SIGNED = "yes, the key signed at once"
PIPELINED = f"{SIGNED} and the command did not wait"


async def report(where: SshTarget, past: PastLogins | None, prompts: Prompts | None = None) -> str:
    """What the doctor would say of a login whose first command has run."""
    async with logged_in(where, prompts, past) as transport:
        pipe = await transport.execute("echo here; exec cat")
        assert await pipe.read() == b"here\n"
        await pipe.close()
        return transport.pipelining.report()


async def last_login(server: Sshd, key: Path | None = None) -> PastLogin:
    """A login to `server` by `key`, as it is remembered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    version = (await reader.readline()).decode("ascii").strip()
    writer.close()
    shown, mine = (
        fingerprint(asyncssh.read_public_key(path.with_suffix(".pub")).public_data)
        for path in (server.host_key, key or server.identity)
    )
    return PastLogin(shown, version, mine, "ssh-ed25519", "ssh-ed25519", channel=0)


async def remembering(directory: Path, where: SshTarget, login: PastLogin) -> PastLogins:
    """A laptop whose last login to `where` was `login`."""
    past = PastLogins(directory / "past")
    past.remember((await route(where))[-1].config, login)
    return past


async def known_login(
    server: Sshd, user: HostUser, directory: Path, *options: str, **more: Any
) -> tuple[SshTarget, PastLogins]:
    """Return a target at `server` and the past logins, of which the last one there is remembered."""
    where = target(server, user, *options, **more)
    return where, await remembering(directory, where, await last_login(server))


async def remembered(past: PastLogins, where: SshTarget) -> PastLogin | None:
    """What the laptop would use for a login to `where`."""
    return past.last((await route(where))[-1].config)
