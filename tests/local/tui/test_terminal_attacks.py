"""Nothing that the remote says is a command to the terminal: the bytes of the REPL, read by a strict parser.

`make fuzz` runs the generated attacks for longer (CCB_ATTACKS is the number of rounds).
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.repl.hostile_places import ASKED, TOLD, VISITED, lost
from tests.support.repl.pilot import Desk, desk
from tests.support.repl.recording import record, written_by
from tests.support.repl.scripted_session import ScriptedSession, hello
from tests.support.terminal.attacks import ATTACK_TEXTS, ATTACKS
from tests.support.terminal.strict_parser import strangers

from ccb.local.session.session_client import LinkState
from ccb.local.tui.app import Repl

SIZE = (120, 30)
STATES = r"(?:(?:working|waits for you|waits for the model|reconnecting|lost) · )?"
TITLES = rf"\x1b\]2;{STATES}(?:[\w .,:#()/+-]{{1,60}} · )?(?:ccb devbox:/srv/shop)?\x07"
NEUTRALISERS = ("neutralise", "one_line", "as_line", "escaped", "escaped_name", "_without_hidden_links")


def unfiltered(app: Repl) -> None:
    """Take the last filter off."""
    record(app)
    app._filters[:] = [each for each in app._filters if type(each).__name__ != "TextOnly"]


async def show(at: Desk, texts: list[str]) -> None:
    """Put the texts everywhere where the remote can put one, on the screen one after the other."""
    session, number = at.session, 0

    def text() -> str:
        nonlocal number
        number += 1
        return texts[number % len(texts)]

    await at.prompt("go")
    for place in TOLD:
        place(session, text())
        await at.pilot.pause()
    session.link(LinkState.CONNECTED)
    await at.press("ctrl+o")
    for visit in VISITED:
        await visit(at, text())
    for ask in ASKED:
        ask(session, text())
        await at.until(lambda: at.view.card is not None)
        await at.press("alt+a", "ctrl+o")
        await at.pilot.pause()
        session.withdraw_question("1")
        await at.until(lambda: at.view.card is None)
    lost(session, text())
    await at.pilot.pause()


async def written_while_shown(texts: list[str], *, filtered: bool = True) -> str:
    """Return all that the REPL writes, without the copy that /copy sends once."""
    greeting = hello(notes=texts[:3])
    async with desk(ScriptedSession(greeting=greeting), size=SIZE, before=record if filtered else unfiltered) as at:
        await show(at, texts)
        copied = base64.b64encode(at.app.clipboard.encode()).decode()
        return written_by(at.app).replace(f"\x1b]52;c;{copied}\x07", "", 1)


def harmless(written: str) -> None:
    assert strangers(written, TITLES) == []
    written.encode()


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("first", range(0, len(ATTACKS), 1 if "CCB_ATTACKS" in os.environ else 9))
async def test_known_attacks_do_nothing_anywhere(first: int) -> None:
    harmless(await written_while_shown([*ATTACKS[first:], *ATTACKS[:first]]))


@pytest.mark.thorough
@settings(
    max_examples=int(os.environ.get("CCB_ATTACKS", "2")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize="CCB_ATTACKS" not in os.environ,
)
@given(st.lists(ATTACK_TEXTS, min_size=30, max_size=60))
def test_no_generated_text_does_anything_anywhere(texts: list[str]) -> None:
    harmless(asyncio.run(written_while_shown(texts)))


def switch_off(monkeypatch: pytest.MonkeyPatch, room: str) -> None:
    """Make every function that neutralises text in the modules of a room one that returns the text."""
    for name, module in list(sys.modules.items()):
        if name.startswith(room):
            for each in NEUTRALISERS:
                if hasattr(module, each):
                    monkeypatch.setattr(module, each, lambda text: text)


BLUNT = ["a\x1b]52;c;ZXZpbA==\x07\x9b2Jb\x1b[6n\u202ec"]


async def test_if_every_widget_forgot_to_neutralise_nothing_would_happen_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch_off(monkeypatch, "ccb.local.tui")
    harmless(await written_while_shown(BLUNT))


async def test_the_check_sees_what_reaches_the_terminal_without_both(monkeypatch: pytest.MonkeyPatch) -> None:
    switch_off(monkeypatch, "ccb.local.tui")
    found = strangers(await written_while_shown(BLUNT, filtered=False), TITLES)
    assert {"\x9b", "\x1b[6n", "\u202e"} <= set(found)
    assert any(each.startswith("\x1b]52;c;ZXZpbA==") for each in found)
