"""The connection on the screen: a banner that counts down, keys that act at once, and no typed text gets lost."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from functools import partial
from itertools import repeat

import pytest
from tests.support.repl.pilot import RESUME, Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, hello

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.session.dialing import RetrySchedule
from ccb.local.session.session_client import LinkChange, LinkState
from ccb.local.terminal.keymap import DEFAULT_KEYMAP
from ccb.local.tui.widgets.connection_banner import BRIEF_S, STUCK_S, BannerMessage, ConnectionView
from ccb.tunnel.errors import ConnectionLost, UsageError

SILENT = "the host has not answered for 15 s"


async def _drop(at: Desk, wait_s: float = 600) -> None:
    await at.link(LinkState.RECONNECTING, SILENT, 4, time.monotonic() + wait_s, sees="reconnecting in")


@pytest.mark.slow
async def test_a_lost_connection_says_why_and_counts_down_to_the_next_attempt(at: Desk) -> None:
    said = re.compile(r"◌ reconnecting in (\d+) s \(attempt 4\): the host has not answered for 15 s · r connects now")
    await at.link(LinkState.RECONNECTING, SILENT, 4, time.monotonic() + 600, then=lambda: said.search(at.screen))
    await at.until(lambda: at.status.startswith(" ◌ devbox:/srv/shop  ask  reconnecting"))
    (first,) = said.findall(at.screen)
    await at.until(lambda: int(said.findall(at.screen)[0]) < int(first))
    await at.link(LinkState.RECONNECTING, SILENT, 4, sees="reconnecting now (attempt 4): the host")
    await at.link(LinkState.CONNECTED, loses="attempt")
    assert at.status.startswith(" ● devbox:/srv/shop  ask")


def test_a_drop_shorter_than_a_second_is_never_shown() -> None:
    connection = ConnectionView(ScriptedSession(), DEFAULT_KEYMAP)
    connection.changed(LinkChange(LinkState.RECONNECTING, "eof", 1, 100.0), 100.0)
    connection.changed(LinkChange(LinkState.RECONNECTING, "eof", 1), 100.1)
    connection.settle(100.0 + 0.9 * BRIEF_S)
    assert connection.shown is LinkState.CONNECTED
    assert connection.banner_message(100.9, typing=False) is None and connection.keys() == frozenset()
    connection.changed(LinkChange(LinkState.CONNECTED), 100.95)
    connection.changed(LinkChange(LinkState.RECONNECTING, "eof", 1, 101.0), 101.0)
    connection.settle(101.5)
    assert connection.banner_message(101.5, typing=False) is None
    connection.settle(101.0 + BRIEF_S)
    assert connection.banner_message(102.0, typing=False) is not None


async def test_a_link_that_does_not_answer_is_seen_with_its_seconds_and_its_drop_at_once() -> None:
    async with desk(turn="go") as at:
        at.session.unanswered_s = 4.2
        await at.until(lambda: at.status.startswith(" ◌") and "no answer for 4 s" in at.status)
        assert "Esc interrupts" not in at.status
        at.session.unanswered_s = 0.0
        await at.until(lambda: at.status.startswith(" ●") and "no answer" not in at.status)
        at.session.unanswered_s = 4.2
        await at.until(lambda: "no answer" in at.status)
        await at.link(LinkState.RECONNECTING, SILENT, 1, time.monotonic() + 600, sees="reconnecting in")
    connection = ConnectionView(session := ScriptedSession(), DEFAULT_KEYMAP)
    session.unanswered_s = 4.2
    connection.settle(100.0)
    connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 1, 100.0), 100.1)
    assert connection.shown is LinkState.RECONNECTING


def _hanging(asking: bool = False) -> ConnectionView:
    """The first attempt has begun at 100.0, over a link that is frozen."""
    connection = ConnectionView(ScriptedSession(), DEFAULT_KEYMAP)
    if asking:
        connection.changed(LinkChange(LinkState.NEEDS_PERSON, "a password"), 99.0)
        connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 1), 100.0)
    else:
        connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 1, 100.0), 100.0)
    connection.settle(102.0)
    return connection


def test_an_attempt_that_hangs_shows_its_age_and_the_key_that_starts_anew() -> None:
    connection = _hanging()
    assert connection.banner_message(105.0, typing=False) == BannerMessage("reconnecting now (attempt 1)", SILENT)
    hangs = BannerMessage("reconnecting now (attempt 1, for 12 s)", SILENT, "r", "tries again now")
    assert connection.banner_message(112.0, typing=False) == hangs
    assert connection.banner_message(112.0, typing=True) == replace(hangs, key="Alt+R")
    connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 2, 112.0), 112.0)
    assert connection.banner_message(112.1, typing=False) == BannerMessage("reconnecting now (attempt 2)", SILENT)


def test_an_attempt_is_as_old_as_its_beginning_not_as_the_wait_for_it() -> None:
    connection = ConnectionView(ScriptedSession(), DEFAULT_KEYMAP)
    connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 4, 130.0), 100.0)
    connection.settle(129.5)
    assert connection.banner_message(129.5, typing=False) == BannerMessage(
        "reconnecting in 1 s (attempt 4)", SILENT, "r", "connects now"
    )
    connection.changed(LinkChange(LinkState.RECONNECTING, SILENT, 4), 130.0)
    assert connection.banner_message(134.0, typing=False) == BannerMessage("reconnecting now (attempt 4)", SILENT)


def test_a_login_that_may_ask_the_person_is_not_started_anew() -> None:
    sentence = _hanging(asking=True).banner_message(112.0, typing=False)
    assert sentence == BannerMessage("reconnecting now (attempt 1, for 12 s)", SILENT, "", "tries again now")


async def test_the_key_that_starts_anew_is_offered_only_once_it_does() -> None:
    attempts = RetrySchedule(600, lambda: repeat(0.0))
    offered = _hanging().banner_message(100.0 + STUCK_S + 0.01, typing=False)
    assert offered is not None and offered.key == "r"
    limit = attempts.begin(endless=False)
    with pytest.raises(TimeoutError):
        async with limit:
            attempts._began -= STUCK_S + 0.01
            attempts.retry()
            await asyncio.Event().wait()


async def test_r_retries_while_nothing_is_typed_and_is_a_letter_otherwise(at: Desk) -> None:
    await at.type("r")
    assert at.session.retries == 0
    await _drop(at)
    await at.type("r", has="rr")
    assert at.session.retries == 0
    await at.sees("Alt+R connects now")
    at.composer.clear()
    await at.sees("· r connects now")
    await at.press("r", then=lambda: at.session.retries == 1)
    assert at.composer.text == ""


@pytest.mark.parametrize("key", ["alt+r", "f5"])
async def test_the_chord_retries_whatever_is_typed(at: Desk, key: str) -> None:
    await _drop(at)
    await at.type("half a thought")
    await at.alone(key, then=lambda: at.session.retries == 1)
    assert at.composer.text == "half a thought"


async def test_a_word_that_begins_with_r_is_not_beheaded(at: Desk) -> None:
    await _drop(at)
    await at.type("run the tests", has="run the tests")


async def test_a_login_that_needs_the_person_says_so_and_r_begins_it(at: Desk) -> None:
    at.session.link(LinkState.NEEDS_PERSON, "devbox asks for a password", 2)
    await at.sees("! not connected: devbox asks for a password · r logs in")
    assert "needs you" in at.status
    await at.press("r", then=lambda: at.session.retries == 1)


async def test_typed_text_survives_every_change_of_the_connection(at: Desk) -> None:
    await at.type("half a thought")
    for state in (
        LinkState.RECONNECTING, LinkState.NEEDS_PERSON, LinkState.RECONNECTING, LinkState.CONNECTED,
        LinkState.FENCED, LinkState.RECONNECTING, LinkState.CONNECTED, LinkState.RECONNECTING,
    ):  # fmt: skip
        await at.link(state, "why not", then=partial(lambda wanted: at.view.connection.state is wanted, state))
    at.session.fail(ConnectionLost("gone for good"))
    await at.sees("gone for good")
    assert at.composer.text == "half a thought"
    await at.type(" more", has="half a thought more")


async def test_a_prompt_without_a_connection_waits_below_everything_and_is_taken_once(at: Desk) -> None:
    await _drop(at)
    await at.prompt("go on without me", sees="❯ go on without me  (waiting to be sent)")
    assert "working" not in at.status
    at.session.link(LinkState.CONNECTED)
    with at.session.replay():
        at.session.text("What happened meanwhile.")
    await at.sees("What happened meanwhile.", "go on without me")
    assert at.screen.index("What happened meanwhile.") < at.screen.index("go on without me")
    at.session.deliver()
    at.session.begin()
    await at.says("Now the prompt.", message_id="msg_2", sees="Now the prompt.")
    assert "waiting" not in at.screen and at.screen.count("go on without me") == 1
    assert at.screen.index("go on without me") < at.screen.index("Now the prompt.")


async def test_a_prompt_whose_way_was_cut_waits_too(at: Desk) -> None:
    session = at.session
    session.swallow = True
    await at.prompt("into the tunnel", sees="❯ into the tunnel")
    await _drop(at)
    await at.sees("❯ into the tunnel  (waiting to be sent)")
    await at.until(lambda: "working" not in at.status)
    session.swallow = False
    session.link(LinkState.CONNECTED)
    session.deliver()
    session.begin()
    await at.until(lambda: "waiting" not in at.screen and "working" in at.status)
    assert at.screen.count("into the tunnel") == 1


async def test_a_prompt_that_is_refused_comes_back_to_the_composer() -> None:
    session = ScriptedSession()
    session.prompt_failure = UsageError("another client drives this session")
    async with desk(session) as at:
        await at.enter("my work", sees="not sent: another client drives this session")
        assert at.composer.text == "my work" and "❯ my work" not in at.screen
        assert not at.view.reducer.running


async def test_the_turn_goes_on_while_the_connection_is_lost(at: Desk) -> None:
    await at.turn(then=lambda: "working" in at.status and "Esc interrupts" in at.status)
    await _drop(at)
    await at.until(lambda: "working" in at.status and "Esc" not in at.status)
    at.session.link(LinkState.CONNECTED)
    with at.session.replay():
        at.session.finish()
    await at.until(lambda: "working" not in at.status)


async def test_a_question_can_be_answered_while_the_connection_is_lost_and_the_card_says_so(at: Desk) -> None:
    await at.asked("Bash", {"command": "make"})
    await _drop(at)
    await at.sees("Not connected: the answer is sent when the connection is there again.", "1 Yes, once")
    await at.answer("1", then=lambda: at.session.answers)
    await at.until(lambda: at.view.card is None, sees="sent when the connection is there again")
    at.session.link(LinkState.CONNECTED)
    at.session.deliver()
    await at.says("Made.", sees="Made.")
    assert at.view.card is None and "another client" not in at.screen


async def test_a_lost_session_says_why_and_how_to_come_back_and_keeps_what_was_read(at: Desk) -> None:
    at.session.begin()
    at.session.streams("A **half** answer")
    await at.sees("A half answer")
    at.session.fail(ConnectionLost("devbox is gone", evidence="reset by peer", do="Connect again."))
    await at.sees("✗ lost: devbox is gone", "A half answer", RESUME, "reset by peer", "Connect again.")
    await at.until(lambda: at.status.startswith(" ✗ devbox:/srv/shop  ask  lost"))
    await at.sees("Nothing can be sent any more: Ctrl+D leaves")
    assert at.screen.count("leaves") == 1
    await at.type("once more")
    await at.sees("✗ lost: devbox is gone · Ctrl+Q twice leaves")  # Ctrl+D deletes now
    await at.press("enter", sees="❯ once more  (not sent)")
    await at.enter("and again", sees="❯ and again  (not sent)")
    assert at.screen.count("reset by peer") == 1
    at.session.prompt_failure = ConnectionLost("the session has ended")
    await at.enter("and now", sees=("❯ and now  (not sent)", "the session has ended"))
    await at.enter("/cost", sees="0 tokens in")


async def test_the_command_that_comes_back_is_shown_once(at: Desk) -> None:
    at.session.fail(ConnectionLost("devbox is gone", do=f"The session goes on. Come back with: {RESUME}"))
    await at.sees("✗ lost: devbox is gone", "Nothing can be sent any more", RESUME)
    assert at.screen.count(RESUME) == 1


@pytest.mark.parametrize("keys", [("ctrl+d",), ("ctrl+c", "ctrl+c")])
async def test_who_leaves_a_lost_session_gets_its_exit_code_and_the_command(at: Desk, keys: tuple[str, ...]) -> None:
    at.session.fail(ConnectionLost("devbox is gone"))
    await at.sees("✗ lost: devbox is gone")
    await at.press(*keys, then=lambda: at.app.return_value is not None)
    assert at.app.return_value == ExitCode.LINK_LOST
    said = ["Session 5e55 on devbox:/srv/shop", "Lost: devbox is gone.", "Come back with:", f"  {RESUME}"]
    assert at.view.farewell() == said


async def test_a_session_that_has_ended_on_the_host_is_left_with_code_0(at: Desk) -> None:
    await at.session.stop()
    await at.sees("The session has ended on the host.", ": Ctrl+D leaves")
    await at.press("ctrl+d", then=lambda: at.app.return_value is not None)
    assert at.app.return_value == ExitCode.OK


async def test_on_a_small_terminal_the_key_is_seen_however_long_the_reason_is() -> None:
    async with desk(size=(40, 10)) as at:
        at.session.link(LinkState.RECONNECTING, "because " * 40, 4, time.monotonic() + 600)
        await at.sees("reconnecting in", "…", "r connects now")
        assert at.status.startswith(" ◌ devbox:/srv/shop")


async def test_what_the_key_does_is_never_torn_apart() -> None:
    async with desk(size=(40, 24)) as at:
        for width in (40, 60, 80, 100):
            await at.pilot.resize_terminal(width, 24)
            for words in range(1, 12):
                at.session.link(LinkState.NEEDS_PERSON, "because " * words, 4)
                await at.until(partial(lambda wanted: at.view.connection.reason.count("because") == wanted, words))
                await at.sees("r logs in")


@pytest.mark.parametrize(
    ("work", "seen"),
    [("none", []), ("turn", ["The agent keeps working there."]), ("ask", ["The agent waits there for an answer."])],
)
async def test_the_farewell_says_what_becomes_of_the_work_and_the_way_back(
    at: Desk, work: str, seen: list[str]
) -> None:
    if work != "none":
        await at.turn()
    if work == "ask":
        at.session.ask("ask", "Bash", {"command": "make"})
        await at.until(lambda: at.view.card is not None)
    await at.until(lambda: at.view.reducer.running == (work != "none"))
    await at.press("ctrl+d", then=lambda: at.app.return_value == 0)
    lines = ["Session 5e55 on devbox:/srv/shop", *seen, "Come back with:", f"  {RESUME}"]
    assert at.view.farewell() == lines and not at.app.leaving.stopped


async def test_the_last_answer_stays_on_the_terminal_above_the_way_back(at: Desk) -> None:
    for number, text in enumerate(("First.", "\n".join(f"line \x1b[31m{each}" for each in range(100)))):
        await at.turn()
        at.session.text(text, f"msg_{number}")
        at.session.finish()
        await at.until(lambda: not at.view.reducer.running)
    said = at.view.farewell()
    assert said[0] == "… 40 earlier lines of the last answer are in the session"
    assert said[60].endswith("99") and said[61:63] == ["", said[62]] and said[62].startswith("Session 5e55")
    assert "\x1b" not in "".join(said)


@pytest.mark.parametrize("stopped", [False, True])
async def test_the_farewell_to_a_session_in_memory_says_so_and_promises_no_way_back_once_gone(stopped: bool) -> None:
    async with desk(ScriptedSession(greeting=replace(hello(), storage="memory"))) as at:
        if stopped:
            await at.type("/stop")
        await at.press("enter" if stopped else "ctrl+d", then=lambda: at.app.return_value == 0)
        said = "\n".join(at.view.farewell())
        assert "in memory only" in said and (RESUME in said) != stopped


async def test_stop_ends_the_session_on_the_host_and_leaves(at: Desk) -> None:
    await at.enter("/stop", then=lambda: at.app.return_value == 0)
    assert at.session.stops == 1 and at.app.leaving.stopped
    assert "It was stopped on the host." in at.view.farewell()


async def test_stop_without_a_connection_waits_for_it(at: Desk) -> None:
    await _drop(at)
    await at.enter("/stop", sees="Stopping the session on devbox when the connection is there again")
    assert at.app.return_value is None
    at.session.link(LinkState.CONNECTED)
    await at.session.stop()
    await at.until(lambda: at.app.return_value == 0)
    assert at.app.leaving.stopped
