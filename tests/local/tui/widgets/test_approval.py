"""The approval card: what it shows, what it answers, and that it cannot eat what is typed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.repl.pilot import Desk, desk, key_event, wait_until
from tests.support.repl.scripted_session import ScriptedSession, session_rule
from tests.support.repl.scripted_work import PATH
from textual import events

from ccb.local.slash_commands.session_api import LaptopSide
from ccb.local.terminal.keymap import BURST_S
from ccb.local.tui.cards import question_card

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


async def asks(at: Desk, **commands: str) -> None:
    """Let the worker ask for some commands after a prompt, by their ids."""
    await at.prompt("go")
    for request_id, command in (commands or {"ask": COMMAND["command"]}).items():
        ask(at.session, request_id, command)


@pytest.fixture
async def at_card(at: Desk) -> Desk:
    """The worker asks, and the person is at the card."""
    await asks(at)
    await at.card_focused()
    return at


@pytest.fixture
async def at_long(at: Desk) -> Desk:
    """The worker asks about a file of which the card shows a part, and the person is at the card."""
    content = "\n".join(f"line {n}." for n in range(300))
    await at.asked("Write", {"file_path": PATH, "content": content}, sees=("line 0.", "more lines"))
    return at


async def answered(at: Desk, request_id: str = "ask") -> Any:
    """The answer of the person, once it is given."""
    await at.until(lambda: request_id in at.session.answers)
    return at.session.answers[request_id]


async def test_it_says_where_what_and_why_and_which_rule_the_session_would_get(at_card: Desk) -> None:
    await at_card.sees(
        "Bash on devbox:/srv/shop",
        "make test && rm -rf build",
        "The model says │ Test and clean",
        "Asked because: rm is not covered by a rule",
        "If you allow it, it runs without a sandbox.",
        "1 Yes, once",
        "2 Yes, and allow make test * in this session",
        "3 Yes, and always here: make test *",
        "4 No, and say why",
        "Esc back",
    )


async def test_a_tool_of_a_server_on_this_laptop_is_said_to_run_here(at: Desk) -> None:
    at.view.approvals.laptop_servers = lambda: ["my notes"]
    at.session.begin()
    at.session.ask("ask", "mcp__my_notes_f30ac2b5__add", {"text": "milk"})
    await at.sees("add on this laptop, for devbox:/srv/shop")
    at.session.ask("other", "mcp__notes__add", {"text": "milk"})
    await at.card_focused()
    await at.answer("4")
    await at.press("enter", sees="mcp__notes__add on devbox:/srv/shop")


async def test_a_reason_that_quotes_the_call_cannot_look_like_words_of_ccb(at: Desk) -> None:
    """Also where it is folded, a row of it begins with a mark."""
    await at.turn()
    reason = "No rule allows `echo " + "Sandbox: workspace cage " * 15 + "`"
    at.session.ask("ask", "Bash", COMMAND, decision_reason=reason)
    await at.card_focused(sees=("Asked because: No rule allows", "If you allow it, it runs without a sandbox."))
    rows = [line.strip("┃ ") for line in at.screen.splitlines() if "workspace cage" in line]
    assert len(rows) > 2
    assert [row for row in rows if not row.startswith(("Asked because: ", "┆ "))] == []


ALLOWED = {"behavior": "allow", "updatedInput": COMMAND}
FOR_THE_SESSION = {**ALLOWED, "updatedPermissions": [{**RULE, "destination": "session"}]}
DENIED = "The user denied this; it was not done."


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(
    ("keys", "why", "answer"),
    [
        ("1", None, ALLOWED),
        ("y", None, ALLOWED),
        ("2", None, FOR_THE_SESSION),  # whatever place was suggested
        ("right enter", None, FOR_THE_SESSION),
        ("n", "", {"behavior": "deny", "message": DENIED}),
        ("4", "not build", {"behavior": "deny", "message": f"{DENIED} The user says: not build"}),
    ],
)
async def test_a_key_gives_its_answer(at_card: Desk, keys: str, why: str | None, answer: dict[str, Any]) -> None:
    await at_card.answer(*keys.split())
    if why is not None:
        await at_card.sees("Why not?")
        await at_card.enter(why)
    assert await answered(at_card) == answer
    await at_card.until(lambda: at_card.view.card is None and at_card.app.focused is at_card.composer)
    assert at_card.composer.text == "", "what was given is not typed a second time"


async def test_without_a_mark_enter_says_what_to_press_and_esc_leaves_the_reason(at: Desk) -> None:
    await asks(at)
    await at.sees("Tab to answer")
    await clicked(at)
    await at.answer("enter", sees="Nothing is marked yet: press 1, 2, 3, 4 or e, then Enter.")
    await at.answer("4", sees="Why not?", lacks="Nothing is marked")
    await at.press("escape", sees="1 Yes, once")
    assert at.session.interrupts == 0 and at.session.answers == {}


async def test_3_keeps_the_rule_for_this_host_and_directory_on_the_laptop() -> None:
    kept: list[dict[str, Any]] = []

    async def keep(updates: Sequence[dict[str, Any]]) -> None:
        kept.extend(updates)

    projects = cast(Any, SimpleNamespace(keep=keep))
    async with desk(laptop=LaptopSide(projects)) as at:
        await asks(at)
        await at.card_focused(sees="3 Yes, and always here")
        await at.alone("3", sees=("always here: make test *, in ", "projects.json"))
        await at.answer("enter", sees="Kept for this host and directory, on the laptop: allow make test *")
        assert kept == [{**RULE, "destination": "localSettings"}]
        assert at.session.answers["ask"]["updatedPermissions"] == kept


async def test_r_keeps_the_rule_for_what_operators_read_and_answers_all_such_questions() -> None:
    kept: list[dict[str, Any]] = []

    async def keep(updates: Sequence[dict[str, Any]]) -> None:
        kept.extend(updates)

    async with desk(laptop=LaptopSide(cast(Any, SimpleNamespace(keep=keep)))) as at:
        await at.turn()
        for command, reads in {"docker ps": True, "make": None, "kubectl get pods": True}.items():
            at.session.ask(command, "Bash", {"command": command}, permission_suggestions=[RULE], reads_services=reads)
        await at.card_focused(sees="r Yes, and always here: reading with docker, kubectl, systemctl")
        await at.answer("r", "enter", sees=("Kept for this host, on the laptop", "allow reading with docker", "$ make"))
        assert "r Yes" not in at.screen
        assert [each["rules"] for each in kept] == [[{"toolName": "Bash", "ruleContent": "reads:services"}]]
        assert at.session.answers["docker ps"]["updatedPermissions"] == kept
        assert list(at.session.answers) == ["docker ps", "kubectl get pods"]


async def test_c_puts_commands_into_the_cage_from_now_on_where_the_host_can_make_it(at: Desk) -> None:
    await at.turn()
    at.session.ask("ask", "Bash", COMMAND, can_be_caged=True)
    await at.card_focused(sees="c Yes, and from now on in the cage, without asking")
    await at.answer("c", "enter")
    in_cage = {"type": "setSandbox", "sandbox": "workspace", "destination": "session"}
    assert await answered(at) == {**ALLOWED, "updatedPermissions": [in_cage]}


async def test_without_a_suggestion_there_is_no_2(at: Desk) -> None:
    await at.asked("Bash", COMMAND)
    assert "this session" not in at.screen
    await at.answer("2", "1")
    assert (await answered(at))["behavior"] == "allow"
    assert "updatedPermissions" not in at.session.answers["ask"]


async def test_esc_on_the_card_goes_back_to_the_composer_and_only_there_interrupts(at_card: Desk) -> None:
    await at_card.press("escape", then=lambda: at_card.app.focused is at_card.composer)
    assert at_card.session.interrupts == 0
    await at_card.sees("Tab to answer")
    await at_card.press("escape", then=lambda: at_card.session.interrupts == 1)
    assert at_card.session.answers == {}


@pytest.mark.usefixtures("lock_over")
@pytest.mark.parametrize("typed", ["2 tests fail", "y", "3\n"])
async def test_what_is_typed_when_a_card_appears_is_text(at: Desk, typed: str) -> None:
    await asks(at)
    await at.sees("Tab to answer", "approval waits: Tab")
    appeared = time.monotonic()
    await at.until(lambda: time.monotonic() - appeared > 10 * BURST_S)  # also after a while without a key
    await at.type(typed.strip(), has=typed.strip())
    await at.pause_of_a_person()
    assert at.session.answers == {} and at.app.focused is at.composer


async def test_a_half_written_prompt_stays_while_the_card_is_answered(at: Desk) -> None:
    await at.prompt("go")
    await at.type("why 1")
    ask(at.session)
    await at.sees("Tab to answer", "approval waits: Tab")
    await at.press(*" and 2 and 3", "tab")
    await at.answer("1", then=lambda: at.session.answers)
    assert at.composer.text == "why 1 and 2 and 3"


async def clicked(at: Desk) -> None:
    """Go to the card with a click, which marks nothing."""
    await at.pilot.click(".choices", offset=(16, 0))
    await at.card_listens()
    await at.pause_of_a_person()


async def test_a_click_leads_to_the_card_and_answers_nothing(at: Desk) -> None:
    await asks(at)
    await at.sees("Tab to answer")
    await clicked(at)
    assert at.session.answers == {}
    await at.answer("1", then=lambda: at.session.answers)


@pytest.mark.parametrize(
    ("size", "suggestions", "words", "answer"),
    [((46, 40), [RULE], "Yes, and allow", FOR_THE_SESSION), ((120, 40), [], "Yes, once", ALLOWED)],
)
async def test_a_click_on_an_answer_marks_it_and_another_one_gives_it(
    size: tuple[int, int], suggestions: list[Any], words: str, answer: dict[str, Any]
) -> None:
    """Also where the answers move when the card gets the focus."""
    async with desk(ScriptedSession(), size=size) as at:
        at.session.begin()
        at.session.ask("ask", "Bash", COMMAND, permission_suggestions=suggestions)
        await at.click(words, sees="Enter answers")
        assert at.session.answers == {}
        await at.click(words)
        assert await answered(at) == answer


async def test_a_key_marks_the_answer_that_enter_gives_and_another_key_marks_another_one(at_card: Desk) -> None:
    await at_card.press("2", sees="Enter answers")
    await at_card.pause_of_a_person()
    await at_card.answer("1", then=lambda: at_card.session.answers)
    assert "updatedPermissions" not in at_card.session.answers["ask"]


async def test_a_mark_is_gone_after_a_look_at_the_composer_or_at_another_window(at_card: Desk) -> None:
    await at_card.press("2", "tab")
    await clicked(at_card)
    await at_card.answer("enter")
    await at_card.alone("1", sees="Enter answers")
    at_card.app.post_message(events.AppBlur())
    await at_card.until(lambda: at_card.app.focused is None)
    at_card.app.post_message(events.AppFocus())
    await at_card.card_listens()
    await at_card.answer("enter")
    assert at_card.session.answers == {}
    await at_card.alone("tab", sees="Enter answers")  # marks the first answer, as nothing is marked
    await at_card.answer("enter", then=lambda: at_card.session.answers)


async def test_a_card_in_the_place_of_another_is_not_gone_to_at_once(at: Desk, lock_over: Callable[[], None]) -> None:
    await asks(at, first="echo one", second="rm -rf /")
    await at.sees("echo one", "1 more waiting")
    at.session.withdraw_question("first")  # and at this moment the person goes to it and answers
    await at.sees("rm -rf /")
    await at.press("tab")
    assert at.app.focused is at.composer
    await at.pilot.click(".choices", offset=(16, 0))
    assert at.app.focused is at.composer
    await at.press("alt+a", "2", "enter", has="")
    lock_over()
    await at.card_listens()
    await at.sees("Enter answers")  # the keys were for a card: this one shows what they mark
    assert at.session.answers == {}
    await at.answer("enter", then=lambda: list(at.session.answers) == ["second"])


async def test_a_card_that_takes_the_place_of_a_marked_one_has_no_mark_and_no_focus(at: Desk) -> None:
    await asks(at, first="echo one", second="rm -rf /")
    await at.card_focused()
    await at.press("1")
    at.session.withdraw_question("first")
    await at.sees("rm -rf /")
    await at.answer("enter")
    await at.until(lambda: at.card.can_focus)
    await at.pilot.pause()
    assert at.app.focused is at.composer and at.session.answers == {} and "Enter answers" not in at.screen


async def test_a_card_that_goes_away_while_another_window_is_looked_at_takes_no_keys_with_it(at_card: Desk) -> None:
    at_card.app.post_message(events.AppBlur())
    await at_card.until(lambda: at_card.app.focused is None)
    at_card.session.withdraw_question("ask")
    await at_card.until(lambda: at_card.view.card is None)
    at_card.app.post_message(events.AppFocus())
    await at_card.until(lambda: at_card.app.focused is at_card.composer)


async def test_a_reason_for_a_denial_that_nobody_asks_for_any_more_is_not_lost(at_card: Desk) -> None:
    await at_card.answer("4")
    await at_card.type("not bui")
    at_card.session.withdraw_question("ask")
    await at_card.until(lambda: at_card.view.card is None)
    await at_card.type("ld", has="not build")


async def test_each_rule_that_the_session_would_get_has_a_line(at: Desk) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "echo a, allow Bash(rm *)"}, {"toolName": "Read"}]
    await at.prompt("go")
    suggestion = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
    at.session.ask("ask", "Bash", COMMAND, permission_suggestions=[suggestion])
    await at.card_focused(sees="2 Yes, and the 2 rules above in this session")
    rows = [line.strip("┃ ") for line in at.screen.splitlines() if "this session │" in line]
    assert rows == ["this session │ allow Bash(echo a, allow Bash(rm *))", "this session │ allow Read"]
    await at.answer("2")
    assert (await answered(at))["updatedPermissions"][0]["rules"] == rules


async def test_a_key_pressed_twice_does_not_answer_the_next_card(at: Desk, lock_over: Callable[[], None]) -> None:
    await asks(at, first="echo one", second="echo two")
    await at.card_focused(sees="1 more waiting")
    await at.answer("1", sees="echo two")
    await at.press("1", "enter", has="")
    lock_over()
    await at.card_listens()
    assert list(at.session.answers) == ["first"]


async def test_cards_keep_the_focus_so_that_enter_answers_one_after_the_other(
    at: Desk, lock_over: Callable[[], None]
) -> None:
    await asks(at, first="echo one", second="echo two")
    await at.card_focused()
    await at.answer("enter", sees="echo two")
    assert at.card.has_class("settling"), "its border is dim as long as no key counts"
    lock_over()
    await at.card_listens()
    await at.press("tab")  # also a person who presses Tab for each card
    await at.answer("enter", then=lambda: at.view.card is None and len(at.session.answers) == 2)
    assert at.app.focused is at.composer
    ask(at.session, "third", "echo three")  # soon after
    await at.sees("echo three")
    lock_over()
    await at.card_listens()
    await at.answer("enter", then=lambda: len(at.session.answers) == 3)
    assert all(each["behavior"] == "allow" for each in at.session.answers.values())


async def test_who_types_after_an_answer_goes_on_typing_when_the_next_card_comes(at_card: Desk) -> None:
    await at_card.answer("enter", then=lambda: at_card.view.card is None)
    await at_card.type("and", has="and")
    ask(at_card.session, "next", "echo two")
    await at_card.sees("echo two")
    await at_card.until(lambda: at_card.card.can_focus)
    await at_card.type(" 1", has="and 1")
    assert at_card.app.focused is at_card.composer and list(at_card.session.answers) == ["ask"]


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("key", ["1", "y", "2", "3", "4", "n"])
async def test_an_answer_at_an_empty_input_needs_no_tab(at: Desk, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("ccb.local.tui.approvals.QUIET_S", 0.0)
    monkeypatch.setattr("ccb.local.tui.approvals.LOCK_S", 0.0)
    await asks(at)
    await at.sees("Tab to answer")
    await at.press(key, sees="Enter answers", has="")
    await at.answer("enter", then=lambda: at.session.answers or "Why not?" in at.screen)
    assert ("Why not?" in at.screen) == (key in "4n")


async def test_text_that_begins_like_an_answer_is_text_also_without_tab(
    at: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.local.tui.approvals.QUIET_S", 0.0)
    monkeypatch.setattr("ccb.local.tui.approvals.LOCK_S", 0.0)
    await asks(at)
    await at.sees("Tab to answer")
    await at.alone("1", ".")
    await at.type(" fix it", has="1. fix it")
    await at.press("enter", then=lambda: at.session.prompts[1:] == ["1. fix it"])
    assert at.session.answers == {}


@pytest.mark.parametrize("typed", ["1", "y", "n"])
async def test_the_character_of_an_answer_is_no_prompt_while_a_card_waits(at: Desk, typed: str) -> None:
    await asks(at)
    await at.sees("Tab to answer")
    await at.type(typed, has=typed)
    await at.press("enter", sees=f"“{typed}” was not sent: Tab, then Enter answers", has="")
    await at.type(typed, has=typed)
    await at.press("ctrl+s", has="")
    assert len(at.session.prompts) == 1 and at.session.answers == {}


async def test_an_answer_to_a_card_that_has_just_gone_is_no_prompt(at_card: Desk) -> None:
    at_card.session.withdraw_question("ask")
    await at_card.until(lambda: at_card.view.card is None)
    await at_card.press("1", "enter", has="")
    await at_card.until(lambda: not at_card.view.approvals.holds_keys)
    assert len(at_card.session.prompts) == 1 and at_card.composer.text == ""


async def test_tab_marks_nothing_while_a_text_waits_at_the_input(at: Desk) -> None:
    await asks(at)
    await at.sees("Tab to answer")
    await at.type("hm", has="hm")
    await at.press("tab")
    await at.card_listens()
    await at.answer("enter", sees="Nothing is marked yet")
    assert at.session.answers == {}


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("typed", "pause"), [("12 files", 10), ("no wait", 10), ("wait 1", 0), ("31 files", 0), ("no", 0)]
)
async def test_words_typed_on_the_card_go_to_the_composer_also_slowly(at_card: Desk, typed: str, pause: int) -> None:
    await at_card.press(typed[0])
    pressed = time.monotonic()
    await at_card.until(lambda: time.monotonic() - pressed > pause * BURST_S)  # it was an answer after 0.2 s
    assert at_card.session.answers == {}
    await at_card.type(typed[1:], then=lambda: at_card.composer.text == typed)
    await at_card.pause_of_a_person()
    assert at_card.session.answers == {} and "Why not?" not in at_card.screen


def _arrive_at_once(at: Desk, *keys: str) -> None:
    """Keys as a terminal without bracketed paste sends what is pasted."""
    came = time.monotonic()
    for number, key in enumerate(keys):
        event = key_event(key)
        event.time = came + number * BURST_S / 10
        at.app.post_message(event)


async def test_a_key_and_enter_from_one_read_are_an_answer_on_the_card(at_card: Desk) -> None:
    _arrive_at_once(at_card, "2", "enter")
    assert "updatedPermissions" in await answered(at_card)


@pytest.mark.parametrize("keys", [("tab", "y", "e"), ("alt+a", "1", "enter")])
async def test_keys_that_come_in_a_burst_are_no_answer(
    at: Desk, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.local.tui.approvals.QUIET_S", float("inf"))  # else a key at a quiet input goes to the card
    await asks(at)
    await at.sees("Tab to answer")
    _arrive_at_once(at, *keys)
    said = ("press them again", "was not sent")  # by the card, or by the input, which they reach before the focus moves
    await at.until(lambda: at.composer.text == "ye" or any(each in at.screen for each in said))
    await at.pause_of_a_person()
    assert at.session.answers == {}


@pytest.mark.parametrize("typed", ["1\n2x", "y 1", " 2 tests fail"])
async def test_a_burst_on_the_card_is_text_from_its_first_character_on(at_card: Desk, typed: str) -> None:
    _arrive_at_once(at_card, *({" ": "space", "\n": "enter"}.get(char, char) for char in typed))
    await at_card.until(lambda: at_card.composer.text == typed.lstrip())  # the first space reads on
    assert at_card.session.answers == {} and len(at_card.session.prompts) == 1


async def test_a_space_bar_that_is_held_down_reads_to_the_end(at_long: Desk) -> None:
    for _ in range(40):
        _arrive_at_once(at_long, "space")
        await at_long.pilot.pause(0)
    await at_long.sees("line 299.", "1 Yes, once")
    assert at_long.composer.text == ""


async def test_what_follows_text_is_text_even_if_the_screen_is_slow(at_card: Desk) -> None:
    now = time.monotonic()
    for number, key in enumerate("so1"):  # typed while nothing is handled: the focus is still on the card
        event = key_event(key)
        event.time = now + number
        at_card.app.post_message(event)
    await at_card.until(lambda: at_card.composer.text == "so1")
    assert at_card.session.answers == {}


async def test_a_paste_on_the_card_goes_to_the_composer(at_card: Desk) -> None:
    at_card.app.post_message(events.Paste("1\r\n2"))
    await at_card.until(lambda: at_card.composer.text == "1\n2")
    assert at_card.session.answers == {}


async def test_a_cancelled_question_disappears_and_the_next_one_comes(at: Desk) -> None:
    await asks(at, first="echo one", second="echo two")
    await at.sees("echo one", "1 more waiting")
    at.session.withdraw_question("second")
    await at.loses("1 more waiting")
    ask(at.session, "third", "echo three")
    at.session.withdraw_question("first")
    await at.sees("echo three")
    at.session.withdraw_question("third")
    await at.until(lambda: at.view.card is None)
    assert at.app.focused is at.composer


@pytest.mark.slow
async def test_a_large_file_can_be_allowed_only_after_its_end_was_on_the_screen(at: Desk) -> None:
    content = "\n".join(f"line {n}" for n in range(60))
    await at.asked("Write", {"file_path": PATH, "content": content})
    await at.sees("line 0", "lines to see before you can allow it", "4 No, and say why")
    await at.answer("1", "y", "right", "right", "enter")
    assert at.session.answers == {}
    await at.press("escape", *["down"] * 60, sees=("line 59", "1 Yes, once"))
    await at.answer("1", then=lambda: at.session.answers)


async def test_lines_that_were_jumped_over_have_to_be_seen(at_long: Desk) -> None:
    await at_long.press("end", sees=("line 299.", "lines to see before you can allow it"))
    for _ in range(30):
        if "1 Yes, once" in at_long.screen:
            break
        assert "to see before" in at_long.screen
        await at_long.answer("space")
    assert at_long.view.card is not None and at_long.card.subject.unseen == 0
    await at_long.sees("line 299.")


async def test_a_page_is_not_jumped_over_by_keys_that_come_faster_than_it_is_painted(at_long: Desk) -> None:
    for _ in range(30):
        at_long.app.post_message(events.Key("pagedown", None))
    await at_long.loses("line 0.")
    shown = [int(number) for number in re.findall(r"line (\d+)\.", at_long.screen)]
    assert at_long.card.subject.unseen == 0 or shown[0] <= len(at_long.card.subject.rows) - at_long.card.subject.unseen


async def test_what_was_seen_stays_seen_when_the_window_changes_its_size(at: Desk) -> None:
    await asks(at, ask="\n".join(f"echo {n} {'x' * 70}" for n in range(12)))
    await at.card_focused(sees="1 Yes, once")
    await at.pilot.resize_terminal(50, 20)
    await at.until(lambda: at.view.card is not None and len(at.card.subject.rows) > 20, sees="1 Yes, once")


async def test_of_keys_that_come_all_at_once_none_is_lost(at_long: Desk) -> None:
    for _ in range(20):
        at_long.app.post_message(events.Key("down", None))
    await at_long.sees("line 17.", loses="line 16.")  # below three other rows


async def test_page_keys_home_and_end_scroll_the_card_that_is_read(at_long: Desk) -> None:
    await at_long.press("end", sees="line 299.")
    await at_long.press("home", sees="line 0.")
    last = int(re.findall(r"line (\d+)\.", at_long.screen)[-1])
    await at_long.press("pagedown", sees=(f"line {last + 1}.", f"line {2 * last - 2}."))
    await at_long.answer("4")
    await at_long.press("pageup", sees=("line 0.", "Why not?"))
    assert at_long.session.answers == {}


async def test_the_page_keys_scroll_the_transcript_beside_a_question_of_which_all_is_seen(at: Desk) -> None:
    await at.turn()
    at.session.text("The beginning.\n\n" + "\n\n".join(f"then {n}" for n in range(30)))
    ask(at.session)
    await at.card_focused()
    await at.press(*["pageup"] * 5, sees=("The beginning.", "1 Yes, once"))


async def test_on_a_terminal_of_40_by_10_the_answers_and_the_status_line_are_there() -> None:
    async with desk(size=(40, 10)) as at:
        await asks(at)
        await at.card_focused(sees=("make test", "1 Yes, once", "4 No", "back"))
        (reason,) = [line for line in at.screen.splitlines() if "Asked because" in line]
        assert reason.endswith("…"), "what is cut says so"
        assert reason.startswith(" without a sandbox · ")
        assert at.status.startswith(" ● devbox:/srv/shop")


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("size", [(80, 24), (60, 12)])
async def test_what_is_below_the_edge_is_announced_until_it_was_seen(size: tuple[int, int]) -> None:
    async with desk(size=size) as at:
        await asks(at, ask="\n".join(f"echo {n}" for n in range(30)) + "\nrm -rf /")
        await at.card_focused(then=lambda: re.search(r"↓ \d\d more lines", at.screen), lacks="rm -rf /")
        await at.press(*["down"] * 31, sees="rm -rf /", loses="more line")


async def test_a_card_on_which_nothing_changes_is_not_painted_again(at_card: Desk) -> None:
    card = at_card.view.card
    assert card is not None and not card._repaint_required
    at_card.view.approvals.tick()
    assert not card._repaint_required


async def test_a_question_that_comes_while_the_person_leaves_needs_no_place(at: Desk) -> None:
    await at.prompt("go")
    approvals = at.view.approvals
    await approvals.remove()
    ask(at.session, "late", "echo late")
    await wait_until(at.pilot, lambda: len(approvals.questions) == 1)
    await approvals._show()
    assert approvals.card is None


async def test_a_reason_belongs_to_the_card_also_where_the_timer_of_enter_is_late(
    at_card: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_card, "call_once_after", lambda *_: None)
    begins, driver = time.monotonic(), at_card.app._driver
    assert driver is not None
    for key, after_s in (("4", 0.0), ("enter", BURST_S / 4), ("w", 4 * BURST_S)):
        event = key_event(key)
        event.time = begins + after_s
        event.set_sender(at_card.app)
        driver.send_message(event)
    await at_card.until(lambda: at_card.card.field.value == "w")
    assert at_card.composer.text == ""
