"""Fixtures of the test kit, for every test. What they need is imported when one is used: the worker's tests run where the
laptop's packages are not installed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.fake_model import FakeModel
    from tests.support.sshd import HostUser, Sshd


def pytest_configure() -> None:
    """Let programs that the tests start die of SIGHUP, also where pytest runs under nohup: a signal with a handler is back to its
    default in a new program, an ignored one stays ignored."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


@pytest.fixture
async def fake_model() -> AsyncIterator[FakeModel]:
    """A running FakeModel with an empty script; fill it with `add`."""
    from tests.support.fake_model import FakeModel

    async with FakeModel() as model:
        yield model


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    """A real OpenSSH server that the test's key logs in to."""
    from tests.support.sshd import sshd as serve

    async with serve(tmp_path / "sshd") as server:
        yield server


@pytest.fixture
def host_user(tmp_path: Path) -> Iterator[HostUser]:
    """A throwaway Unix user with bash, on the machine of the `sshd` fixture."""
    from tests.support.sshd import host_user as make

    with make(tmp_path) as user:
        yield user
