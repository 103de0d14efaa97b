"""A browser in front of `ccb serve` whose connection breaks in the middle of a turn, and that to the host, too: the
agent goes on, a command runs once, and the next window shows all of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest
from aiohttp import ClientError
from tests.faults.play.host import left_by
from tests.faults.play.plan import DEAD_S
from tests.support.browser import Browser, Window, browser
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses
from tests.support.network.relay import Fault, Relay, relay
from yarl import URL

from ccb.local.terminal.keymap import BURST_S

pytestmark = pytest.mark.visited

SEED = os.environ.get("CCB_FAULT_SEEDS", "1")
LONG = random.Random(34).randbytes(600).hex(" ", 4)


async def sees(person: Browser, window: Window, text: str) -> Window:
    """Wait for a text. Without a connection, load the page again, as it does by itself."""
    async with asyncio.timeout(120):
        while True:
            try:
                await window.sees(text)
                return window
            except (ClientError, AssertionError, ConnectionError):
                await asyncio.sleep(0.1)
            try:
                window = await person.window()
            except (ClientError, ConnectionError):
                continue


@pytest.mark.timeout(240)
@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("kind", ["reset", "close", "freeze"])
async def test_a_turn_goes_on_while_browser_and_host_are_cut_off(host: Host, kind: str) -> None:
    host.model.add(
        {**uses("Bash", command="echo run >> count"), "text": "I count."},
        {"text": f"{LONG} The-end.", "delay": 0.005, "when": {"has_tool_result": True}},
    )
    at = random.Random(f"{SEED} {kind}")

    def somewhere(on: Relay, span: int) -> Fault:
        return Fault(kind, on.down + at.randrange(500, span), upward=False, seconds=DEAD_S)

    async with (
        relay(host.server.port) as to_host,
        host.laptop.start(["serve", *host.ssh(port=to_host.port)], piped=False) as running,
    ):
        assert running.process.stdout is not None
        link = (await running.process.stdout.readline()).decode().strip()
        async with relay(URL(link).port or 0) as between, browser(link, between.port) as person:
            window = await sees(person, await person.window(), "Ask for a change")
            await window.types("go\r", sees="Yes, once")
            await window.presses("\t", sees="Esc back")
            await window.presses("1", sees="Enter answers")
            await asyncio.sleep(4 * BURST_S)  # as a person does before Enter
            between.faults.append(somewhere(between, 2_000))
            to_host.faults.append(somewhere(to_host, 30_000))
            await window.types("\r")
            await sees(person, window, "The-end.")
            assert all(each.happened for each in (*between.faults, *to_host.faults))
        running.process.send_signal(signal.SIGTERM)
        assert (await running.done()).code == 143
    assert (host.home / "count").read_text() == "run\n" and len(host.model.requests) == 2
    assert (await host.command("stop", "--all")).code == 0
    assert await left_by(host.user) == []
