"""The transport of a session: one at a time, however many ask for it."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Fault, relay
from tests.support.person.login import logged_in, target
from tests.support.proxy.proxy_client import proxy_to
from tests.support.worker.compiled import worker_bundle

from ccb.local.command_line.arguments import Arguments
from ccb.local.connect.dialer import Dialer, FileConnection
from ccb.local.connect.host_connection import HostConnection
from ccb.local.files.copying import CopyOrder, Transfers, outcome
from ccb.local.session.session_client import LinkState
from ccb.tunnel.errors import AuthFailed, CcbError, CopyFailed, ProtocolError, Unreachable
from ccb.tunnel.transports.command_transport import CommandPipe, LocalTransport
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Pipe, Transport


class Host(HostConnection):
    """Counts the logins to it. A login takes until `answers` is set. The first `refusals` of them fail."""

    def __init__(self) -> None:
        super().__init__(Arguments(), NobodyToAsk(), {})
        self.logins = 0
        self.answers = asyncio.Event()
        self.refusals = 0

    async def let_in(self) -> None:
        """Answer once somebody logs in."""
        while not self.logins:
            await asyncio.sleep(0)
        self.answers.set()

    async def log_in(self, *, ask: bool) -> Transport:
        self.logins += 1
        await self.answers.wait()
        if self.logins <= self.refusals:
            raise AuthFailed("refused")
        return LocalTransport()


async def no_login() -> Transport:
    raise AuthFailed("the login asks for a password")


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with Host() as host:
        yield host


async def test_callers_at_the_same_time_get_one_transport(host: Host) -> None:
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(host.transport(ask=False)) for _ in range(3)]
        await host.let_in()
    first = asked[0].result()
    assert host.logins == 1 and all(each.result() is first for each in asked)
    first.abort()
    assert await host.transport(ask=False) is not first, "a dead one is replaced"


async def test_what_sends_model_calls_is_loaded_while_the_worker_starts(
    host: Host, fake_model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_bundle("import sys\ndef start(*_):\n    sys.stdin.read()\n")
    prepared = asyncio.Event()
    async with proxy_to(fake_model.url) as proxy:
        monkeypatch.setattr(proxy, "prepare", prepared.set)
        host.answers.set()
        await host.transport(ask=False)
        dialer = Dialer(host, worker)
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


async def test_a_login_that_failed_is_tried_again_only_for_a_caller_that_may_ask(host: Host) -> None:
    """A server counts failed logins: as many as there are sessions would lock the person out."""
    host.refusals = 1
    first, second, third = (asyncio.create_task(host.transport(ask=ask)) for ask in (False, False, True))
    await host.let_in()
    for refused in (first, second):
        with pytest.raises(AuthFailed):
            await refused
    assert (await third).alive and host.logins == 2


async def test_a_worker_that_was_started_early_is_the_one_that_is_dialled_and_is_given_up_with_the_dialer() -> None:
    """One command, whoever waits for it. A session that cannot be begun after all leaves no worker that waits."""
    hello = '{"t": "hello"}'
    worker = worker_bundle(f"import os\ndef start(*_):\n    os.write(1, b'{hello}\\n')\n    os.read(0, 1)\n")
    commands: list[Pipe] = []

    class Counting(LocalTransport):
        async def execute(self, command: str) -> CommandPipe:
            pipe = await super().execute(command)
            commands.append(pipe)
            return pipe

    class Here(Host):
        async def log_in(self, *, ask: bool) -> Transport:
            return Counting()

    async with asyncio.timeout(30), proxy_to("http://127.0.0.1:1") as proxy, Here() as host:
        for dials in (True, False):
            await host.transport(ask=False)
            dialer = Dialer(host, worker)
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


SIZE = 6_000_000


def on_host(user: HostUser, data: bytes) -> None:
    (user.home / "source").write_bytes(data)
    os.chown(user.home / "source", pwd.getpwnam(user.name).pw_uid, -1)


async def copied(
    path: Path,
    current: Callable[[], Transport | None],
    log_in: Callable[[], Awaitable[Transport]] = no_login,
    state: Callable[[], LinkState] = lambda: LinkState.CONNECTED,
) -> str | CcbError | None:
    """The outcome of a copy of `source` to `path`."""
    async with Transfers(FileConnection(state, current, log_in).lend) as transfers:
        return await outcome(transfers.start(CopyOrder(False, str(path), "source")))


@asynccontextmanager
async def beside_a_worker(transport: Transport) -> AsyncIterator[None]:
    """A worker on the same connection, which is still there afterwards."""
    worker = await transport.execute("exec cat")
    yield
    await worker.write(b"still here")
    assert await worker.read() == b"still here"
    await worker.close()


async def test_a_copy_is_one_more_command_on_the_connection(tmp_path: Path, sshd: Sshd, host_user: HostUser) -> None:
    data = os.urandom(SIZE)
    on_host(host_user, data)
    async with logged_in(target(sshd, host_user)) as transport, beside_a_worker(transport):
        assert await copied(tmp_path / "x", lambda: transport) == str(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == data


async def test_where_a_host_allows_one_command_the_copy_has_another_connection(
    tmp_path: Path, host_user: HostUser
) -> None:
    data = os.urandom(SIZE)
    on_host(host_user, data)
    strict = serve(tmp_path / "strict", ["MaxSessions 1"])
    async with strict as server, logged_in(target(server, host_user)) as transport, beside_a_worker(transport):
        assert await copied(tmp_path / "x", lambda: transport) == str(tmp_path / "x")
        assert (tmp_path / "x").read_bytes() == data
        assert server.logins == 2


async def test_where_that_needs_another_login_which_fails_the_copy_is_refused(
    tmp_path: Path, host_user: HostUser
) -> None:
    on_host(host_user, b"data")
    strict = serve(tmp_path / "strict", ["MaxSessions 1"])
    async with strict as server, logged_in(target(server, host_user)) as transport, beside_a_worker(transport):
        server.identity.unlink()
        error = await copied(tmp_path / "x", lambda: transport)
        assert isinstance(error, Unreachable) and "MaxSessions" in error.do and "another connection" in error.evidence


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_copy_goes_on_when_the_session_has_a_new_connection(
    tmp_path: Path, sshd: Sshd, host_user: HostUser, comes_back: bool
) -> None:
    data = os.urandom(SIZE)
    on_host(host_user, data)
    async with relay(sshd.port) as between:
        sshd.trust(between.port)
        where = target(sshd, host_user, port=between.port)
        between.faults = [Fault("reset", SIZE * 2 // 3, False)]
        async with logged_in(where) as first, logged_in(target(sshd, host_user)) as second:
            looked = 0

            def current() -> Transport | None:
                nonlocal looked
                if first.alive:
                    return first
                looked += 1
                return second if looked > 2 and comes_back else None

            def state() -> LinkState:
                return LinkState.CONNECTED if comes_back or first.alive else LinkState.LOST

            found = await copied(tmp_path / "x", current, no_login, state)
            if comes_back:
                assert found == str(tmp_path / "x") and (tmp_path / "x").read_bytes() == data
            else:
                assert isinstance(found, CopyFailed) and "no connection any more" in found.what
                assert not (tmp_path / "x").exists() and (tmp_path / ".x.ccb-part").stat().st_size > SIZE // 3
