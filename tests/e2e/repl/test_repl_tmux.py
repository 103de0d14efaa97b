"""A working day in one window of tmux, over a real sshd and a link that breaks. What counts is the screen."""

from __future__ import annotations

import sys
from contextlib import suppress
from statistics import median

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.tmux_window import Window, tmux_window

pytestmark = pytest.mark.visited

PASTED = [f"line {number} of what was pasted" for number in range(3)]


async def answer(window: Window, key: str) -> None:
    """Go to the card and answer it. Right after it appears, a card takes no focus; each press is waited for, because a
    second one would go back."""
    await window.shows("to answer")
    for _ in range(10):
        await window.press("M-a")
        with suppress(AssertionError):
            await window.until(lambda screen: "Esc back" in screen, 6)
            break
    await window.press(key)
    await window.press("Enter")


async def test_paste_approve_deny_interrupt_reconnect_resize_and_quit(host: Host) -> None:
    host.model.add(uses("Bash", command="echo one >> approved"), {"text": "Approved-work-is-done."})
    host.model.add(uses("Bash", command="echo one >> denied"), {"text": "Then-I-do-not."})
    host.model.add(uses("Bash", command="echo started; sleep 600"), {"text": "The-link-is-back."})
    async with relay(host.server.port) as link:
        argv = [sys.executable, "-m", "ccb", *host.ssh(port=link.port)]
        async with tmux_window(argv, host.laptop.env, str(host.laptop.home)) as window:
            await window.shows("F1 or /help", host.user.name)

            await window.paste("\n".join(PASTED))
            await window.shows(*PASTED)
            assert not host.model.requests, "a paste sends nothing"
            await window.press("Enter")
            await answer(window, "1")
            await window.shows("Approved-work-is-done.")
            assert (host.home / "approved").read_text() == "one\n"

            await window.type("and again\r")
            await answer(window, "4")
            await window.shows("Why not?")
            await window.type("not-on-a-friday")
            await window.shows("not-on-a-friday")
            await window.press("Enter")
            await window.until(lambda screen: "Then-I-do-not." in screen and "to answer" not in screen)
            assert not (host.home / "denied").exists()
            assert "not-on-a-friday" in str(host.model.requests[-1].messages)

            await window.type("run it\r")
            await window.shows("❯ run it", "started")
            await window.press("Escape")
            await window.shows("Interrupted.")

            link.cut()
            await window.resize(60, 20)
            await window.type("are you there?\r")
            screen = await window.shows("The-link-is-back.")
            assert all(len(line) <= 60 for line in screen.splitlines())
            assert len(screen.splitlines()) <= 20

            await window.press("C-d")
            assert await window.ended() == 0
            await window.shows("Come back with:")
    assert all(line in host.model.requests[0].messages[0]["content"][-1]["text"] for line in PASTED)


@pytest.mark.thorough  # on a machine that is busy, more than two seconds pass between two questions
async def test_twenty_approvals_take_one_key_each(host: Host) -> None:
    commands = [f"echo {number}. >> approved" for number in range(20)]
    host.model.add(*(uses("Bash", command=command) for command in commands), {"text": "All-is-done."})
    argv = [sys.executable, "-m", "ccb", *host.ssh()]
    pressed = []
    async with tmux_window(argv, host.laptop.env, str(host.laptop.home)) as window:
        await window.shows("F1 or /help")
        await window.type("go\r")
        for command in commands:
            await window.shows(f"$ {command}")
            pressed.append(await window.says_yes("Enter answers"))
        await window.shows("All-is-done.")
    assert (host.home / "approved").read_text().split() == [f"{number}." for number in range(20)]
    assert median(pressed) == 1, pressed
