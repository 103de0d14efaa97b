"""Several questions at once, and rules that the person writes: the list of cards is walked, and one rule may answer
more than one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import session_rule

MAKE = session_rule("Bash", "make *")
GIT = session_rule("Bash", "git status")


def ask(at: Desk, request_id: str, command: str, rule: dict[str, Any]) -> None:
    at.session.ask(request_id, "Bash", {"command": command}, permission_suggestions=[rule])


async def test_questions_that_wait_are_walked_with_ctrl_n_and_ctrl_p() -> None:
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "two", "git status", GIT)
        ask(at, "three", "make b", MAKE)
        await at.card_focused()
        await at.sees("$ make a", "2 more waiting: Ctrl+N")
        await at.chord("ctrl+n")
        await at.sees("$ git status")
        await at.chord("ctrl+p")
        await at.chord("ctrl+p")
        await at.sees("$ make b")
        await at.until(lambda: at.app.view.card is not None and at.app.view.card.listens)
        await at.answer("1")
        await at.until(lambda: at.session.answers)
        assert list(at.session.answers) == ["three"]
        await at.sees("$ make a", "1 more waiting")


async def test_a_rule_for_the_session_answers_what_it_covers_and_nothing_else() -> None:
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "two", "git status", GIT)
        ask(at, "three", "make b", MAKE)
        await at.card_focused()
        await at.sees("2 this session: allow Bash(make *), also for 1 more waiting")
        await at.answer("2")
        await at.until(lambda: len(at.session.answers) == 2)
        await at.sees("$ git status")
        assert at.session.answers["one"]["updatedPermissions"] == [{**MAKE, "destination": "session"}]
        assert at.session.answers["three"] == {"behavior": "allow", "updatedInput": {"command": "make b"}}


async def test_a_rule_answers_calls_of_other_tools_that_it_covers() -> None:
    rule = session_rule("Read", "//etc/**")
    async with desk() as at:
        await at.turn()
        at.session.ask("one", "Read", {"file_path": "/etc/hosts"}, permission_suggestions=[rule])
        at.session.ask("two", "Glob", {"pattern": "*", "path": "/etc"}, permission_suggestions=[rule])
        at.session.ask("three", "Write", {"file_path": "/etc/x", "content": ""}, permission_suggestions=[rule])
        await at.card_focused()
        await at.sees("2 this session: allow Read(//etc/**), also for 1 more waiting")
        await at.answer("2")
        await at.until(lambda: len(at.session.answers) == 2)
        assert list(at.session.answers) == ["one", "two"]


async def test_a_domain_answers_the_pages_of_that_domain_only() -> None:
    """Also where the worker suggests it for another one: this page may be read by the laptop."""
    rule = session_rule("WebFetch", "domain:docs.example")
    async with desk() as at:
        await at.turn()
        for name, url in (("one", "docs.example/a"), ("two", "DOCS.example:8080/b"), ("three", "docs.example@evil/c")):
            at.session.ask(name, "WebFetch", {"url": f"https://{url}"}, permission_suggestions=[rule])
        at.session.ask("four", "WebFetch", {"url": "not a URL"}, permission_suggestions=[rule])
        await at.card_focused()
        await at.sees("allow WebFetch(domain:docs.example), also for 1 more waiting")
        await at.answer("2")
        await at.until(lambda: len(at.session.answers) == 2)
        assert list(at.session.answers) == ["one", "two"]


async def test_once_answers_only_the_question_that_was_shown() -> None:
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "three", "make b", MAKE)
        await at.card_focused()
        await at.answer("1")
        await at.sees("$ make b")
        assert list(at.session.answers) == ["one"]


async def test_the_rule_can_be_changed_before_it_is_granted() -> None:
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "three", "make b", MAKE)
        await at.card_focused()
        await at.answer("e", "enter")
        await at.until(lambda: at.app.view.card is not None and at.app.view.card.field.value == "Bash(make *)")
        await at.sees("The rule to grant instead", "Esc goes back")
        assert at.app.view.card is not None
        at.app.view.card.field.value = "Read(/etc/**)"
        await at.answer("enter")
        await at.sees("Not a rule for Bash")
        at.app.view.card.field.value = "Bash(make a)"
        await at.answer("enter")
        await at.sees("2 this session: allow Bash(make a)")
        assert "more waiting," not in at.screen and "also for" not in at.screen
        await at.answer("2")
        await at.until(lambda: at.session.answers)
        (update,) = at.session.answers["one"]["updatedPermissions"]
        assert update["rules"] == [{"toolName": "Bash", "ruleContent": "make a"}]
        await at.sees("$ make b")
        assert list(at.session.answers) == ["one"], "nobody knows whether the other rule covers it"


async def test_esc_leaves_the_rule_as_it_was() -> None:
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        await at.card_focused()
        await at.answer("e", "enter")
        await at.until(lambda: at.app.view.card is not None and at.app.view.card.has_class("typing"))
        await at.answer("escape")
        await at.sees("2 this session: allow Bash(make *)")
        await at.answer("3", "enter")
        await at.sees("Why not?")


async def test_a_long_question_takes_the_whole_screen_with_ctrl_o_and_gives_it_back() -> None:
    async with desk(size=(100, 40)) as at:
        await at.turn()
        at.session.ask("one", "Write", {"file_path": "/srv/shop/a", "content": "".join(f"{n}\n" for n in range(200))})
        await at.card_focused()

        def rows() -> int:
            return at.app.view.card.size.height if at.app.view.card is not None else 0

        before = rows()
        await at.chord("ctrl+o")
        await at.until(lambda: rows() > before + 5)
        await at.sees("devbox:/srv/shop  ask", "3 deny")
        await at.chord("ctrl+o")
        await at.until(lambda: rows() == before)


async def test_a_path_outside_of_the_session_s_directories_is_marked() -> None:
    async with desk() as at:
        await at.turn()
        at.session.ask(
            "one",
            "Read",
            {"file_path": "/etc/hosts"},
            decision_reason="/etc/hosts is outside the working directories.",
            decision_reason_type="workingDir",
            blocked_path="/etc/hosts",
        )
        await at.sees("! Outside of the session's directories: /etc/hosts")


async def test_the_same_suggestion_for_another_tool_answers_nothing() -> None:
    """A hostile worker could join a call of a laptop's MCP server to a question that is answered lightly."""
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        at.session.ask("two", "mcp__mail__send", {"to": "all"}, permission_suggestions=[MAKE])
        await at.card_focused()
        await at.sees("2 this session: allow Bash(make *)", "1 more waiting")
        assert "also for" not in at.screen
        await at.answer("2")
        await at.sees("mcp__mail__send on devbox")
        assert list(at.session.answers) == ["one"]


