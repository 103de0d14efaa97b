"""Several questions at once, and rules that the person writes: the list of cards is walked, and one rule may answer
more than one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import session_rule
from textual import events

from ccb.local.session.session_client import LinkState

MAKE = session_rule("Bash", "make *")
GIT = session_rule("Bash", "git status")


async def asked(at: Desk, **commands: str) -> None:
    """Let the agent ask for commands under these ids, and go to the first card."""
    await at.turn()
    for request_id, command in commands.items():
        rule = GIT if command.startswith("git") else MAKE
        at.session.ask(request_id, "Bash", {"command": command}, permission_suggestions=[rule])
    await at.card_focused()


async def test_questions_that_wait_are_walked_with_ctrl_n_and_ctrl_p(at: Desk) -> None:
    await asked(at, one="make a", two="git status", three="make b")
    await at.sees("$ make a", "2 more waiting: Ctrl+N")
    await at.alone("ctrl+n", sees="$ git status")
    await at.alone("ctrl+p", "ctrl+p", sees="$ make b")
    await at.card_listens()
    await at.answer("1", then=lambda: at.session.answers)
    assert list(at.session.answers) == ["three"]
    await at.sees("$ make a", "1 more waiting")


async def test_a_rule_for_the_session_answers_what_it_covers_and_nothing_else(at: Desk) -> None:
    await asked(at, one="make a", two="git status", three="make b")
    await at.sees("2 Yes, and allow make * in this session, also for 1 more waiting")
    await at.answer("2", then=lambda: len(at.session.answers) == 2, sees="$ git status")
    assert at.session.answers["one"]["updatedPermissions"] == [{**MAKE, "destination": "session"}]
    assert at.session.answers["three"] == {"behavior": "allow", "updatedInput": {"command": "make b"}}


async def test_the_cage_that_an_answer_chooses_answers_no_other_question(at: Desk) -> None:
    await at.turn()
    for request_id, command in {"one": "make a", "two": "make b"}.items():
        at.session.ask(request_id, "Bash", {"command": command}, permission_suggestions=[MAKE], can_be_caged=True)
    await at.card_focused()
    await at.answer("c", "enter", sees="$ make b")
    assert list(at.session.answers) == ["one"]


READ, DOCS = session_rule("Read", "//etc/**"), session_rule("WebFetch", "domain:docs.example")
TO_ME, TO_ALL = ("mcp__mail__send", {"to": "me"}), ("mcp__mail__send", {"to": "all"})
READS = [("Read", {"file_path": "/etc/hosts"}), ("Glob", {"pattern": "*", "path": "/etc"})]
PAGES = ["https://docs.example/a", "https://DOCS.example:8080/b", "https://docs.example@evil/c", "not a URL"]


@pytest.mark.parametrize(
    ("rule", "calls", "answered"),
    [
        (READ, [*READS, ("Write", {"file_path": "/etc/x", "content": ""})], 2),
        (DOCS, [("WebFetch", {"url": url}) for url in PAGES], 2),
        # A hostile worker could join a call of a laptop's MCP server to a question that is answered lightly.
        (MAKE, [("Bash", {"command": "make a"}), TO_ALL], 1),
        (MAKE, [TO_ME, TO_ALL], 1),
        (session_rule("mcp__mail__send", "me"), [TO_ME, TO_ALL], 1),
        (session_rule("mcp__mail__send", ""), [TO_ME, TO_ALL], 2),
    ],
)
async def test_a_rule_answers_the_calls_that_it_covers_also_where_it_is_suggested_for_others(
    at: Desk, rule: dict[str, Any], calls: list[tuple[str, dict[str, str]]], answered: int
) -> None:
    await at.turn()
    for number, (tool, tool_input) in enumerate(calls):
        at.session.ask(str(number), tool, tool_input, permission_suggestions=[rule])
    await at.card_focused(sees=f"{len(calls) - 1} more waiting")
    assert ("also for 1 more waiting" in at.screen) == (answered == 2)
    await at.answer("2")
    left = str(answered) if answered < len(calls) else None
    await at.until(lambda: (at.view.card and at.view.card.asked.request.request_id) == left)
    assert list(at.session.answers) == [str(number) for number in range(answered)]


async def test_the_rule_can_be_changed_before_it_is_granted(at: Desk) -> None:
    await asked(at, one="make a", three="make b")
    await at.answer("e", "enter", then=lambda: at.view.card is not None and at.card.field.value == "Bash(make *)")
    await at.sees("The rule to grant instead", "Esc goes back")
    at.card.field.value = "Read(/etc/**)"
    await at.answer("enter", sees="Not a rule for Bash")
    at.card.field.value = "Bash(make a)"
    await at.answer("enter", sees="2 Yes, and allow make a in this session")
    assert "more waiting," not in at.screen and "also for" not in at.screen
    await at.answer("2", then=lambda: at.session.answers)
    (update,) = at.session.answers["one"]["updatedPermissions"]
    assert update["rules"] == [{"toolName": "Bash", "ruleContent": "make a"}]
    await at.sees("$ make b")
    assert list(at.session.answers) == ["one"], "nobody knows whether the other rule covers it"


async def test_each_of_two_rules_can_be_changed_or_left_out(at: Desk) -> None:
    rules = [{"toolName": "Bash", "ruleContent": f"{each} *"} for each in ("make", "npm", "git")]
    await at.turn()
    at.session.ask("one", "Bash", {"command": "x"}, permission_suggestions=[{**MAKE, "rules": rules}])
    await at.card_focused(sees=("this session │ allow git *", "2 Yes, and the 3 rules above in this session"))
    await at.answer("e", "enter", then=lambda: at.card.field.value == "Bash(make *)")
    at.card.field.value = ""
    await at.press("enter", then=lambda: at.card.field.value == "Bash(npm *)")
    at.card.field.value = "Bash(npm test)"
    await at.press("enter", then=lambda: at.card.field.value == "Bash(git *)")
    await at.press("enter", sees=("this session │ allow npm test", "the 2 rules above"), loses="allow make *")
    await at.answer("2", then=lambda: at.session.answers)
    (update,) = at.session.answers["one"]["updatedPermissions"]
    assert [each["ruleContent"] for each in update["rules"]] == ["npm test", "git *"]


async def edits_two_rules(at: Desk) -> None:
    rules = [{"toolName": "Bash", "ruleContent": f"{each} *"} for each in ("make", "npm")]
    await at.turn()
    at.session.ask("one", "Bash", {"command": "x"}, permission_suggestions=[{**MAKE, "rules": rules}])
    await at.card_focused()
    await at.answer("e", "enter", then=lambda: at.card.field.value == "Bash(make *)")
    at.card.field.value = "Bash(rm *)"
    await at.press("enter", then=lambda: at.card.field.value == "Bash(npm *)")


async def test_esc_at_the_second_rule_shows_what_the_first_one_is_now(at: Desk) -> None:
    await edits_two_rules(at)
    await at.press("escape", sees=("this session │ allow rm *", "this session │ allow npm *"), lacks="allow make *")


async def test_a_take_over_ends_the_editing_of_rules(at: Desk) -> None:
    await edits_two_rules(at)
    await at.link(LinkState.FENCED, "alice drives", sees=("Waits for the client", "this session │ allow rm *"))
    await at.link(LinkState.CONNECTED, sees="4 No, and say why")
    await at.press("tab")
    await at.card_listens()
    await at.answer("4", then=lambda: at.card.has_class("typing"))
    await at.enter("no", then=lambda: at.session.answers)
    assert at.session.answers["one"]["message"].endswith("The user says: no")


async def test_esc_leaves_the_rule_as_it_was(at: Desk) -> None:
    await asked(at, one="make a")
    await at.answer("e", "enter", then=lambda: at.view.card is not None and at.card.has_class("typing"))
    await at.answer("escape", sees="2 Yes, and allow make * in this session")
    await at.answer("4", "enter", sees="Why not?")


async def test_a_long_question_takes_the_whole_screen_with_ctrl_o_and_gives_it_back() -> None:
    async with desk(size=(100, 40), turn="go") as at:
        at.session.ask("one", "Write", {"file_path": "/srv/shop/a", "content": "".join(f"{n}\n" for n in range(200))})
        await at.card_focused()

        def rows() -> int:
            return at.card.size.height if at.view.card is not None else 0

        before = rows()
        await at.alone("ctrl+o", then=lambda: rows() > before + 5, sees=("devbox:/srv/shop  ask", "4 No, and say why"))
        await at.alone("ctrl+o", then=lambda: rows() == before)


async def test_a_path_outside_of_the_session_s_directories_is_marked(at: Desk) -> None:
    await at.turn()
    at.session.ask(
        "one",
        "Read",
        {"file_path": "/etc/hosts"},
        decision_reason="/etc/hosts is outside the working directories.",
        decision_reason_type="workingDir",
        blocked_path="/etc/hosts",
    )
    await at.sees("! Outside of the session's directories: /etc/hosts", "1 Yes, once", lacks="Asked because")
    lines = at.screen.splitlines()
    [call] = [number for number, line in enumerate(lines) if "file_path │ /etc/hosts" in line]
    assert "1 Yes, once" in lines[call + 1], "nothing else is to be said, also not by an empty line"


async def test_a_tab_for_a_card_that_takes_no_focus_yet_is_not_lost(at: Desk, lock_over: Callable[[], None]) -> None:
    await asked(at, one="make a", two="git status")
    await at.answer("1", sees="$ git status")
    assert at.card.settling
    await at.press("tab")
    assert not at.card.has_focus
    lock_over()
    await at.card_listens()
    await at.answer("4", sees="Why not?")


async def test_a_tab_before_typed_text_leaves_the_text_its_place(at: Desk, lock_over: Callable[[], None]) -> None:
    await asked(at, one="make a", two="git status")
    await at.answer("1", sees="$ git status")
    await at.press("tab", *"no, wait")
    lock_over()
    await at.until(lambda: not at.card.settling)
    await at.pilot.pause()
    assert not at.card.has_focus and at.composer.text == "no, wait"


@pytest.mark.usefixtures("lock_over")
async def test_keys_are_typed_again_once_the_card_is_gone_that_they_were_held_for(at: Desk) -> None:
    await asked(at, one="make a", two="make b")
    await at.answer("1", then=lambda: at.view.card is not None and at.card.settling)
    at.session.withdraw_question("two")
    await at.until(lambda: at.view.card is None)
    await at.press("y", has="")
    await at.until(lambda: at.composer.text == "y")
    await at.press("n", has="yn")


@pytest.mark.usefixtures("lock_over")
async def test_a_card_that_has_gone_takes_no_keys_and_no_focus(at: Desk) -> None:
    await asked(at, one="make a", two="make b")
    await at.answer("1", then=lambda: at.view.card is not None and at.card.settling)
    gone, approvals = at.card, at.view.approvals
    at.session.withdraw_question("two")
    await at.until(lambda: at.view.card is None)
    await at.press("y", has="")
    approvals._settled(gone)  # as where its time was over while it was taken away
    assert approvals.holds_keys and at.app.focused is at.composer


async def test_the_next_card_waits_for_a_person_who_looks_at_another_window(
    at: Desk, lock_over: Callable[[], None]
) -> None:
    await asked(at, one="make a", two="make b")
    await at.answer("1", then=lambda: at.view.card is not None and at.card.settling)
    at.app.post_message(events.AppBlur())
    await at.until(lambda: at.app.focused is None)
    lock_over()
    await at.until(lambda: not at.card.settling)
    at.app.post_message(events.AppFocus())
    await at.until(lambda: at.app.focused is at.composer)
    await at.press("enter")
    assert list(at.session.answers) == ["one"]
