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
    at.session.link(LinkState.FENCED, BY_ALICE)
    await at.sees(f"◇ only watching: {BY_ALICE} · Alt+T takes it back")


async def test_a_fenced_terminal_says_who_took_over_and_alt_t_takes_back() -> None:
    async with desk() as at:
        await _fence(at)
        await at.until(lambda: at.status.startswith(" ◇ devbox:/srv/shop  ask  watching"))
        await at.sees("Nothing can be sent while this terminal only watches")
        await at.chord("alt+t")
        await at.until(lambda: at.session.take_backs == 1)
        at.session.link(LinkState.CONNECTED)
        await at.sees("Ask for a change")
        await at.type("t")
        assert at.app.composer.text == "t"
        assert at.session.take_backs == 1


@pytest.mark.parametrize("keys", [("x", "alt+t"), ("alt+t", "h"), ("alt+t", "backspace")])
async def test_esc_and_a_word_do_not_take_the_session(keys: tuple[str, ...]) -> None:
    """A terminal sends Esc and t in the same way as Alt+T."""
    async with desk() as at:
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


@pytest.mark.parametrize("typed", ["t", "take care", "1. try that", "tt"])
async def test_what_a_viewer_types_never_takes_the_session(typed: str) -> None:
    async with desk() as at:
        await _fence(at)
        await at.enter(typed)
        await at.sees("this terminal only watches: Alt+T drives the session")
        assert at.session.take_backs == 0
        assert at.session.prompts == []


async def test_the_session_is_still_told() -> None:
    async with desk() as at:
        await _fence(at)
        at.session.prompted("what alice asks")
        at.session.begin()
        at.session.text("What alice is told.")
        await at.sees("❯ what alice asks", "What alice is told.")


@pytest.mark.parametrize("key", ["alt+t", "f8"])
async def test_a_draft_is_kept_and_cannot_be_changed_or_sent(key: str) -> None:
    async with desk() as at:
        await at.type("half a thought")
        await _fence(at)
        await at.type("xyz")
        await at.pilot.press("backspace", "enter", "up")
        await at.sees("this terminal only watches: Alt+T drives the session")
        assert at.app.composer.text == "half a thought"
        assert at.session.prompts == []
        await at.chord(key)
        await at.until(lambda: at.session.take_backs == 1)
        at.session.link(LinkState.CONNECTED)
        await at.until(lambda: not at.app.composer.read_only)
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ["half a thought"])


async def test_a_question_waits_without_buttons_and_is_a_card_after_the_take_back() -> None:
    async with desk() as at:
        await _fence(at)
        at.session.ask("ask", "Bash", {"command": "make"})
        await at.sees("Bash on devbox:/srv/shop", "make", "Waits for the client that drives this session.")
        assert "1 once" not in at.screen
        assert "approval waits" not in at.screen
        for key in ("tab", "1", "alt+a", "1", "3"):
            await at.pilot.press(key)
        assert at.session.answers == {}
        await at.chord("alt+t")
        await at.until(lambda: at.session.take_backs == 1)
        at.session.link(LinkState.CONNECTED)
        await at.card_focused()
        await at.sees("1 once")
        assert "Waits for whoever" not in at.screen
        await at.answer("1")
        await at.until(lambda: list(at.session.answers) == ["ask"])


async def test_who_is_fenced_on_the_card_loses_the_buttons_and_the_focus() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.ask("ask", "Bash", {"command": "make"})
        await at.card_focused()
        await at.answer("3")
        await at.sees("Why not?")
        await _fence(at)
        await at.sees("Waits for the client that drives this session.")
        await at.until(lambda: at.app.focused is at.app.composer)
        await at.loses("Why not?")
        at.session.answered("ask")
        await at.until(lambda: at.app.view.card is None)


async def test_it_can_be_left() -> None:
    async with desk() as at:
        await _fence(at)
        await at.pilot.press("ctrl+d")
        await at.until(lambda: at.app.return_value == 0)


async def _watches_a_turn(at: Desk) -> None:
    """Somebody else's turn runs, and this terminal watches it."""
    at.session.link(LinkState.FENCED, BY_ALICE)
    await at.sees("only watching")
    at.session.prompted("what alice asks")
    at.session.begin()
    await at.until(lambda: "working" in at.status)


