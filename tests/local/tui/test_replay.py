"""What had happened before: told once, without bells, and no card for a question that was settled meanwhile."""

from __future__ import annotations

import pytest
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession
from textual import events

from ccb.local.session.session_client import LinkState
from ccb.local.transcript.questions import OpenQuestions
from ccb.local.tui.approvals import Approvals
from ccb.tunnel.wire.messages import ControlRequest, parse_message

MAKE = {"command": "make"}


def bells(at: Desk) -> list[str]:
    """Every ring from now on, while another window is used."""
    rung: list[str] = []
    at.app.bell = lambda: rung.append("bell")  # type: ignore[method-assign]
    at.app.post_message(events.AppBlur())
    return rung


def cards(at: Desk) -> list[str]:
    """The ids of all cards that are mounted from now on."""
    mounted: list[str] = []
    area = at.app.query_one(Approvals)
    mount = area.mount

    def watched(card, **places):  # type: ignore[no-untyped-def]
        mounted.append(card.asked.request.request_id)
        return mount(card, **places)

    area.mount = watched  # type: ignore[method-assign,assignment]
    return mounted


async def test_a_fresh_terminal_is_told_a_whole_session_without_bells(at: Desk) -> None:
    session = at.session
    rung = bells(at)
    await at.pilot.pause()
    with session.replay():
        session.prompted("what the person asked")
        session.begin()
        session.done(session.call("Bash", **MAKE), "made")
        session.text("Everything is made.")
        session.finish()
    await at.sees("❯ what the person asked", "● Bash make", "Everything is made.", "1.2k in, 345 out")
    assert rung == [] and not at.view.reducer.running


async def test_a_question_that_was_answered_in_the_replay_never_flashes(at: Desk) -> None:
    session = at.session
    shown, rung = cards(at), bells(at)
    with session.replay():
        session.ask("answered", "Bash", MAKE)
        session.ask("cancelled", "Bash", MAKE)
        session.ask("open", "Bash", {"command": "make install"})
        session.answered("answered")
        session.withdraw_question("cancelled")
    await at.sees("make install", "1 Yes, once")
    assert shown == ["open"] and rung == []
    assert "another client" not in at.screen


def test_a_question_that_was_answered_here_is_never_open_again() -> None:
    questions = OpenQuestions()
    body = {"type": "control_request", "request_id": "a", "request": {"subtype": "can_use_tool", "tool_name": "Bash"}}
    asked = parse_message(body)
    assert isinstance(asked, ControlRequest)
    assert questions.opened(asked)
    questions.answered("a")
    assert not questions.opened(asked)
    questions.replace_all([asked])
    assert questions.show_head() is None
    questions.not_answered(asked)
    assert questions.show_head() is asked


async def test_a_question_that_is_asked_again_under_its_id_is_one_question(at: Desk) -> None:
    await at.asked("Bash", MAKE)
    card = at.view.card
    at.session.link(LinkState.RECONNECTING, "eof")
    at.session.link(LinkState.CONNECTED)
    with at.session.replay():
        at.session.ask("ask", "Bash", MAKE)
    await at.says("A word.", sees="A word.")
    assert at.view.card is card and "more waiting" not in at.screen
    await at.answer("1", then=lambda: list(at.session.answers) == ["ask"] and at.view.card is None)


async def test_a_question_that_another_client_answers_goes_away_with_a_word(at: Desk) -> None:
    await at.asked("Bash", MAKE)
    at.session.answered("ask")
    await at.sees("The question was answered by another client.")
    await at.until(lambda: at.view.card is None and at.app.focused is at.composer)
    assert at.session.answers == {}


@pytest.mark.parametrize(("behavior", "word"), [("allow", "allowed"), ("deny", "denied")])
async def test_an_answer_that_lost_against_another_is_said_to_be_dropped(at: Desk, behavior: str, word: str) -> None:
    await at.asked("Bash", MAKE)
    at.session.swallow = True  # the connection is dead, and nobody has noticed
    await at.answer("4")
    await at.enter("not now", then=lambda: at.session.answers)
    at.session.answered("ask", behavior)
    await at.sees(f"Another client answered first: {word}. Your answer was dropped.")


async def test_an_answer_that_another_client_gave_too_is_no_news(at: Desk) -> None:
    await at.asked("Bash", MAKE)
    at.session.swallow = True
    await at.answer("1", then=lambda: at.session.answers)
    other = {"subtype": "success", "request_id": "ask", "response": at.session.answers["ask"]}
    at.session.input({"type": "control_response", "response": other})
    await at.says("Made.", sees="Made.")
    assert "another client" not in at.screen.lower()


