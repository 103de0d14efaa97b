"""The REPL while the network is frozen: it says so soon, and who leaves does not wait for the host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import relay
from tests.support.person.laptop import make_laptop

pytestmark = pytest.mark.visited

AT_MOST_S = 15.0


@pytest.mark.parametrize("noticed", [False, True], ids=["before it is noticed", "while it reconnects"])
@pytest.mark.thorough
async def test_leaving_is_quick_when_the_network_is_frozen(
    tmp_path: Path, fake_model: FakeModel, sshd: Sshd, host_user: HostUser, noticed: bool
) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    async with relay(sshd.port) as between:
        sshd.trust(between.port)
        async with laptop.on_terminal(
            "ssh", f"{host_user.name}@127.0.0.1:~", *sshd.client_options(between.port)
        ) as running:
            await running.shows("F1 or /help")
            between.freeze()
            if noticed:
                await running.until(lambda: "no answer for" in running.text)
                assert "reconnecting" not in running.text
                await running.until(lambda: "reconnecting" in running.text)
            began = time.monotonic()
            running.type("\x04")
            assert await running.ended() == 0
            assert time.monotonic() - began < AT_MOST_S
            await running.shows("Come back with:")
            between.thaw()
