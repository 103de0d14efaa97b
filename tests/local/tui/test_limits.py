"""However much the remote says at once, the screen stays quick and the person knows what was not shown."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.scripted_session import ScriptedSession, session_rule

from ccb.local.transcript.blocks import ToolBlock
from ccb.local.tui.rendering.approval_text import MAX_CHARS, MAX_LINES
from ccb.local.tui.widgets import drawing

pytestmark = pytest.mark.slow

SIZE = 100_000
LIMIT_S = 8.0  # of CPU; without the limits of the REPL each of these takes several times as long


LONG_RULE = session_rule("Bash", "x " * SIZE)


@pytest.mark.parametrize(
    "say",
    [
        lambda session: session.text("```markdown\n" + "**a _b [c](d\n" * (SIZE * 3 // 13) + "```\n\nEND"),
        lambda session: session.text("- x\n" * 90_000 + "\nEND"),
        lambda session: session.ask("ask", "Bash", {"command": "x\n" * SIZE, "description": "END"}),
        lambda session: session.ask("ask", "Write", {"file_path": "END", "content": "z\n" * SIZE}),
        lambda session: session.ask(
            "ask", "Bash", {"command": "END"}, decision_reason="r " * SIZE, permission_suggestions=[LONG_RULE]
        ),
    ],
    ids=["code", "list", "command", "file", "reason"],
)
@pytest.mark.quick_rows(1)
async def test_a_lot_at_once_is_shown_in_bounded_time(at: Desk, say: Callable[[ScriptedSession], None]) -> None:
    await at.prompt("go")
    began = time.process_time()
    say(at.session)
    await at.until(lambda: "END" in at.screen or (at.view.card is not None and "4 No, and say why" in at.screen))
    await at.pilot.pause()
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        ("Bash", {"command": "true\n" * MAX_LINES + "rm -rf /precious"}),
        ("Bash", {"command": "true;" * (MAX_CHARS // 5) + "rm -rf /precious"}),
        ("Write", {"file_path": "/a", "content": "line\n" * MAX_LINES}),
        ("Odd", {"value": "y" * (MAX_CHARS + 1)}),
    ],
)
@pytest.mark.quick_rows(1)
async def test_a_question_too_long_to_read_says_so_first_and_can_only_be_denied(
    at: Desk, tool: str, tool_input: dict[str, str]
) -> None:
    await at.asked(
        tool, tool_input, sees=("Too long to read: these are the first", "too long to allow:   4 No, and say why")
    )
    await at.answer("1", "y", "right", "4")
    assert at.session.answers == {}
    await at.press("enter", then=lambda: at.session.answers)
    assert at.session.answers["ask"]["behavior"] == "deny"


@pytest.mark.thorough
async def test_a_question_of_two_thousand_lines_is_shown_whole() -> None:
    async with desk(size=(100, 120)) as at:
        await at.asked("Bash", {"command": "\n".join(f"echo {n}" for n in range(1_999))})
        await at.sees("echo 0", "1,9", "lines to see before you can allow it", lacks="Too long")
        for _ in range(100):
            if not at.card.subject.unseen:
                break
            await at.press("pagedown")
        await at.sees("echo 1998", "1 Yes, once")


async def test_a_rule_too_long_to_read_cannot_be_granted(at: Desk) -> None:
    await at.asked("Bash", {"command": "make"}, permission_suggestions=[LONG_RULE])
    assert "this session" not in at.screen
    await at.answer("2")
    await at.pilot.pause()
    assert at.session.answers == {}


@pytest.mark.parametrize(
    "suggestion",
    [
        {"type": "addDirectories", "directories": 5},
        {"type": "addRules", "rules": "all"},
        {"type": "addRules", "rules": [None, {"toolName": 7}]},
        {"type": None},
        {},
    ],
)
async def test_suggestions_without_sense_do_not_break_the_card(at: Desk, suggestion: dict[str, object]) -> None:
    await at.asked("Bash", {"command": "make"}, permission_suggestions=[suggestion])
    await at.answer("1", then=lambda: at.session.answers)
    assert at.session.answers["ask"]["behavior"] == "allow"


async def test_an_answer_of_many_parts_is_one_answer() -> None:
    text = "".join(f"Paragraph {n} is here.\n\n" for n in range(2_000)).strip()
    async with desk(size=(80, 40)) as at:
        await at.prompt("go")
        await at.says(text, sees="Paragraph 1999 is here.")
        assert at.view.reducer.answers[-1] == text
        at.session.fact("withdrawn", message_id="msg_1")
        await at.loses("Paragraph")


@pytest.mark.thorough
async def test_what_calls_carry_counts_for_the_memory_of_the_page(at: Desk) -> None:
    await at.prompt("go")
    for number in range(60):
        call = at.session.call("Write", file_path=f"/srv/shop/{number}", content="z" * 400_000)
        at.session.done(call, "written")
    await at.sees("● Write 59")
    held = sum(len(block.tool_input["content"]) for block in at.view.transcript.blocks if isinstance(block, ToolBlock))
    assert held <= drawing.MAX_BYTES
    await at.press(*["pageup"] * 40, sees="older entries are no longer shown here")
