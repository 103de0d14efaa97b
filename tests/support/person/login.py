"""A person who logs in: answers what a login asks, and remembers the questions."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.machine.programs import shell_script

from ccb.tunnel.errors import CcbError
from ccb.tunnel.ssh.asyncssh_transport import SshTransport, connect
from ccb.tunnel.ssh.past_logins import PastLogins
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.host_keys import HostKeyInfo
from ccb.tunnel.transports.login_prompts import LoginMemory, NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Pipe, Transport

E = TypeVar("E", bound=CcbError)


class Person:
    """Each answer is used once; without one the person gives up."""

    def __init__(
        self,
        *,
        trust: bool = False,
        passphrases: Sequence[str] = (),
        passwords: Sequence[str] = (),
        answers: Sequence[list[str]] = (),
    ) -> None:
        self.memory = LoginMemory()
        self.trust = trust
        self.passphrases = list(passphrases)
        self.passwords = list(passwords)
        self.answers = list(answers)
        self.asked: list[HostKeyInfo] = []
        self.asked_passphrases: list[str] = []
        self.asked_passwords: list[str] = []
        self.challenges: list[tuple[str, str, list[tuple[str, bool]]]] = []
        self.told: list[str] = []

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        self.asked.append(info)
        return self.trust

    async def passphrase(self, path: str, attempt: int) -> str | None:
        self.asked_passphrases.append(path)
        return self.passphrases.pop(0) if self.passphrases else None

    async def password(self, prompt: str, attempt: int) -> str | None:
        self.asked_passwords.append(prompt)
        return self.passwords.pop(0) if self.passwords else None

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        self.challenges.append((title, instructions, list(prompts)))
        return self.answers.pop(0) if self.answers else None

    def banner(self, text: str) -> None:
        self.told.append(text)


def target(
    server: Sshd,
    user: HostUser,
    *options: str,
    port: int | None = None,
    known: Path | None = None,
    key: Path | None = None,
) -> SshTarget:
    """`user` on `server`, by the server's own client key unless another is given, and with no key of the real user."""
    known_hosts = f"UserKnownHostsFile={known or server.known_hosts}"
    identity = str(key or server.identity)
    return SshTarget(
        "127.0.0.1", user.name, port or server.port, (identity,), (*options, known_hosts, "IdentitiesOnly=yes")
    )


@asynccontextmanager
async def logged_in(
    where: SshTarget, prompts: Prompts | None = None, past: PastLogins | None = None
) -> AsyncIterator[SshTransport]:
    transport = await connect(where, prompts or NobodyToAsk(), past=past)
    assert isinstance(transport, SshTransport)
    try:
        yield transport
    finally:
        await transport.close()


async def logs_in(where: SshTarget, prompts: Prompts | None = None, past: PastLogins | None = None) -> None:
    async with logged_in(where, prompts, past):
        pass


async def refused(kind: type[E], where: SshTarget, prompts: Prompts | None = None, *, match: str | None = None) -> E:
    """The error of a login that fails."""
    with pytest.raises(kind, match=match) as caught:
        await connect(where, prompts or NobodyToAsk())
    return caught.value


async def everything(pipe: Pipe) -> bytes:
    """All that is left to read."""
    said = b""
    while data := await pipe.read():
        said += data
    return said


async def output(transport: Transport, command: str = "echo in") -> str:
    """All that `command` says."""
    pipe = await transport.execute(command)
    said = await everything(pipe)
    await pipe.close()
    return said.decode()


def only_config(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only configuration that ssh reads from now on; a new file in `directory`."""
    path, real = directory / "ssh_config", shutil.which("ssh")
    wrapper = shell_script(directory / "bin" / "ssh", f'exec {real} -F "{path}" "$@"')
    path.touch()
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return path


def every_host(identity: Path, known_hosts: Path) -> str:
    """Return lines of ssh_config for reaching every server by one key, jump hosts too: flags do not apply to those."""
    return f"IdentityFile {identity}\nUserKnownHostsFile {known_hosts}\nIdentitiesOnly yes\n"


def pipe_to(port: int, directory: Path, before: str = "") -> str:
    """A ProxyCommand that carries bytes to `port` after `before` (Python)."""
    script = directory / "pipe.py"
    script.write_text(
        "import socket, os, sys, threading\n"
        f"{before}\n"
        f"s = socket.create_connection(('127.0.0.1', {port}))\n"
        "def pump(read, write):\n"
        "    for data in iter(read, b''):\n"
        "        print('debug', len(data), file=sys.stderr, flush=True)\n"
        "        write(data)\n"
        "down = lambda: s.recv(65536), lambda data: os.write(1, data)\n"
        "threading.Thread(target=pump, args=down, daemon=True).start()\n"
        "pump(lambda: os.read(0, 65536), s.sendall)\n",
        encoding="utf-8",
    )
    return f"ProxyCommand=exec {sys.executable} {script}"
