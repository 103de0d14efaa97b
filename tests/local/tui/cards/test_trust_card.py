"""The card that asks whether a project may count."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.repl.pilot import Desk, desk

from ccb.tunnel.wire.control_protocol import ProjectTrust

FILE = "/srv/shop/.claude/settings.json"


def question(*details: str) -> ProjectTrust:
    hooks = [{"kind": "hook", "name": "Stop", "detail": each, "path": FILE} for each in details]
    rule = {"kind": "allow", "name": "Bash(make *)", "detail": "", "path": FILE}
    return ProjectTrust("/srv/shop", "mark", [*hooks, rule])


async def asked(at: Desk, *details: str) -> asyncio.Future[dict[str, Any]]:
    """Let this laptop ask, and go to the card."""
    asking = at.session.ask_trust(question(*details))
    await at.card_focused()
    return asking


async def test_the_card_shows_what_would_be_switched_on_and_a_yes_is_the_answer() -> None:
    async with desk(size=(100, 24)) as at:
        asking = await asked(at, "make check\nrm -rf ~")
        await at.sees("Trust the files of this project? on devbox:/srv/shop", FILE, "hook │ Stop", "make check")
        await at.sees("rm -rf ~", "allow rule │ Bash(make *)", "1 Yes, trust it on this host", "2 Not now")
        await at.answer("1")
        assert await asking == {"trusted": True}
        await at.until(lambda: at.view.card is None)


async def test_a_no_is_the_answer_too_and_a_withdrawn_question_goes_away(at: Desk) -> None:
    asking = await asked(at, "make")
    await at.answer("2")
    assert await asking == {"trusted": False}
    at.session.ask_trust(question("make"), "again")
    await at.card_focused()
    at.session.withdraw_question("again")
    await at.until(lambda: at.view.card is None)


async def test_hostile_text_cannot_drive_the_terminal_or_imitate_the_card() -> None:
    async with desk(size=(100, 24)) as at:
        asking = await asked(at, "\x1b[2Jmake \u202e\u200b kcehc")
        await at.sees("⟨ESC⟩[2Jmake ⟨U+202E⟩⟨U+200B⟩ kcehc")
        assert "hidden character" in at.screen
        await at.answer("2")
        await asking


async def test_nothing_can_be_trusted_before_all_of_it_was_on_the_screen() -> None:
    async with desk(size=(80, 24)) as at:
        asking = await asked(at, *(f"step {number}" for number in range(60)))
        await at.sees("to see before you can allow it", lacks="1 trust")
        for _ in range(20):
            if "1 Yes, trust it" in at.screen:
                break
            await at.answer("space")
        await at.answer("1")
        assert await asking == {"trusted": True}
