"""A working day in one window of tmux, over a real sshd and a link that breaks. What counts is the screen."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import Laptop
from tests.support.person.tmux import Window, tmux_window

pytestmark = pytest.mark.visited

PASTED = [f"line {number} of what was pasted" for number in range(3)]


def bash(command: str) -> dict[str, object]:
    return uses("Bash", command=command)


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
    await window.shows("answers")  # where ccb stands still, it reads two keys at once, and they are text
    await window.press("Enter")


async def test_paste_approve_deny_interrupt_reconnect_resize_and_quit(
    laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser
) -> None:
    home = Path(host_user.home)
    fake_model.add(bash("echo one >> approved"), {"text": "Approved-work-is-done."})
    fake_model.add(bash("echo one >> denied"), {"text": "Then-I-do-not."})
    fake_model.add(bash("echo started; sleep 600"))
    fake_model.add({"text": "The-link-is-back."})
    async with relay(sshd.port) as link:
        place = f"{host_user.name}@127.0.0.1:{home}"
        argv = [sys.executable, "-m", "ccb", "ssh", place, *sshd.client_options(link.port)]
        async with tmux_window(argv, laptop.env, str(laptop.home)) as window:
            await window.shows("F1 or /help", host_user.name)

            await window.paste("\n".join(PASTED))
            await window.shows(*PASTED)
            assert not fake_model.requests, "a paste sends nothing"
            await window.press("Enter")
            await answer(window, "1")
            await window.shows("Approved-work-is-done.")
            assert (home / "approved").read_text() == "one\n"

            await window.type("and again\r")
            await answer(window, "3")
            await window.shows("Why not?")
            await window.type("not-on-a-friday")
            await window.shows("not-on-a-friday")
            await window.press("Enter")
            await window.until(lambda screen: "Then-I-do-not." in screen and "to answer" not in screen)
            assert not (home / "denied").exists()
            assert "not-on-a-friday" in str(fake_model.requests[-1].messages)

            await window.type("run it\r")
            await window.shows("❯ run it", "started")
            await window.press("Escape")
            await window.shows("Request interrupted")

            link.cut()
            await window.resize(60, 20)
            await window.type("are you there?\r")
            screen = await window.shows("The-link-is-back.")
            assert all(len(line) <= 60 for line in screen.splitlines())
            assert len(screen.splitlines()) <= 20

            await window.press("C-d")
            assert await window.ended() == 0
            await window.shows("Come back with:")
    assert all(line in fake_model.requests[0].messages[0]["content"][-1]["text"] for line in PASTED)
