"""`ccb dash` over two hosts: what waits on one is answered while its own terminal drives it, a session on the other is
opened over the connection of the dash, and Ctrl+D comes back."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import host_user, sshd
from tests.support.hosts.visited_host import visit
from tests.support.model.model_script import uses
from tests.support.person.laptop import Laptop

pytestmark = pytest.mark.visited


async def test_two_hosts_on_one_screen(host: Host, tmp_path: Path) -> None:
    host.model.add(uses("Bash", command="touch made"), {"text": "It-is-made."}, {"text": "Hello-from-the-other."})
    (tmp_path / "two").mkdir()
    async with sshd(tmp_path / "other") as server:
        with host_user(tmp_path / "two") as user:
            visit(user.home, user.home.stat().st_uid)
            shutil.copy(host.server.identity.parent / "authorized_keys", tmp_path / "other" / "authorized_keys")
            trusted = f"{host.server.trust(host.server.port)} {server.trust(server.port)}"
            words = [f"ssh://{host.login}:{host.server.port}", f"ssh://{user.name}@127.0.0.1:{server.port}"]
            options = [
                "-i",
                str(host.server.identity),
                "-o",
                f"UserKnownHostsFile={trusted}",
                "-o",
                "IdentitiesOnly=yes",
            ]
            async with (
                host.on_terminal() as driver,
                host.laptop.on_terminal("dash", *words, *options, size=(120, 30)) as dash,
            ):
                await driver.shows("F1 or /help")
                driver.type("make it\r")
                await dash.shows("1 waits for you")
                await dash.shows("Bash touch made")
                dash.type("a")
                await dash.answer("1")
                await dash.shows("Answered.")
                await driver.shows("It-is-made.")
                assert (host.home / "made").exists()
                assert "only watching" not in driver.text, "it still drives"
                (session,) = (each.parent.name for each in host.home.rglob("journal.jsonl"))
                assert "allowed" in (await host.laptop.run(["audit", session])).stdout
                dash.type("\x1b[F\x1b[B\x1b[B")
                await dash.types("n", f"new session on {user.name}@127.0.0.1")
                dash.type("\r")
                await dash.shows("F1 or /help")
                dash.type("hello\r")
                await dash.shows("Hello-from-the-other.")
                start = len(dash.written)
                dash.type("\x04")
                await dash.until(lambda: "2 hosts · 2 sessions" in dash.text_from(start))
                dash.type("q")
                assert await dash.ended() == 0
                assert server.logins == 1, "the dash and the session share a connection"
                driver.type("\x04")
                assert await driver.ended() == 0


async def test_a_login_that_hangs_is_given_up_and_the_dash_goes_on(laptop: Laptop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with laptop.on_terminal("dash", f"ssh://ann@127.0.0.1:{port}") as dash:
            await dash.shows("connecting")
            await dash.types("\r", "logging in to")
            start = len(dash.written)
            dash.type("\x03")
            await dash.until(lambda: "0 of 1 hosts" in dash.text_from(start))
            dash.type("q")
            assert await dash.ended() == 0
