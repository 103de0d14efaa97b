"""The cards of plan mode."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.support.repl.pilot import Desk, desk

from ccb.local.session.session_client import LinkState
from ccb.local.tui.cards.question_card import QuestionCard
from ccb.tunnel.wire.frames import Json

PLAN = "# Cache\n\n1. Write it\n2. Test it"
WAYS = [{"type": "setMode", "mode": mode, "destination": "session"} for mode in ("acceptEdits", "default")]


async def asked(at: Desk, plan: str = PLAN, ways: list[Json] = WAYS, **more: Any) -> None:
    """Let the agent show its plan, and go to the card."""
    await at.prompt("go")
    at.session.begin(mode="plan")
    at.session.ask("ask", "ExitPlanMode", {"plan": plan, **more}, permission_suggestions=ways)
    await at.sees("plan waits: Tab")
    await at.card_focused()


async def answer(at: Desk) -> Json:
    await at.until(lambda: at.session.answers)
    return at.session.answers["ask"]


async def test_a_plan_is_approved_with_the_mode_of_the_answer() -> None:
    for key, mode in (("1", "acceptEdits"), ("2", "default")):
        async with desk(size=(80, 24)) as at:
            await asked(at, planFilePath="/home/me/.local/state/plan.md")
            assert "planFilePath" not in at.screen
            await at.sees(
                "Approve the plan on devbox:/srv/shop",
                "│ Cache",
                "│  1. Write it",
                "1 Yes, and accept edits",
                "3 No, keep planning",
            )
            await at.answer(key)
            updates = [{"type": "setMode", "mode": mode, "destination": "session"}]
            assert await answer(at) == {
                "behavior": "allow",
                "updatedInput": {"plan": PLAN, "planFilePath": "/home/me/.local/state/plan.md"},
                "updatedPermissions": updates,
            }


RULES = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "make test"}],
    "behavior": "allow",
    "destination": "session",
}


async def test_commands_of_the_plan_are_shown_and_allowed_with_it_unless_the_person_says_so() -> None:
    wanted = [{"tool": "Bash", "prompt": "make test"}]
    for key, mode, rules in (("1", "acceptEdits", [RULES]), ("5", "default", [])):
        async with desk(size=(80, 24)) as at:
            await asked(at, ways=[*WAYS, RULES], allowedPrompts=wanted)
            await at.sees("With the plan you allow these commands, for this session:", "$ make test")
            await at.sees("5 Yes, and ask before those commands too")
            await at.answer(key)
            updates = [{"type": "setMode", "mode": mode, "destination": "session"}, *rules]
            assert (await answer(at))["updatedPermissions"] == updates


def _is_below(card: QuestionCard, before: int) -> bool:
    return card.subject.unseen < before


async def test_the_last_rows_stay_in_sight_when_the_answers_appear() -> None:
    async with desk(size=(80, 24)) as at:  # on which the answers take the room of the last rows
        plan = "\n".join(f"{number}. step" for number in range(28))
        await asked(at, plan, ways=[*WAYS, RULES], allowedPrompts=[{"tool": "Bash", "prompt": "make test"}])
        card = at.card
        await at.until(lambda: card.subject.unseen)
        while before := card.subject.unseen:
            await at.press("space", then=partial(_is_below, card, before))
        await at.sees("1 Yes, and accept edits", "5 Yes, and ask before those commands too")
        await at.pause_of_a_person()
        assert "$ make test" in at.screen


async def test_a_rule_that_the_card_does_not_show_is_never_allowed_with_a_plan() -> None:
    wide = {**RULES, "rules": [{"toolName": "Bash"}]}
    async with desk(size=(80, 24)) as at:
        await asked(at, ways=[*WAYS, wide], allowedPrompts=[{"tool": "Bash", "prompt": "make test"}])
        await at.answer("1")
        assert [each["type"] for each in (await answer(at))["updatedPermissions"]] == ["setMode"]


async def test_the_approved_plan_stays_in_the_transcript(at: Desk) -> None:
    await at.prompt("go")
    at.session.begin(mode="plan")
    call = at.session.call("ExitPlanMode")
    at.session.done(call, "The user has approved the plan. Start.", structured={"plan": f"{PLAN}\x1b[2J"})
    await at.sees("● ExitPlanMode", " Cache", "1. Write it", "2. Test it", lacks="Start.")
    assert "# Cache" not in at.screen
    await at.press("ctrl+o", sees="# Cache")


async def test_the_mode_before_plan_mode_is_offered_if_it_was_another(at: Desk) -> None:
    await asked(at, ways=[*WAYS, {"type": "setMode", "mode": "bypassPermissions", "destination": "session"}])
    await at.sees("4 Yes, and BYPASS as before")


async def test_keep_planning_tells_the_agent_what_should_be_different(at: Desk) -> None:
    await asked(at)
    await at.answer("3")
    await at.enter("no new file")
    said = "The user wants to go on planning; plan mode stays on. The user says: no new file"
    assert await answer(at) == {"behavior": "deny", "message": said}


async def test_the_person_changes_the_plan_before_they_approve_it(at: Desk) -> None:
    await asked(at)
    await at.sees("Ctrl+G changes the plan")
    await at.press("ctrl+g", sees="Ctrl+G or Esc: done")
    await at.type("1 ")
    assert at.session.answers == {}, "in the editor a number is text"
    await at.press("escape", sees=("as you changed it", "│ 1 # Cache"))
    await at.answer("1")
    changed = (await answer(at))["updatedInput"]
    assert changed == {"plan": f"1 {PLAN}", "planWasEdited": True}


async def test_who_loses_the_session_while_they_change_the_plan_keeps_the_change(at: Desk) -> None:
    await asked(at)
    await at.press("ctrl+g", *"1 ")
    at.session.link(LinkState.FENCED, "bob drives")
    await at.sees("Waits for the client that drives this session.", "│ 1 # Cache")
    assert at.app.focused is at.composer


async def test_a_plan_with_hidden_characters_is_shown_exactly_and_not_edited(at: Desk) -> None:
    await asked(at, plan="# A\x1b[2Jb\u202ec")
    await at.sees("A⟨ESC⟩[2Jb⟨U+202E⟩c", "hidden characters")
    await at.press("ctrl+g")
    await at.pilot.pause()
    assert "Ctrl+G" not in at.screen


async def test_the_details_show_the_exact_text_and_the_rendered_one_again() -> None:
    async with desk(size=(80, 24)) as at:
        await asked(at, plan=f"# Cache\n\n{'step by step ' * 300}\n\n- **last**")
        before = at.card.subject.unseen
        await at.press("space", then=partial(_is_below, at.card, before))
        await at.press("ctrl+o", sees=("│ # Cache", "Ctrl+O rendered"))
        assert at.card.subject.unseen and at.session.answers == {}, "no row of the exact text was seen so far"
        while unseen := at.card.subject.unseen:
            await at.press("space", then=partial(_is_below, at.card, unseen))
        await at.sees("│ - **last**", "1 Yes, and accept edits")
        await at.pause_of_a_person()  # in which the last rows come into sight above the answers
        await at.press("ctrl+o", sees=("│ Cache", "Ctrl+O exact text", "1 Yes, and accept edits"), lacks="**")
        await at.answer("1")
        assert (await answer(at))["behavior"] == "allow"


async def test_a_long_plan_is_approved_only_after_all_of_it_was_on_the_screen() -> None:
    async with desk(size=(80, 24)) as at:
        await asked(at, plan="\n".join(f"{n}. step" for n in range(60)))
        await at.answer("1")
        assert at.session.answers == {}
        await at.sees("read on")


async def test_the_agent_asks_whether_it_plans_first(at: Desk) -> None:
    await at.turn()
    at.session.ask("ask", "EnterPlanMode", {})
    await at.card_focused(sees=("Plan first?", "changes nothing until you approve", "2 No, go on"))
    await at.answer("y")
    assert await answer(at) == {"behavior": "allow", "updatedInput": {}}