async def test_a_rule_about_another_tool_covers_no_call_of_this_one() -> None:
    async with desk() as at:
        await at.turn()
        at.session.ask("one", "mcp__mail__send", {"to": "me"}, permission_suggestions=[MAKE])
        at.session.ask("two", "mcp__mail__send", {"to": "all"}, permission_suggestions=[MAKE])
        await at.card_focused()
        await at.answer("2")
        await at.until(lambda: at.session.answers)
        await at.sees("to │ all")
        assert list(at.session.answers) == ["one"]


@pytest.mark.parametrize(("content", "answered"), [("me", ["one"]), ("", ["one", "two"])])
async def test_of_a_laptop_s_tool_only_a_rule_about_all_of_it_answers_others(content: str, answered: list[str]) -> None:
    rule = session_rule("mcp__mail__send", content)
    async with desk() as at:
        await at.turn()
        at.session.ask("one", "mcp__mail__send", {"to": "me"}, permission_suggestions=[rule])
        at.session.ask("two", "mcp__mail__send", {"to": "all"}, permission_suggestions=[rule])
        await at.card_focused()
        await at.answer("2")
        await at.until(lambda: len(at.session.answers) == len(answered))
        await at.until(lambda: len(answered) == 2 or "to │ all" in at.screen)
        assert list(at.session.answers) == answered


@pytest.mark.slow
async def test_a_tab_for_a_card_that_takes_no_focus_yet_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.local.tui.approvals._SETTLING_S", 3.0)  # longer than a busy machine needs below
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "two", "git status", GIT)
        await at.card_focused()
        await at.answer("1")
        await at.sees("$ git status")
        card = at.app.view.card
        assert card is not None
        assert card.settling
        await at.pilot.press("tab")
        assert not card.has_focus
        await at.until(lambda: card.listens)
        await at.answer("3")
        await at.sees("Why not?")


@pytest.mark.slow
async def test_a_tab_before_typed_text_leaves_the_text_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.local.tui.approvals._SETTLING_S", 3.0)
    async with desk() as at:
        await at.turn()
        ask(at, "one", "make a", MAKE)
        ask(at, "two", "git status", GIT)
        await at.card_focused()
        await at.answer("1")
        await at.sees("$ git status")
        card = at.app.view.card
        assert card is not None
        await at.pilot.press("tab")
        await at.type("no, wait")
        await at.until(lambda: not card.settling)
        await at.pilot.pause()
        assert not card.has_focus
        assert at.app.composer.text == "no, wait"
