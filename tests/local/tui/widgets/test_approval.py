"""The approval card: what it shows, what it answers, and that it cannot eat what is typed."""

from __future__ import annotations

import re
import time

import pytest
from tests.support.pilot import Desk, desk
from tests.support.scripted_session import ScriptedSession, session_rule
from tests.support.scripted_work import EDIT, NEW, OLD, PATH
from textual import events

from ccb.local.tui import approvals
from ccb.local.tui.widgets.approval import GRACE_S

COMMAND = {"command": "make test && rm -rf build", "description": "Test and clean"}
RULE = session_rule("Bash", "make test:*")


def ask(session: ScriptedSession, request_id: str = "ask", command: str = COMMAND["command"]) -> None:
    session.begin()
    session.ask(
        request_id,
        "Bash",
        {**COMMAND, "command": command},
        decision_reason="rm is not covered by a rule",
        permission_suggestions=[RULE],
    )


async def test_it_says_where_what_and_why_and_which_rule_the_session_would_get() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.sees(
            "Bash on devbox:/srv/shop",
            "make test && rm -rf build",
            "Test and clean",
            "Asked because: rm is not covered by a rule",
            "1 once",
            "2 this session: allow Bash(make test:*)",
            "3 deny",
            "Esc interrupt",
        )


async def test_1_allows_once_with_the_input_as_asked() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.press("1")
        await at.until(lambda: at.session.answers)
        assert at.session.answers == {"ask": {"behavior": "allow", "updatedInput": COMMAND}}
        await at.until(lambda: at.app.card is None and at.app.focused is at.app.composer)


async def test_2_allows_for_this_session_only_whatever_place_was_suggested() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.press("2")
        await at.until(lambda: at.session.answers)
        assert at.session.answers["ask"]["updatedPermissions"] == [{**RULE, "destination": "session"}]


async def test_without_a_suggestion_there_is_no_2() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.ask("ask", "Bash", COMMAND)
        await at.card_focused()
        assert "this session" not in at.screen
        await at.pilot.press("2", "1")
        await at.until(lambda: at.session.answers)
        assert at.session.answers["ask"]["behavior"] == "allow"
        assert "updatedPermissions" not in at.session.answers["ask"]


async def test_3_denies_with_a_reason_for_the_agent_and_esc_goes_back() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.press("3")
        await at.sees("Why not?")
        await at.pilot.press("escape")
        await at.sees("1 once")
        assert at.session.interrupts == 0
        await at.pilot.press("3")
        await at.type("not build")
        await at.pilot.press("enter")
        await at.until(lambda: at.session.answers)
        said = "The user denied this; it was not done. The user says: not build"
        assert at.session.answers["ask"] == {"behavior": "deny", "message": said}


async def test_a_denial_without_a_reason_says_that_it_is_one() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.press("3", "enter")
        await at.until(lambda: at.session.answers)
        assert at.session.answers["ask"] == {"behavior": "deny", "message": "The user denied this; it was not done."}


async def test_esc_on_the_card_interrupts() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.press("escape")
        await at.until(lambda: at.session.interrupts == 1)
        assert at.session.answers == {}


async def test_a_half_written_prompt_keeps_the_keys_until_tab() -> None:
    async with desk() as at:
        await at.prompt("go")
        await at.type("why 1")
        ask(at.session)
        await at.sees("Tab to answer", "approval waits: Tab")
        await at.type(" and 2 and 3")
        quiet_since = time.monotonic()
        await at.until(lambda: time.monotonic() - quiet_since > 2 * GRACE_S)
        assert at.app.composer.text == "why 1 and 2 and 3"
        assert at.session.answers == {}
        await at.pilot.press("tab", "1")
        await at.until(lambda: at.session.answers)
        assert at.app.composer.text == "why 1 and 2 and 3"


async def test_a_card_that_appears_waits_half_a_second_before_it_listens() -> None:
    async with desk() as at:
        await at.prompt("go")
        before_it_appears = time.monotonic()
        ask(at.session)
        await at.card_focused()
        assert time.monotonic() - before_it_appears > GRACE_S


async def test_a_key_pressed_twice_does_not_answer_the_next_card(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session, "first", "echo one")
        ask(at.session, "second", "echo two")
        await at.card_focused()
        await at.sees("1 more waiting")
        monkeypatch.setattr(approvals, "GRACE_S", 60.0)  # a machine that stumbles is not a person who waits
        await at.pilot.press("1", "1")
        await at.sees("echo two")
        assert list(at.session.answers) == ["first"]
        await at.pilot.press("alt+a", "1")
        await at.until(lambda: len(at.session.answers) == 2)


async def test_tab_in_the_moment_the_card_takes_the_focus_does_not_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        monkeypatch.setattr(approvals, "GRACE_S", 60.0)  # a machine that stumbles is not a person who waits
        await at.pilot.press("tab", "1")
        await at.until(lambda: at.session.answers)
        assert at.app.composer.text == ""


async def test_tab_goes_back_to_the_composer_for_something_to_say_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        end = time.monotonic() + 20
        while at.app.focused is not at.app.composer:  # a card that has just come keeps the focus for a moment
            assert time.monotonic() < end
            await at.pilot.press("tab")
        monkeypatch.setattr(approvals, "GRACE_S", 60.0)  # a machine that stumbles is not a person who waits
        await at.type("1 more thing")
        assert at.app.composer.text == "1 more thing"
        assert at.session.answers == {}


