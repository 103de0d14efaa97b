"""`ccb serve` as a person uses it, from the link in the terminal to the agent's work in the browser."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.browser import CHROMIUM, DESKTOP, PHONE, browser, chromium
from tests.support.hosts.reached_host import Host
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here, Running
from yarl import URL

NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
COMMAND = "echo run >> ran"


async def first_link(running: Running) -> str:
    assert running.process.stdout is not None
    return (await running.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def served(here: Here, *options: str) -> AsyncIterator[tuple[Running, str]]:
    """Serve a session in the project: the run, and its first link."""
    here.model.add(
        {**uses("Bash", command=COMMAND), "text": "I run it."},
        {"text": "It has run, and that is all.", "stall_after": 8, "when": {"has_tool_result": True}},
    )
    async with here.laptop.start(
        ["serve", *options, "ssh", "here", "--local", str(here.project)], piped=False
    ) as running:
        yield running, await first_link(running)
        running.process.send_signal(signal.SIGTERM)
        done = await running.done()
        assert done.code == 143 and "Traceback" not in done.stderr, done.stderr


async def test_a_window_that_is_loaded_again_in_the_middle_of_a_turn_misses_nothing(here: Here) -> None:
    async with served(here) as (_, link), browser(link) as person:
        window = await person.window()
        await window.sees("Ask for a change")
        await window.types("go\r", sees="Yes, once")
        window = await person.window()
        await window.sees("Yes, once")
        await window.presses("\t", sees="Esc back")
        await window.presses("1", "\r", sees="It has")
        await window.ws.close()
        await until((here.project / "ran").exists)
        here.model.release()
        window = await person.window()
        await window.sees("that is all.")
    assert (here.project / "ran").read_text() == "run\n" and len(here.model.requests) == 2


async def test_without_a_command_it_is_the_dash(here: Here) -> None:
    other = here.laptop.home / "ccb"  # a module of the directory where it was started is not ccb
    other.mkdir()
    for each in ("__init__.py", "__main__.py"):
        (other / each).touch()
    async with here.laptop.start(["serve", "local"], piped=False) as running:
        async with browser(await first_link(running)) as person:
            window = await person.window()
            await window.sees("ccb dash")
            await window.types("q")
            assert await window.closed() == 4000
        running.process.send_signal(signal.SIGTERM)
        assert (await running.done()).code == 143


@pytest.mark.visited
async def test_a_login_asks_in_the_window_also_in_one_that_comes_back(host: Host) -> None:
    async with host.laptop.start(["serve", "ssh", host.login, *host.locked_key()], piped=False) as running:
        async with browser(await first_link(running)) as person:
            window = await person.window()
            await window.sees("Passphrase for")
            window = await person.window()
            await window.sees("Passphrase for")
            await window.types("open sesame\r", sees="Ask for a change")
        running.process.send_signal(signal.SIGTERM)
        assert (await running.done()).code == 143


@pytest.mark.thorough
@NEEDS_CHROMIUM
async def test_at_a_desk_the_page_loads_nothing_from_elsewhere_and_finds_the_screen_again(
    here: Here, tmp_path: Path
) -> None:
    async with served(here) as (_, link), chromium(tmp_path / "chromium") as page:
        await page.open(link, DESKTOP)
        await page.sees("Ask for a change")
        await page.types("go\r", sees="Yes, once")
        await page.call("Page.reload")
        await page.tap_text("Yes, once", sees="Enter answers")
        await page.screenshot(tmp_path / "desktop-again.png")
        await page.types("\r", sees="It has")
        await page.call("Page.reload")
        here.model.release()
        await page.sees("that is all.")
        await page.evaluate("stays = true; say('It is open in another window.'); hiddenAt = 1")
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        assert await page.evaluate("new Promise(done => setTimeout(() => done(stays), 500))"), "it took the screen back"
        await page.evaluate("notice.hidden = true; document.dispatchEvent(new Event('visibilitychange'))")
        await page.until("!window.stays && !!window.terminalOfTest")
        assert {URL(each).origin() for each in page.asked if each.startswith("http")} == {URL(link).origin()}
        assert page.errors == []


@pytest.mark.thorough
@NEEDS_CHROMIUM
async def test_on_a_phone_everything_is_done_by_touch_but_writing(here: Here, tmp_path: Path) -> None:
    async with served(here) as (_, link), chromium(tmp_path / "chromium") as page:
        await page.open(link, PHONE)
        await page.sees("Ask for a change")
        await page.types("go", sees="go")
        await page.tap("[data-key=enter]", sees="Yes, once")
        await page.tap_text("Yes, once", sees="Enter answers")
        await page.screenshot(tmp_path / "phone-card.png")
        await page.tap_text("Yes, once", sees="It has")
        await page.tap("[data-key=control]")
        here.model.release()
        await page.sees("that is all.")
        await page.types("d")  # with the Ctrl that is held
        await page.until("!notice.hidden")
    assert (here.project / "ran").read_text() == "run\n"
