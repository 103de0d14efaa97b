"""What a person who looks elsewhere sees and hears."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.support.repl.pilot import Desk

from ccb.local.tui.attention import Attention, Notify


class Driver:
    def __init__(self) -> None:
        self.written = ""

    def write(self, data: str) -> None:
        self.written += data


class App:
    def __init__(self, *, focus: bool = False) -> None:
        self.app_focus = focus
        self.bells = 0

    def bell(self) -> None:
        self.bells += 1


def attention(environ: dict[str, str], *, focus: bool = False) -> tuple[Attention, App, Driver]:
    app, driver = App(focus=focus), Driver()
    made = Attention(cast(Any, app), environ)
    made.session_is("devbox:/srv/a;b", cast(Any, driver), headless=False)
    return made, app, driver


@pytest.mark.parametrize(
    ("environ", "sequence"),
    [
        ({"TERM": "xterm-kitty"}, "\x1b]9;ccb devbox:/srv/a;b: The agent asks you something\x07"),
        ({"TERM": "xterm", "TERM_PROGRAM": "WezTerm"}, "\x1b]9;ccb devbox:/srv/a;b: The agent asks you something\x07"),
        ({"TERM": "foot"}, "\x1b]777;notify;ccb devbox:/srv/a,b;The agent asks you something\x07"),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/t"}, ""),
    ],
)
def test_a_terminal_that_can_shows_a_notification_beside_the_bell(environ: dict[str, str], sequence: str) -> None:
    made, app, driver = attention(environ)
    driver.written = ""
    made.ring("permission_prompt", silent=False)
    assert (app.bells, driver.written) == (1, sequence)


@pytest.mark.parametrize(("how", "bells", "written"), [("bell", 1, False), ("osc9", 0, True), ("off", 0, False)])
def test_the_person_chooses_how_they_are_called(how: str, bells: int, written: bool) -> None:
    made, app, driver = attention({"TERM": "xterm"})
    made.how, driver.written = Notify(how), ""
    made.ring("idle_prompt", silent=False)
    assert (app.bells, bool(driver.written)) == (bells, written)


def test_nobody_is_called_who_looks_at_it_or_logs_in() -> None:
    told: list[str] = []
    for focus, silent in ((True, False), (False, True)):
        made, app, driver = attention({"TERM": "foot"}, focus=focus)
        driver.written, made.notify_person = "", told.append
        made.ring("permission_prompt", silent=silent)
        made.ring("", silent=silent)
        assert (app.bells, driver.written) == (0, "")
    assert told == ["permission_prompt", "permission_prompt"], "their own hooks hear of each question"


def test_the_title_says_what_the_session_does_and_is_written_only_when_that_changes() -> None:
    made, _, driver = attention({})
    driver.written = ""
    for state, name in (("working", ""), ("working", ""), ("waits for you", "Fix `the` cart;"), ("", "")):
        made.state_is(state, name)
    titles = [each.partition("\x1b]2;")[2] for each in driver.written.split("\x07") if each]
    place = "ccb devbox:/srv/a;b"
    assert titles == [f"working · {place}", f"waits for you · Fix the cart · {place}", place]
    made.restore()
    assert driver.written.endswith("\x1b]2;\x07\x1b[23;2t")


async def test_a_turn_of_the_session_is_told_to_the_title(at: Desk) -> None:
    told: list[str] = []
    at.view.status.tell_state = lambda state, title: told.append(f"{title}{state}")
    at.session.begin()
    await at.until(lambda: "working" in told)
    at.session.ask("q1", "Bash", {"command": "make"})
    await at.until(lambda: told[-1] == "waits for you")
