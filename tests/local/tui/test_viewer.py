"""A terminal that only watches: nothing can be typed or answered, and only Alt+T or F8 makes it drive."""

from __future__ import annotations

import time

import pytest
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import WHO, Desk, desk, key_event
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.session.session_client import LinkState
from ccb.local.terminal.keymap import BURST_S, HOLD_S
from ccb.tunnel.errors import UsageError

BY_ALICE = "“alice@desk pid 9” drives this session now"


async def _fence(at: Desk) -> None:
    await at.link(LinkState.FENCED, BY_ALICE, sees=f"◇ only watching: {BY_ALICE} · Alt+T takes it back")


async def test_a_fenced_terminal_says_who_took_over_and_alt_t_takes_back(at: Desk) -> None:
    await _fence(at)
    await at.until(lambda: at.status.startswith(" ◇ devbox:/srv/shop  ask  watching"))
    await at.sees("Nothing can be sent while this terminal only watches")
    await at.alone("alt+t", then=lambda: at.session.take_backs == 1 and "taking the session" in at.status)
    await at.link(LinkState.CONNECTED, sees="Ask for a change", loses="taking the session")
    await at.type("t", has="t")
    assert at.session.take_backs == 1


@pytest.mark.parametrize("keys", [("x", "alt+t"), ("alt+t", "h"), ("alt+t", "backspace")])
async def test_esc_and_a_word_do_not_take_the_session(at: Desk, keys: tuple[str, ...]) -> None:
    """A terminal sends Esc and t in the same way as Alt+T."""
    await _fence(at)
    await at.pause_of_a_person()
    began = time.monotonic()
    for number, key in enumerate(keys):
        event = key_event(key)
        event.time = began + number * BURST_S / 2
        at.app.post_message(event)
    await at.until(lambda: time.monotonic() - began > 2 * HOLD_S)
    assert at.session.take_backs == 0


async def test_one_that_never_drove_takes_over() -> None:
    async with desk(ScriptedSession(driving=False)) as at:
        at.session.link(LinkState.FENCED, "nobody drives this session")
        await at.sees("only watching: nobody drives this session · Alt+T takes it over")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("typed", ["t", "take care", "1. try that", "tt"])
async def test_what_a_viewer_types_never_takes_the_session(at: Desk, typed: str) -> None:
    await _fence(at)
    await at.enter(typed, sees="this terminal only watches: Alt+T drives the session")
    assert at.session.take_backs == 0 and at.session.prompts == []


@pytest.mark.parametrize("key", ["alt+t", "f8"])
async def test_a_draft_is_kept_and_cannot_be_changed_or_sent(at: Desk, key: str) -> None:
    await at.type("half a thought")
    await _fence(at)
    await at.press(*"xyz", "backspace", "enter", "up", sees="this terminal only watches: Alt+T drives the session")
    assert at.composer.text == "half a thought" and at.session.prompts == []
    await at.alone(key, then=lambda: at.session.take_backs == 1)
    await at.link(LinkState.CONNECTED, then=lambda: not at.composer.read_only)
    await at.press("enter", then=lambda: at.session.prompts == ["half a thought"])


async def test_a_question_waits_without_buttons_and_is_a_card_after_the_take_back(at: Desk) -> None:
    await _fence(at)
    at.session.ask("ask", "Bash", {"command": "make"})
    await at.sees("Bash on devbox:/srv/shop", "make", "Waits for the client that drives this session.")
    assert "1 Yes, once" not in at.screen and "approval waits" not in at.screen
    for key in ("tab", "1", "alt+a", "1", "3"):
        await at.press(key)
    assert at.session.answers == {}
    await at.alone("alt+t", then=lambda: at.session.take_backs == 1)
    at.session.link(LinkState.CONNECTED)
    await at.card_focused(sees="1 Yes, once", lacks="Waits for whoever")
    await at.answer("1", then=lambda: list(at.session.answers) == ["ask"])


async def test_who_is_fenced_on_the_card_loses_the_buttons_and_the_focus(at: Desk) -> None:
    await at.asked("Bash", {"command": "make"})
    await at.answer("4", sees="Why not?")
    await _fence(at)
    await at.sees("Waits for the client that drives this session.")
    await at.until(lambda: at.app.focused is at.composer, loses="Why not?")
    at.session.answered("ask")
    await at.until(lambda: at.view.card is None)


async def _watches_a_turn(at: Desk) -> None:
    """Somebody else's turn runs, and this terminal watches it."""
    await at.link(LinkState.FENCED, BY_ALICE, sees="only watching")
    at.session.prompted("what alice asks")
    at.session.begin()
    await at.until(lambda: "working" in at.status)


async def test_ctrl_c_leaves_it_while_the_agent_works_for_somebody_else() -> None:
    async with desk(ScriptedSession(driving=False)) as at:
        await _watches_a_turn(at)
        await at.quits()
        assert at.session.interrupts == 0


async def test_esc_says_which_key_makes_it_drive(at: Desk) -> None:
    await _watches_a_turn(at)
    await at.press("escape", then=lambda: "this terminal only watches: Alt+T drives the session" in at.status)
    await at.link(LinkState.RECONNECTING, "eof", 4, sees="reconnecting now")
    await at.press("escape", then=lambda: "this terminal only watches: Alt+T drives the session" in at.status)
    assert at.session.interrupts == 0


async def test_why_an_interrupt_was_refused_stays_to_be_read() -> None:
    class Overtaken(ScriptedSession):
        async def interrupt(self) -> None:
            raise UsageError("another client drives this session")

    async with desk(Overtaken(), turn="go") as at:
        await at.press("escape", then=lambda: "another client drives this session" in at.status)


async def test_an_answer_that_is_refused_leaves_the_question_open() -> None:
    class Refusing(ScriptedSession):
        async def answer(self, request_id: str, response: dict[str, object]) -> None:
            raise UsageError("another client drives this session")

    async with desk(Refusing()) as at:
        await at.asked("Bash", {"command": "make"})
        await at.answer("1", sees="another client drives this session")
        await at.until(lambda: at.view.card is not None, sees="1 Yes, once")


async def test_a_prompt_that_the_fence_overtook_waits_until_this_terminal_drives_again(at: Desk) -> None:
    at.session.swallow = True
    await at.prompt("too late")
    await _fence(at)
    await at.sees("❯ too late  (waiting to be sent)")
    at.session.swallow = False
    at.session.link(LinkState.CONNECTED)
    at.session.deliver()
    at.session.begin()
    await at.loses("(waiting to be sent)")
    await at.sees("too late")
    assert at.screen.count("too late") == 1


def test_who_drives_is_told_by_a_readable_name_and_oneself_as_oneself(told: Paper) -> None:
    told.fact("driver", by="alice@laptop pid 6 0123aa")
    told.fact("driver", by=WHO)
    told.text("Nothing to say of that.")
    told.sees("Nothing to say of that.")
    told.loses("drives this")
    told.fact("driver", by="bob@desk pid 9 c0ffee")
    told.sees("“bob@desk pid 9” drives this session now.")
    told.fact("driver", by=WHO)
    told.sees("You drive this session now.")
