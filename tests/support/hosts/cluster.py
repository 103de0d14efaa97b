"""Login nodes that share a home: real sshds in namespaces of their own, behind one name that leads to each in turn."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser, Sshd, sshd
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Done, Laptop

_NODE = """\
hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id && mount --bind "$3" "$4" && shift 4 && exec "$@"
"""


@dataclass
class Cluster:
    """`leads_to` are the nodes to which the next connections to the login lead; each goes to the end of it."""

    host: Host
    servers: dict[str, Sshd]
    nodes: dict[str, AsyncExitStack]
    leads_to: list[str]

    def trust(self, port: int) -> None:
        """Vouch for the host keys of all nodes on `port`: the name stands for all of them."""
        for server in self.servers.values():
            line = f"[127.0.0.1]:{port} {server.host_key.with_suffix('.pub').read_text()}"
            with self.host.server.known_hosts.open("a") as known:
                known.write(line)

    async def down(self, name: str) -> None:
        """Let a node lose power: all its processes are gone, and nobody was told."""
        await self.nodes[name].aclose()

    async def run(self, over: str, *words: str) -> Done:
        """Run `ccb ssh` while the login leads to one node."""
        self.leads_to[:] = [over]
        return await self.host.run(*words)

    def owner(self, session: str) -> str:
        """The text of the record that says which node owns a session."""
        state = self.host.home / ".local/state/ccb/sessions" / session
        (path,) = state.glob("owner.*")
        return path.read_text()


@asynccontextmanager
async def cluster(
    directory: Path, laptop: Laptop, model: FakeModel, user: HostUser, names: tuple[str, ...] = ("n1", "n2", "n3")
) -> AsyncIterator[Cluster]:
    """Needs root. Hostname, boot id, process ids and the directory for sockets are those of each node."""
    account = pwd.getpwnam(user.name)
    runtime = Path(f"/tmp/ccb-{account.pw_uid}")
    runtime.mkdir(0o700)
    os.chown(runtime, account.pw_uid, account.pw_gid)
    servers: dict[str, Sshd] = {}
    stacks: dict[str, AsyncExitStack] = {}
    async with AsyncExitStack() as stack:
        for name in names:
            stacks[name] = await stack.enter_async_context(AsyncExitStack())
            servers[name] = await stacks[name].enter_async_context(_node(directory / name, name, runtime, user))
        first = servers[names[0]]
        ssh = user.home / ".ssh"
        ssh.mkdir(0o700)
        (ssh / "id_ed25519").write_bytes(first.identity.read_bytes())
        for name, server in servers.items():
            key = first.identity.with_suffix(".pub").read_text()
            (server.identity.parent / "authorized_keys").write_text(key)
            with (ssh / "config").open("a") as config:
                config.write(f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n")
            with (ssh / "known_hosts").open("a") as known:
                known.write(server.trust(server.port).read_text())
        for path in (ssh, *ssh.iterdir()):
            path.chmod(0o700 if path == ssh else 0o600)
            os.chown(path, account.pw_uid, account.pw_gid)
        leads_to = list(names)
        port = await stack.enter_async_context(_in_turn(servers, leads_to))
        made = Cluster(Host(laptop, model, replace(first, port=port), user), servers, stacks, leads_to)
        made.trust(port)
        yield made


@asynccontextmanager
async def _node(directory: Path, name: str, runtime: Path, user: HostUser) -> AsyncIterator[Sshd]:
    directory.mkdir(parents=True)
    own, boot = directory / "run", directory / "boot_id"
    own.mkdir(0o700)
    os.chown(own, pwd.getpwnam(user.name).pw_uid, -1)
    boot.write_text(f"{uuid.uuid4()}\n")
    words = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _NODE, "sh"]
    async with sshd(directory, wrapper=[*words, name, str(boot), str(own), str(runtime)]) as server:
        yield server


@asynccontextmanager
async def _in_turn(servers: dict[str, Sshd], leads_to: list[str]) -> AsyncIterator[int]:
    """A port that leads to the next of some servers at each connection."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = leads_to.pop(0)
        leads_to.append(name)
        try:
            far, up = await asyncio.open_connection("127.0.0.1", servers[name].port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, up), carry(far, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
