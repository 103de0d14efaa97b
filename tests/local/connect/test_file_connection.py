"""A copy on the connection of a session: beside the worker, on a host that allows one command, and over a drop."""

from __future__ import annotations

import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.network.relay import Fault, relay
from tests.support.person.login import logged_in, target

from ccb.local.connect.file_connection import FileConnection
from ccb.local.files.copying import CopyOrder, Transfers, outcome
from ccb.local.session.session_client import LinkState
from ccb.tunnel.errors import AuthFailed, CcbError, CopyFailed, Unreachable
from ccb.tunnel.transports.pipe import Transport

SIZE = 6_000_000


async def no_login() -> Transport:
    raise AuthFailed("the login asks for a password")


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


async def test_a_copy_is_one_more_command_on_the_connection(tmp_path: Path, sshd: Sshd, host_user: HostUser) -> None:
    data = os.urandom(SIZE)
    on_host(host_user, data)
    async with logged_in(target(sshd, host_user)) as transport:
        worker = await transport.execute("exec cat")
        assert await copied(tmp_path / "x", lambda: transport) == str(tmp_path / "x")
        await worker.write(b"still here")
        assert await worker.read() == b"still here"
        await worker.close()
    assert (tmp_path / "x").read_bytes() == data


async def test_where_a_host_allows_one_command_the_copy_is_refused(tmp_path: Path, host_user: HostUser) -> None:
    on_host(host_user, b"data")
    strict = serve(tmp_path / "strict", ["MaxSessions 1"])
    async with strict as server, logged_in(target(server, host_user)) as transport:
        worker = await transport.execute("exec cat")
        error = await copied(tmp_path / "x", lambda: transport)
        assert isinstance(error, Unreachable) and "MaxSessions" in error.do
        await worker.write(b"still here")
        assert await worker.read() == b"still here"
        await worker.close()


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
