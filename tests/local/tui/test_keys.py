"""The keys that the settings change, and the keys that end something."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.repl.pilot import COLOURFUL, Desk, desk
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.config.settings_loading import ScreenSettings, load_screen_settings
from ccb.local.session.session_client import LinkState
from ccb.local.terminal.keymap import keymap_of

CHOSEN = ScreenSettings(
    keymap_of({"send": "Ctrl+J", "newline": "Enter", "details": "Ctrl+Y", "interrupt": "Ctrl+X", "help": "F2"})
)


async def test_a_key_of_the_settings_does_what_the_usual_one_did() -> None:
    async with desk(screen=CHOSEN, size=(100, 50), sees="F2 or /help shows the keys") as at:
        await at.enter("a")
        await at.type("b")
        assert at.composer.text == "a\nb" and not at.session.prompts
        await at.press("ctrl+j", then=lambda: at.session.prompts)
        at.session.begin()
        await at.sees("Ctrl+X interrupts")
        await at.press("escape")
        assert not at.session.interrupts
        await at.press("ctrl+x", then=lambda: at.session.interrupts)
        await at.press("f2", sees=("Ctrl+X   ", "interrupt the agent"))


async def test_the_list_of_keys_shows_those_that_hold_with_their_ids() -> None:
    async with desk(screen=CHOSEN, size=(120, 50)) as at:
        await at.press(*"/keys", "ctrl+j", sees=("details: Ctrl+Y", "newline: Enter", "todos: Ctrl+T"))


async def test_keys_on_a_card_and_in_a_list_are_those_of_the_settings() -> None:
    chosen = keymap_of(
        {"answer-once": "j", "answer-deny": ["x"], "next-question": "Ctrl+Y", "approval-tab": "F4", "queue-drop": "z"}
    )
    async with desk(screen=ScreenSettings(chosen), turn="go") as at:
        at.session.ask("one", "Bash", {"command": "make a"})
        at.session.ask("two", "Bash", {"command": "make b"})
        await at.sees("F4 to answer ", "j Yes, once", "x No, and say why", "1 more waiting: Ctrl+Y")
        await at.alone("f4")
        await at.card_listens()
        await at.alone("ctrl+y", sees="$ make b")
        await at.answer("j", "enter", then=lambda: list(at.session.answers) == ["two"])
        await at.prompt("later")
        await at.alone("alt+q", sees="z drops")
        await at.press("d")
        assert not at.session.controls
        await at.press("z", then=lambda: [name for name, _ in at.session.controls] == ["cancel_async_message"])


async def test_vims_keys_are_kept_for_later_runs(tmp_path: Path) -> None:
    environ = {**COLOURFUL, "HOME": str(tmp_path)}
    async with desk(environ=environ) as at:
        await at.enter("/vim", then=lambda: load_screen_settings(environ).vim)
    async with desk(environ=environ, screen=load_screen_settings(environ)) as at:
        await at.sees("INSERT")


class SlowSession(ScriptedSession):
    """A session to which an interrupt takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.may_arrive = asyncio.Event()

    async def interrupt(self) -> None:
        await super().interrupt()
        await self.may_arrive.wait()


async def test_an_interrupt_is_shown_at_once_and_until_the_turn_has_ended() -> None:
    session = SlowSession()
    async with desk(session, turn="Build it.", sees="working") as at:
        await at.press("escape")
        assert "interrupting…" in at.status
        await at.press("escape")
        assert "interrupting…" in at.status and at.session.interrupts == 1
        session.may_arrive.set()
        await at.pilot.pause(0.1)
        assert "interrupting…" in at.status
        at.session.finish()
        await at.loses("interrupting…")


async def test_an_interrupt_without_a_connection_says_that_it_is_on_its_way() -> None:
    async with desk(SlowSession(), turn="Build it.") as at:
        await at.link(LinkState.RECONNECTING, "no route to host", 1, sees="no route to host")
        await at.press("escape", sees=("interrupting…", "sent when the connection is there again"))


async def test_while_a_command_line_runs_nobody_waits_for_the_model(at: Desk) -> None:
    await at.turn("! sleep 60", then=lambda: at.view.reducer.running)
    assert not at.view.reducer.waits_for_model
    at.session.finish()
    await at.turn("and now?", then=lambda: at.view.reducer.waits_for_model)
