"""The host as a person reaches it from the laptop: every command gets the options of the connection."""

from __future__ import annotations

import os
import pwd
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Done, Laptop, Running

if TYPE_CHECKING:
    from tests.support.person.terminal import Terminal


@dataclass(frozen=True)
class Host:
    laptop: Laptop
    model: FakeModel
    server: Sshd
    user: HostUser

    @property
    def home(self) -> Path:
        return self.user.home

    @property
    def login(self) -> str:
        return f"{self.user.name}@127.0.0.1"

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.user.name).pw_uid

    def locked_key(self) -> list[str]:
        """The options of a connection by a new key with a passphrase, the only one that logs in from now on."""
        key = make_key(self.laptop.home / "locked", passphrase="open sesame")
        (self.server.identity.parent / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
        return self.by_key(key)

    def by_key(self, key: Path) -> list[str]:
        return replace(self.server, identity=key).client_options()

    def ssh(self, *words: str, path: str = "~", port: int | None = None) -> list[str]:
        """The words of `ccb ssh`, through the relay on `port`."""
        return ["ssh", f"{self.login}:{path}", *self.server.client_options(port), *words]

    async def run(self, *words: str, path: str = "~") -> Done:
        return await self.laptop.run(self.ssh(*words, path=path))

    async def command(self, name: str, *words: str, **env: str) -> Done:
        """Run a command about the host, such as `ccb ps HOST`."""
        return await self.laptop.run([name, self.login, *self.server.client_options(), *words], stdin=None, **env)

    def start(self, *words: str, port: int | None = None, piped: bool = True) -> AbstractAsyncContextManager[Running]:
        return self.laptop.start(self.ssh(*words, port=port), piped=piped)

    def on_terminal(self, *words: str) -> AbstractAsyncContextManager[Terminal]:
        return self.laptop.on_terminal(*self.ssh(*words))

    def put(self, name: str, data: bytes | None = None) -> Path:
        """Make a file of the user, or a directory if there is no `data`, with the directories on the way."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if data is None else path.write_bytes(data)
        for each in (path, *path.relative_to(self.home).parents):
            os.chown(self.home / each, self.uid, -1)
        return path