async def test_words_typed_on_the_card_go_to_the_composer() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.type("wait 1")
        await at.until(lambda: at.app.composer.text == "wait 1")
        assert at.session.answers == {}


async def test_a_paste_on_the_card_goes_to_the_composer() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        at.app.post_message(events.Paste("1\r\n2"))
        await at.until(lambda: at.app.composer.text == "1\n2")
        assert at.session.answers == {}


async def test_a_cancelled_question_disappears_and_the_next_one_comes() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session, "first", "echo one")
        ask(at.session, "second", "echo two")
        await at.sees("echo one", "1 more waiting")
        at.session.withdraw_question("second")
        await at.loses("1 more waiting")
        ask(at.session, "third", "echo three")
        at.session.withdraw_question("first")
        await at.sees("echo three")
        at.session.withdraw_question("third")
        await at.until(lambda: at.app.card is None)
        assert at.app.focused is at.app.composer


async def test_an_edit_is_shown_as_a_diff() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.ask("ask", "Edit", EDIT)
        await at.sees(PATH, f"- {OLD}", f"+ {NEW}")


async def test_an_edit_of_a_large_file_can_be_read_to_its_end_before_the_answer() -> None:
    content = "\n".join(f"line {n}" for n in range(60))
    async with desk() as at:
        await at.prompt("go")
        at.session.ask("ask", "Write", {"file_path": PATH, "content": content})
        await at.card_focused()
        await at.sees("line 0", "1 once")
        await at.pilot.press(*["down"] * 60)
        await at.sees("line 59", "1 once")


async def _asks_for_a_long_file(at: Desk) -> None:
    content = "\n".join(f"line {n}." for n in range(300))
    at.session.ask("ask", "Write", {"file_path": PATH, "content": content})
    await at.sees("line 0.", "1 once", "more lines")


async def test_of_keys_that_come_all_at_once_none_is_lost() -> None:
    async with desk() as at:
        await at.prompt("go")
        await _asks_for_a_long_file(at)
        await at.card_focused()
        for _ in range(20):
            at.app.post_message(events.Key("down", None))
        await at.until(lambda: "line 19." in at.screen and "line 18." not in at.screen)


async def test_page_keys_home_and_end_scroll_the_card_that_is_read() -> None:
    async with desk() as at:
        await at.prompt("go")
        await _asks_for_a_long_file(at)
        await at.card_focused()
        await at.pilot.press("end")
        await at.sees("line 299.")
        await at.pilot.press("home")
        await at.sees("line 0.")
        last = int(re.findall(r"line (\d+)\.", at.screen)[-1])
        await at.pilot.press("pagedown")
        await at.sees(f"line {last + 1}.", f"line {2 * last - 2}.")
        await at.pilot.press("3", "pageup")
        await at.sees("line 0.", "Why not?")
        assert at.session.answers == {}


async def test_the_page_keys_scroll_the_transcript_beside_a_question_of_which_all_is_seen() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.begin()
        at.session.text("The beginning.\n\n" + "\n\n".join(f"then {n}" for n in range(30)))
        ask(at.session)
        await at.card_focused()
        await at.pilot.press(*["pageup"] * 5)
        await at.sees("The beginning.", "1 once")


async def test_the_page_keys_scroll_the_transcript_for_a_person_who_is_not_at_the_question() -> None:
    async with desk() as at:
        at.session.begin()
        at.session.text("The beginning.\n\n" + "\n\n".join(f"then {n}" for n in range(30)))
        await at.type("but")
        await _asks_for_a_long_file(at)
        await at.pilot.press(*["pageup"] * 30)
        await at.sees("The beginning.", "line 0.")


async def test_a_long_command_is_never_cut_short() -> None:
    command = "echo " + "x" * 150 + " && rm -rf /precious"
    async with desk(size=(60, 30)) as at:
        await at.prompt("go")
        at.session.ask("ask", "Bash", {"command": command})
        await at.sees("1 once")
        shown = "".join(line.strip("┃│") for line in at.screen.splitlines()).replace(" ", "")
        assert "x" * 150 + "&&rm-rf/precious" in shown


async def test_on_a_terminal_of_40_by_10_the_answers_and_the_status_line_are_there() -> None:
    async with desk(size=(40, 10)) as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.sees("make test", "1 once", "3 deny", "interrupt")
        (reason,) = [line for line in at.screen.splitlines() if "Asked because" in line]
        assert reason.endswith("…"), "what is cut says so"
        assert at.status.startswith(" ● devbox:/srv/shop")


@pytest.mark.parametrize("size", [(80, 24), (60, 12)])
async def test_what_is_below_the_edge_is_announced_until_it_was_seen(size: tuple[int, int]) -> None:
    async with desk(size=size) as at:
        await at.prompt("go")
        ask(at.session, command="\n".join(f"echo {n}" for n in range(30)) + "\nrm -rf /")
        await at.card_focused()
        await at.until(lambda: re.search(r"↓ \d\d more lines", at.screen))
        assert "rm -rf /" not in at.screen
        await at.pilot.press(*["down"] * 31)
        await at.sees("rm -rf /")
        await at.loses("more line")


async def test_a_short_question_announces_nothing() -> None:
    async with desk() as at:
        await at.prompt("go")
        ask(at.session)
        await at.card_focused()
        await at.pilot.pause(0.2)
        assert "more line" not in at.screen