def test_an_answer_that_came_too_late_is_not_silently_dropped(told: Paper) -> None:
    told.fact("late_answer", request_id="ask")
    told.sees("An answer came too late and was dropped")


async def test_a_prompt_is_shown_once_whoever_sent_it_and_however_often_it_comes(at: Desk) -> None:
    await at.prompt("from here")
    own = at.session.identities[0]
    at.session.prompted("from here", own)
    other = at.session.prompted("from another terminal")
    at.session.prompted("from another terminal", other)
    at.session.fact("input", id="odd-id", body={"type": "user", "uuid": other, "message": {"content": "from another"}})
    await at.says("A word.", sees=("A word.", "❯ from another terminal  (queued)"))
    assert at.screen.count("from here") == 1 and at.screen.count("from another") == 1


def test_the_partial_message_after_a_reconnect_replaces_the_half_that_was_shown(told: Paper) -> None:
    told.streams("The first half")
    told.sees("The first half")
    told.streams("The first half and the second")
    told.sees("The first half and the second")
    assert told.screen.count("The first half") == 1
    told.text("The first half and the second half.")
    told.sees("second half.")
    assert told.screen.count("The first half") == 1


def test_blocks_that_are_complete_are_not_shown_again_by_the_partial_message(told: Paper) -> None:
    told.streams("The plan is")
    told.sees("The plan is")
    with told.replay():
        told.text("The plan is simple.")
    told.streams("The plan is simple.")
    told.streams("And now", 1)
    told.sees("And now")
    assert told.screen.count("The plan is") == 1
    told.text("And now it is done.")
    told.sees("And now it is done.")
    assert told.screen.count("The plan is") == 1 and told.screen.count("And now") == 1


def test_a_repeated_request_withdraws_what_was_shown_of_the_old_one(told: Paper) -> None:
    told.streams("An old beginning", message_id="msg_old")
    told.sees("An old beginning")
    with told.replay():
        told.fact("withdrawn", message_id="msg_old")
    told.loses("An old beginning")
    told.streams("A new beginning", message_id="msg_new")
    told.sees("A new beginning")


async def test_the_options_of_the_session_outrank_those_of_the_command_line(at: Desk) -> None:
    with at.session.replay():
        at.session.fact("options", options={"model": "claude-opus-4", "permission_mode": "plan"})
    await at.sees("plan  claude-opus-4")


def _tell_a_copy(session: ScriptedSession, *, asks: bool) -> None:
    """What a fork of a session says that was in the middle of a turn, with a prompt that waited for its end."""
    with session.replay():
        session.prompted("make it")
        session.begin()
        call = session.call("Bash", **MAKE)
        if asks:
            session.ask("ask", "Bash", MAKE)
        else:
            session.run(call)
        session.prompted("and then test it")
        session.fact("forked", **{"from": "0dd5e55"})
        if asks:
            session.withdraw_question("ask")
        session.done(call, "The worker was stopped while this tool was open.", is_error=True)
        session.fact("turn_end")


@pytest.mark.parametrize("asks", [False, True])
async def test_a_copy_in_the_middle_of_a_turn_waits_for_a_prompt_and_can_be_left(at: Desk, asks: bool) -> None:
    _tell_a_copy(at.session, asks=asks)
    await at.sees("❯ make it", "? Bash make", "its result is not known here")
    await at.until(lambda: not at.view.approvals.replaying and "working" not in at.status)
    assert at.view.card is None
    assert "and then test it" not in at.screen  # only the original has it
    assert "The agent" not in "".join(at.view.farewell())
    await at.quits()


async def test_the_first_prompt_of_a_copy_is_neither_lost_nor_queued_behind_what_the_original_had() -> None:
    session = ScriptedSession()
    session.swallow = True
    async with desk(session) as at:
        with session.replay():
            session.prompted("make it")
            session.begin()
        await at.until(lambda: at.view.reducer.running)
        await at.prompt("go another way", sees="❯ go another way  (queued)")
        with session.replay():
            session.fact("forked", **{"from": "0dd5e55"})
        session.deliver()
        session.fact("turn_start")
        session.take(session.identities[-1])
        session.text("Another way.")
        session.finish()
        await at.sees("❯ go another way", "Another way.")
        await at.until(lambda: "working" not in at.status, lacks="(queued)")


async def test_a_long_session_has_no_more_widgets_than_a_short_one() -> None:
    counts = []
    for messages in (5, 1_500):
        session = ScriptedSession()
        with session.replay():
            session.begin()
            for number in range(messages):
                session.text(f"Message {number}.", message_id=f"m{number}")
            session.finish()
        async with desk(session, sees=f"Message {messages - 1}.") as at:
            counts.append(len(list(at.app.screen.walk_children(with_self=True))))
    assert counts[0] == counts[1] < 100