async def test_ctrl_c_leaves_it_while_the_agent_works_for_somebody_else() -> None:
    async with desk(ScriptedSession(driving=False)) as at:
        await _watches_a_turn(at)
        await at.pilot.press("ctrl+c")
        await at.sees("press Ctrl+C again to quit")
        await at.pilot.press("ctrl+c")
        await at.until(lambda: at.app.return_value == 0)
        assert at.session.interrupts == 0


async def test_ctrl_c_leaves_it_with_the_draft_of_who_was_fenced() -> None:
    async with desk() as at:
        await at.type("half a thought")
        await _watches_a_turn(at)
        await at.pilot.press("ctrl+c")
        await at.sees("press Ctrl+C again to quit", "half a thought")
        await at.pilot.press("ctrl+c")
        await at.until(lambda: at.app.return_value == 0)


async def test_esc_says_which_key_makes_it_drive() -> None:
    async with desk() as at:
        await _watches_a_turn(at)
        await at.pilot.press("escape")
        await at.until(lambda: "this terminal only watches: Alt+T drives the session" in at.status)
        at.session.link(LinkState.RECONNECTING, "eof", 4)
        await at.sees("reconnecting now")
        await at.pilot.press("escape")
        await at.until(lambda: "this terminal only watches: Alt+T drives the session" in at.status)
        assert at.session.interrupts == 0


@pytest.mark.parametrize(
    ("width", "said"), [(60, "Alt+T drives"), (76, "shop  ask  this terminal only watches: Alt+T drives the session")]
)
async def test_a_hint_is_said_also_where_the_place_and_the_link_fill_the_line(width: int, said: str) -> None:
    async with desk(size=(width, 24)) as at:
        await _watches_a_turn(at)
        await at.pilot.press("escape")
        await at.until(
            lambda: "this terminal only watches: Alt+T " in at.status and said in at.status and "shop  " in at.status
        )


async def test_why_an_interrupt_was_refused_stays_to_be_read() -> None:
    class Overtaken(ScriptedSession):
        async def interrupt(self) -> None:
            raise UsageError("another client drives this session")

    async with desk(Overtaken()) as at:
        await at.turn()
        await at.pilot.press("escape")
        await at.until(lambda: "another client drives this session" in at.status)


async def test_an_answer_that_is_refused_leaves_the_question_open() -> None:
    class Refusing(ScriptedSession):
        async def answer(self, request_id: str, response: dict[str, object]) -> None:
            raise UsageError("another client drives this session")

    async with desk(Refusing()) as at:
        await at.prompt("go")
        at.session.ask("ask", "Bash", {"command": "make"})
        await at.card_focused()
        await at.answer("1")
        await at.sees("another client drives this session")
        await at.until(lambda: at.app.view.card is not None)
        await at.sees("1 once")


async def test_a_prompt_that_the_fence_overtook_waits_until_this_terminal_drives_again() -> None:
    async with desk() as at:
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


def test_who_drives_is_told_by_a_readable_name_and_oneself_as_oneself() -> None:
    told = Paper()
    told.fact("driver", by="alice@laptop pid 6 0123aa")
    told.fact("driver", by=WHO)
    told.text("Nothing to say of that.")
    told.sees("Nothing to say of that.")
    told.loses("drives this")
    told.fact("driver", by="bob@desk pid 9 c0ffee")
    told.sees("“bob@desk pid 9” drives this session now.")
    told.fact("driver", by=WHO)
    told.sees("You drive this session now.")


def test_who_drove_before_this_terminal_came_is_not_told() -> None:
    told = Paper(idle=True)
    with told.replay():
        told.fact("driver", by="alice@laptop pid 6 0123aa")
        told.fact("driver", by="alice@laptop pid 8 0123aa")
        told.text("It is done.")
    told.fact("driver", by=WHO)
    told.text("And this is new.", message_id="msg_2")
    told.sees("It is done.", "And this is new.")
    told.loses("this session now")


async def test_what_was_asked_for_is_not_said_any_more_once_it_is_so() -> None:
    async with desk() as at:
        await _fence(at)
        await at.chord("alt+t")
        await at.until(lambda: "taking the session" in at.status)
        at.session.link(LinkState.CONNECTED)
        await at.until(lambda: "watching" not in at.status)
        assert "taking the session" not in at.status
