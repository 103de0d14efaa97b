"""Opening the transport while this machine loads its settings: limits, errors, and a connection that nobody takes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.machine.processes import commands_with
from tests.support.machine.waiting import until

from ccb.deploy.bundle import Bundle
from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.settings import Settings
from ccb.local.connect import startup
from ccb.local.connect.open_transport import open_transport
from ccb.local.connect.startup import LoadedBasics, SessionLoader, SessionStartup, StartupLoader
from ccb.tunnel.errors import ConfigError, ConnectionLost, Unreachable
from ccb.tunnel.transports.login_prompts import NobodyToAsk


def hanging_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh that never finishes reading its configuration."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nexec sleep 30\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


async def test_the_limit_of_a_headless_run_counts_while_ssh_still_reads_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = Settings(connectTimeoutSeconds=0.5, given=frozenset({"connectTimeoutSeconds"}))
    hanging_ssh(tmp_path, monkeypatch)
    async with aclosing(StartupLoader(lambda: LoadedBasics(limited, Bundle.of(b"")))) as loader:
        with pytest.raises(Unreachable, match=r"within 0\.5 s"):
            await open_transport(parse_arguments(["ssh", "h", "-p", "hi"]), os.environ, loader, NobodyToAsk())


async def test_settings_that_cannot_be_read_are_told_while_ssh_still_reads_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings() -> LoadedBasics:
        raise ConfigError("the settings cannot be read")

    hanging_ssh(tmp_path, monkeypatch)
    async with aclosing(StartupLoader(settings)) as loader, asyncio.timeout(5):  # of the ten that it has
        with pytest.raises(ConfigError, match="settings"):
            await open_transport(parse_arguments(["ssh", "h"]), os.environ, loader, NobodyToAsk())


async def test_who_waits_for_the_settings_while_the_person_leaves_is_told_so() -> None:
    loader = StartupLoader(lambda: LoadedBasics(Settings(), Bundle.of(b"")))
    waiting = asyncio.create_task(loader.loaded())
    await asyncio.sleep(0)
    await loader.aclose()
    with pytest.raises(ConnectionLost, match="closed during the login"):
        await waiting


async def test_a_connection_that_nobody_takes_is_closed(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    def settings() -> LoadedBasics:
        while any(task.get_name() == "connect" for task in asyncio.all_tasks(loop)):
            time.sleep(0.01)
        raise ConfigError("the settings cannot be read")

    where = f"{host_user.name}@127.0.0.1"
    arguments = parse_arguments(["ssh", where, "--transport", "ssh", *sshd.client_options()])
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    async with asyncio.timeout(30):
        with pytest.raises(ConfigError, match="settings"):
            async with aclosing(StartupLoader(settings)) as loader:
                await open_transport(arguments, environ, loader, NobodyToAsk())
        assert "Accepted publickey" in sshd.log.read_text()
        assert not list(tmp_path.glob("ccb-ssh-*"))
        # The log need not say it: a server that has just begun to serve may find its socket closed.
        await until(lambda: not commands_with(host_user.name))


@pytest.mark.parametrize("slow", [False, True])
async def test_the_rest_is_loaded_on_request_or_in_a_long_login(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading it beside a quick login would only delay that."""
    monkeypatch.setattr(startup, "_QUICK_LOGIN_S", 0 if slow else 3600)
    basics, begun = LoadedBasics(Settings(), Bundle.of(b"")), threading.Event()

    def rest(given: LoadedBasics) -> SessionStartup:
        assert given is basics
        begun.set()
        raise ConfigError("it was loaded")

    async def loaded() -> LoadedBasics:
        return basics

    async with asyncio.timeout(20), SessionLoader(lambda: None, loaded(), rest) as loader:
        assert await loader.loaded() is basics
        if slow:
            assert await asyncio.to_thread(begun.wait, 20)
        else:
            await asyncio.sleep(0)
            assert not begun.is_set()
        with pytest.raises(ConfigError, match="it was loaded"):
            await loader.all()
