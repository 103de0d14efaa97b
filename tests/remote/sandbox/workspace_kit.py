"""What tests of cages run commands in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.remote.tools_kit import plant, until

from ccb.remote.sandbox.cage_rules import CageRules, workspace_rules
from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system.host import Host
from ccb.remote.system.process import Process

_GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}


def caged_host(most_abi: int = 99) -> Host:
    """Return a host with a cage that only reads, of a kernel that looks as old as that."""
    host = Host(cages=CageServer(most_abi))
    if not host.cages().mechanism:
        pytest.skip(host.cages().why)
    return host


class Workspace:
    """A repository with instruction files, of which one is a link, and a host that runs commands in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "project"
        self.host = Host()
        self.output = bytearray()
        (self.root / "sub").mkdir(parents=True)
        for where in (self.root, self.root / "sub"):
            subprocess.run(["git", "init", "-q"], cwd=where, check=True, env={**os.environ, **_GIT})
        plant(self.root, "AGENTS.md: instructions", "CLAUDE.md -> AGENTS.md", ".husky/pre-commit: true", "a: one")

    def rules(self, *directories: Path) -> CageRules:
        return workspace_rules([str(each) for each in directories or (self.root,)], os.environ, str(self.home))

    async def start(self, script: str, rules: CageRules | None = None) -> Process:
        self.output.clear()
        argv, cage = ["bash", "-c", script], rules or self.rules()
        return await self.host.start(argv, str(self.root), self.output.extend, None, cage)

    async def run(self, script: str) -> str:
        process = await self.start(script)
        await process.wait()
        await process.stop()
        return self.output.decode()

    async def notes(self, script: str, rules: CageRules | None = None) -> list[str]:
        """Return what is told of a command at its end."""
        process = await self.start(script, rules)
        await process.wait()
        return process.notes

    async def up(self, script: str) -> Process:
        """Start a command, and wait until it has printed `up`."""
        process = await self.start(script)
        await until(lambda: self.output.startswith(b"up\n"))
        return process

    async def run_uncaged(self, script: str) -> list[str]:
        """Run an allowed command, and return what is told of it at its end."""
        process = await self.host.start(["bash", "-c", script], str(self.root), self.output.extend)
        assert await process.wait() == 0
        return process.notes

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **_GIT, "HOME": str(self.home)}

    def person(self, script: str) -> None:
        """Let a person run commands in the project, in their own terminal."""
        subprocess.run(["sh", "-ec", script], cwd=self.root, check=True, env=self.environ)

    def everything(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for directory, names, files in os.walk(self.root):
            for path in (Path(directory) / name for name in (*names, *files)):
                info = path.lstat()
                content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                found[str(path)] = (info.st_mode, info.st_nlink if path.is_file() else 0, info.st_mtime_ns, content)
        return found
