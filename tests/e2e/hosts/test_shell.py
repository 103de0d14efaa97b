"""A person's shell over a real sshd: what is typed while the connection is lost, full screens, floods, and its end."""

from __future__ import annotations

import asyncio
import fcntl
import json
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import commands_with
from tests.support.machine.waiting import until
from tests.support.network.relay import relay
from tests.support.person.terminal import Terminal

pytestmark = pytest.mark.visited

LEAVE = "\x1d"


@asynccontextmanager
async def shell(host: Host, *words: str, port: int | None = None) -> AsyncIterator[Terminal]:
    """`ccb shell` on a laptop without a model credential, at its prompt."""
    host.put(".bash_profile", b"PS1='> '\n")
    argv = ["shell", f"{host.login}:~", *host.server.client_options(port), *words]
    async with host.laptop.on_terminal(*argv, ANTHROPIC_API_KEY="") as running:
        await running.shows("> ")
        yield running


@pytest.mark.parametrize("fault", ["cut", "frozen"])
async def test_what_is_typed_without_a_connection_arrives_once_and_in_order(host: Host, fault: str) -> None:
    line = "".join(f"{number:03}," for number in range(200))
    async with relay(host.server.port) as between, shell(host, port=between.port) as running:
        running.type("cat > typed\r")
        await running.shows("cat > typed\r\n")
        for cuts, part in enumerate((line[:400], line[400:])):
            for at in range(0, 400, 80):
                running.type(part[at : at + 80] + "\r")
                if at == 160:
                    (between.cut if fault == "cut" else between.freeze)()
            between.thaw()
            await running.until(lambda cuts=cuts: fault != "cut" or running.text.count("connected again") > cuts)  # type: ignore[misc]
        running.type("\x04")
        running.type("wc -c typed; exit 4\r")
        assert await running.ended() == 4
        assert between.connections == (3 if fault == "cut" else 1)
    assert (host.home / "typed").read_text().replace("\n", "") == line
    assert running.text.replace("\r\n", "").count(line[-80:]) == 1, "nor is the echo there twice"


async def test_a_full_screen_program_follows_the_size_and_is_drawn_again_after_a_cut_and_a_return(host: Host) -> None:
    async with relay(host.server.port) as between, shell(host, port=between.port) as first:
        first.type("vi -u NONE -c 'set noswapfile' new\r")
        await first.shows('"new"')
        first.type("ihello from vi\x1b")
        await first.shows("hello from vi")
        seen = len(first.written)
        fcntl.ioctl(first.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
        await first.until(lambda: "~" + 59 * " " + "~" in first.text_from(seen))
        between.cut()
        await first.shows("connected again")
        again_at = first.written.rfind(b"connected again")
        await first.until(lambda: "hello from vi" in first.text_from(again_at))
        first.type(LEAVE)
        assert await first.ended() == 0
        await first.shows("the shell stays on")
        assert b"\x1b[?1049l" in first.written, "the screen of before is there"
    async with shell(host) as again:
        await again.shows("hello from vi")
        again.type(":wq\r")
        await again.until((host.home / "new").exists)
        again.type("exit\r")
        assert await again.ended() == 0
    assert (host.home / "new").read_text() == "hello from vi\n"


async def test_the_person_leaves_behind_a_paste_that_the_host_does_not_take(host: Host) -> None:
    async with relay(host.server.port) as between, shell(host, port=between.port) as running:
        between.freeze()
        await asyncio.to_thread(running.type, 3000 * f"{999 * 'x'}\n" + LEAVE)
        assert await running.ended() == 0
        between.thaw()
    async with shell(host) as again:
        again.type("exit 5\r")
        assert await again.ended() == 5


async def test_ten_megabytes_arrive_whole_and_soon(host: Host) -> None:
    async with shell(host) as running:
        running.type("yes 12345678 | head -c 10000000; echo 'the 'end\r")
        async with asyncio.timeout(60):
            await running.until(lambda: b"the end" in running.written[-2000:])
    assert running.written.count(b"12345678\r\n") >= 1_111_111


async def test_a_shell_left_on_the_host_ends_with_ccb_stop_and_leaves_no_process(host: Host) -> None:
    async with shell(host, "2") as running:
        running.type("setsid sleep 4321 & sleep 4322 &\r")
        await until(lambda: len(commands_with("sleep 432")) >= 2)
        running.type(LEAVE)
        assert await running.ended() == 0
    listed = await host.command("ps")
    assert listed.code == 0
    assert (await host.command("stop")).code == 0
    await until(lambda: not commands_with("sleep 432"))


async def test_ccb_shell_watches_the_session_that_somebody_drives_and_starts_no_other(host: Host) -> None:
    async with host.on_terminal() as driver:
        await driver.shows("F1 or /help")
        while not (listed := await host.command("ps", "--json")).stdout:  # the keys may be shown before it is there
            pass
        async with shell(host) as running:
            running.type("exit 6\r")
            assert await running.ended() == 6
        listed = await host.command("ps", "--json")
        assert len(listed.stdout.splitlines()) == 1 and json.loads(listed.stdout)["driver"]
        assert "drives this session now" not in driver.text
        driver.type("/stop\r")
        assert await driver.ended() == 0


async def test_the_repl_lends_its_terminal_to_a_shell_and_quotes_it_only_when_asked(host: Host) -> None:
    host.put(".bash_profile", b"PS1='> '\n")
    host.model.add({"text": "seen"})
    async with host.on_terminal() as running:
        await running.shows("F1 or /help")
        running.type("/shell\r")
        await running.shows("Ctrl+] leaves it")
        running.type("echo se$((1))cret\r")
        await running.shows("se1cret\r\n")
        running.type(LEAVE)
        await running.shows("the shell stays on the host")
        running.type("/shell send\r")
        await running.shows("From my shell on the host")
        assert not host.model.requests
        running.type("what is this?\r")
        await running.shows("seen")
        assert "se1cret" in str(host.model.requests[-1])
        running.type("!! read -r x; exit $x\r")
        await running.until(lambda: running.text.count("Ctrl+] leaves it") == 2)
        running.type("3\r")
        await running.shows("ended with code 3")
        running.type("/stop\r")
        assert await running.ended() == 0
