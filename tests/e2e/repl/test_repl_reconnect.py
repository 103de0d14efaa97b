"""The REPL when what carries its link is killed, and a second terminal that comes back to its session."""

from __future__ import annotations

import shlex

import psutil
import pytest
from tests.support.hosts.reached_host import Host
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here
from tests.support.person.terminal import Terminal

pytestmark = pytest.mark.visited

ASKED = "─ Bash on"  # the border of the card


async def _ask(running: Terminal, fake_model: FakeModel, command: str) -> None:
    fake_model.add(uses("Bash", command=command), {"text": "Counted-once."})
    await running.shows("F1 or /help")
    running.type("count to one\r")
    await running.shows(ASKED)


async def test_the_command_of_the_farewell_brings_the_question_back(here: Here) -> None:
    counter = here.project / "counter"
    async with here.on_terminal() as running:
        await _ask(running, here.model, f"echo one >> {counter}")
        running.type("\x04")
        assert await running.ended() == 0
        await running.shows("The agent waits there for an answer.")
        await running.shows("Come back with:")
        command = shlex.split(running.text.partition("Come back with:")[2].strip().splitlines()[0])
    assert not counter.exists()
    assert command[0] == "ccb"
    async with here.laptop.on_terminal(*command[1:]) as again:
        await again.shows("❯ count to one")
        await again.shows(ASKED)
        await again.answer("1")
        await again.shows("Counted-once.")
        assert counter.read_text() == "one\n"
        again.type("/stop\r")
        assert await again.ended() == 0
        await again.shows("It was stopped on the host.")


async def test_a_login_that_must_be_made_again_asks_only_when_the_person_wants_it(host: Host) -> None:
    options = [*host.locked_key(), "--transport", "ssh", "-o", "ControlPath=none"]
    async with host.laptop.on_terminal("ssh", f"{host.login}:~", *options) as running:
        await running.shows("Enter passphrase for")
        running.type("open sesame\r")
        await running.shows("F1 or /help")
        asked = running.text.count("Enter passphrase for")
        for client in psutil.Process(running.process.pid).children():
            client.kill()
        await running.shows("r logs in")
        assert running.text.count("Enter passphrase for") == asked
        running.type("r")
        await running.until(lambda: running.text.count("Enter passphrase for") > asked)
        running.type("open sesame\r")
        await running.until(lambda: host.server.logins == 2)
        assert "open sesame" not in running.text
        running.type("\x15/stop\r")  # at once after the r, which may be the first letter of a word
        assert await running.ended() == 0


@pytest.mark.parametrize("then", ["takes it back", "leaves"])
@pytest.mark.quick_rows(1)
async def test_an_answer_is_paid_once_although_another_terminal_takes_over(here: Here, then: str) -> None:
    here.model.add({"text": "A long answer that somebody else comes in the middle of.", "stall_after": 4})
    async with here.on_terminal() as first:
        await first.shows("F1 or /help")
        first.type("go\r")
        await here.model.until(lambda model: len(model.requests) == 1)
        async with here.laptop.on_terminal("attach", "--local") as second:
            await second.shows("❯ go")
            await first.shows("drives this session now")
            if then == "leaves":
                first.type("\x04")
                await first.shows("this ccb ends when it has read the answer that it asked for")
            else:
                await first.chord("\x1bt")
                await second.shows("drives this session now")
            here.model.release()
            for terminal_that_sees in [second] + [first] * (then != "leaves"):
                await terminal_that_sees.shows("somebody else comes in the middle of.")
            if then == "leaves":
                assert await first.ended() == 0
            second.type("\x04")
            assert await second.ended() == 0
        if then != "leaves":
            first.type("/stop\r")
            assert await first.ended() == 0
    assert len(here.model.requests) == 1
