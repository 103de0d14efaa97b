"""The transport of a session: one at a time, however many ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.model.fake_model import FakeModel
from tests.support.proxy.proxy_client import proxy_to

from ccb.deploy.build_bundle import joined
from ccb.deploy.bundle import Bundle
from ccb.local.connect.dialer import Dialer
from ccb.tunnel.errors import AuthFailed, ProtocolError
from ccb.tunnel.transports.command_transport import CommandPipe, LocalTransport
from ccb.tunnel.transports.pipe import Pipe, Transport


class Host:
    """Counts the logins to it. A login takes until `answers` is set. The first `refusals` of them fail."""

    def __init__(self) -> None:
        self.logins = 0
        self.answers = asyncio.Event()
        self.refusals = 0

    async def log_in(self, ask: bool) -> Transport:
        self.logins += 1
        await self.answers.wait()
        if self.logins <= self.refusals:
            raise AuthFailed("refused")
        return LocalTransport()


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def dialer(host: Host) -> AsyncIterator[Dialer]:
    dialer = Dialer(host.log_in, Bundle.of(b""))
    yield dialer
    await dialer.aclose()


async def test_callers_at_the_same_time_get_one_transport(dialer: Dialer, host: Host) -> None:
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(dialer.transport(ask=False)) for _ in range(3)]
        while not host.logins:
            await asyncio.sleep(0)
        host.answers.set()
    first = asked[0].result()
    assert host.logins == 1 and all(each.result() is first for each in asked)
    first.abort()
    assert await dialer.transport(ask=False) is not first, "a dead one is replaced"


async def test_what_sends_model_calls_is_loaded_while_the_worker_starts(
    host: Host, fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "import sys\ndef start(*_):\n    sys.stdin.read()\n"
    worker = {"ccb/__init__.py": "", "ccb/remote/__init__.py": "", "ccb/remote/main.py": silent}
    prepared = asyncio.Event()
    async with proxy_to(fake_model.url) as proxy:
        monkeypatch.setattr(proxy, "prepare", prepared.set)
        dialer = Dialer(host.log_in, Bundle.of(joined(worker)), LocalTransport())
        dialer.begin({"keep": False})

        async def dial() -> None:
            async with dialer.dial(proxy, None, False):
                pass

        dialing = asyncio.create_task(dial())
        async with asyncio.timeout(20):
            await prepared.wait()
        assert not dialing.done()
        dialing.cancel()
        await asyncio.gather(dialing, return_exceptions=True)
        await dialer.aclose()


async def test_a_caller_behind_a_login_that_failed_tries_itself(dialer: Dialer, host: Host) -> None:
    host.refusals = 1
    first, second = (asyncio.create_task(dialer.transport(ask=False)) for _ in range(2))
    while not host.logins:
        await asyncio.sleep(0)
    host.answers.set()
    with pytest.raises(AuthFailed):
        await first
    assert (await second).alive and host.logins == 2


async def test_a_worker_that_was_started_early_is_the_one_that_is_dialled_and_is_given_up_with_the_dialer() -> None:
    """One command, whoever waits for it. A session that cannot be begun after all leaves no worker that waits."""
    hello = '{"t": "hello"}'
    starts = f"import os\ndef start(*_):\n    os.write(1, b'{hello}\\n')\n    os.read(0, 1)\n"
    worker = {"ccb/__init__.py": "", "ccb/remote/__init__.py": "", "ccb/remote/main.py": starts}
    commands: list[Pipe] = []

    class Counting(LocalTransport):
        async def execute(self, command: str) -> CommandPipe:
            pipe = await super().execute(command)
            commands.append(pipe)
            return pipe

    async def no_login(ask: bool) -> Transport:
        raise AuthFailed("refused")

    async with asyncio.timeout(30), proxy_to("http://127.0.0.1:1") as proxy:
        for dials in (True, False):
            dialer = Dialer(no_login, Bundle.of(joined(worker)), Counting())
            dialer.begin({"keep": False})
            if dials:
                with pytest.raises(ProtocolError):  # it is no whole hello
                    async with dialer.dial(proxy, None, False):
                        pass
            else:
                while not commands:
                    await asyncio.sleep(0)
            await dialer.aclose()
            pipe = commands.pop()
            assert not commands
            await pipe.exit_status()
