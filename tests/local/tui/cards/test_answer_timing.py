"""Whatever the times at which keys come, nothing typed is an answer, and no answer is a prompt."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.repl.pilot import Desk, desk, key_event
from tests.support.repl.scripted_session import session_rule
from textual import events

RULE = session_rule("Bash", "make *")
ANSWERS = ("tab enter", "tab 1 enter", "alt+a y enter", "tab 2 enter", "1 enter", "y enter", "enter", "tab tab enter")
TEXTS = ("1 fix", "yes please", "no, wait", "4 files", "2", "so 1", "y", "n")
GAPS_S = (0.0, 0.0, 0.02, 0.06, 0.12, 0.12, 0.3, 0.45, 0.6)


class Day:
    """A person at the keys while cards come and go: what they type, and which answers were given while they typed."""

    def __init__(self, at: Desk, seed: int) -> None:
        self._at = at
        self._random = random.Random(seed)
        self._asked = 0
        self.typed: list[str] = []
        self.given_while_typing: list[str] = []
        self.log: list[str] = []

    async def key(self, key: str) -> None:
        self.log.append(key)
        driver = self._at.app._driver
        assert driver is not None
        event = key_event(key)
        event.set_sender(self._at.app)
        driver.send_message(event)
        await asyncio.sleep(self._random.choice(GAPS_S))
        if self._random.random() < 0.08:
            self._change_cards()

    def _change_cards(self) -> None:
        card = self._at.view.card
        if card is not None and not card.answered and self._random.random() < 0.4:
            self.log.append("(gone)")
            self._at.session.withdraw_question(card.asked.request.request_id)
        else:
            self._asked += 1
            self.log.append("(asks)")
            command = f"make {self._asked}"
            self._at.session.ask(f"q{self._asked}", "Bash", {"command": command}, permission_suggestions=[RULE])

    async def answers(self) -> None:
        if self._at.view.card is None:
            self._change_cards()
            await self._at.until(lambda: self._at.view.card is not None)
            await asyncio.sleep(self._random.choice((0.0, 0.3, 1.2)))
        for key in self._random.choice(ANSWERS).split():
            await self.key(key)

    async def types(self) -> None:
        before = set(self._at.session.answers)
        text = f"{self._random.choice(TEXTS)} {len(self.typed)}."  # it is text by its last character, if not before
        self.typed.append(text)
        for char in text:
            await self.key("space" if char == " " else char)
        await asyncio.sleep(0.1)
        await self.key("enter")
        await asyncio.sleep(0.1)
        self.given_while_typing += set(self._at.session.answers) - before

    async def looks_away(self) -> None:
        self.log.append("(away)")
        self._at.app.post_message(events.AppBlur())
        await asyncio.sleep(self._random.choice(GAPS_S))
        self._at.app.post_message(events.AppFocus())

    async def act(self) -> None:
        self.log.append("|")
        await self._random.choice((self.answers, self.answers, self.types, self.types, self.looks_away))()
        await asyncio.sleep(self._random.choice((0.1, 0.3, 0.7)))


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 60))
async def test_nothing_typed_is_an_answer_and_no_answer_is_a_prompt(seed: int) -> None:
    async with desk(turn="go") as at:
        day = Day(at, seed)
        for _ in range(12):
            await day.act()
        await at.pilot.pause()
        assert day.given_while_typing == [], " ".join(day.log)
        prompts = at.session.prompts[1:]
        assert len(prompts) == len(day.typed), " ".join(day.log)
        for prompt, typed in zip(prompts, day.typed, strict=True):  # characters that mark may be lost with their card
            assert typed.endswith(prompt) and set(typed[: -len(prompt)]) <= set("1234yn "), " ".join(day.log)
