"""The composer, the queue, the keys and the slash commands."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.repl.pilot import Desk, desk, key_event
from tests.support.repl.scripted_session import ScriptedSession
from textual import events

from ccb.local.slash_commands.typed_line import parse_command
from ccb.tunnel.wire.client_requests import SET_SANDBOX
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestFailed


async def test_an_empty_prompt_is_not_sent(at: Desk) -> None:
    await at.enter("  ")
    await at.type("x", then=lambda: at.composer.text == "  x")
    assert at.session.prompts == []


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "ctrl+enter", "alt+enter"])
async def test_a_new_line_does_not_send(at: Desk, key: str) -> None:
    await at.press(*"one", key)
    await at.enter("two", then=lambda: at.session.prompts == ["one\ntwo"])


async def test_up_and_down_walk_through_earlier_prompts_and_the_draft_comes_back(at: Desk) -> None:
    await at.prompt("first")
    await at.prompt("second")
    await at.press(*"draft", "up", has="second")
    await at.press("up", has="first")
    await at.press("up", "down", "down", has="draft")


async def test_up_inside_a_prompt_of_several_lines_moves_the_cursor() -> None:
    async with desk(size=(40, 20)) as at:
        await at.prompt("earlier")
        await at.type("word " * 12)
        await at.press("up")
        assert at.composer.text.startswith("word")
        await at.press("up", then=lambda: at.composer.text == "earlier")


async def test_a_turn_that_ends_with_a_queued_prompt_goes_on(at: Desk) -> None:
    await at.turn("first")
    await at.prompt("second")
    at.session.finish()
    await at.until(lambda: at.view.reducer.totals.output_tokens)
    assert at.view.reducer.running
    at.session.begin()
    at.session.finish()
    await at.until(lambda: not at.view.reducer.running)


async def test_esc_interrupts_a_running_turn_and_nothing_else(at: Desk) -> None:
    await at.press("escape")
    await at.turn()
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    at.session.finish(is_error=True, terminal_reason="aborted_streaming", errors=["aborted"])
    await at.until(lambda: not at.view.reducer.running, lacks="aborted")


async def test_ctrl_c_clears_then_interrupts_then_asks_then_quits(at: Desk) -> None:
    await at.prompt("go")
    await at.press(*"half", "ctrl+c", has="")
    assert at.session.interrupts == 0
    await at.press("ctrl+c", then=lambda: at.session.interrupts == 1)
    at.session.finish()
    await at.until(lambda: not at.view.reducer.running)
    await at.quits()


async def test_ctrl_q_asks_before_it_quits(at: Desk) -> None:
    await at.turn()
    await at.press("ctrl+q", sees="press Ctrl+Q again to quit")
    assert at.app.return_value is None
    await at.press("ctrl+q", then=lambda: at.app.return_value == 0)


async def test_what_was_typed_can_be_undone_and_ctrl_z_is_not_the_key_for_it(at: Desk) -> None:
    await at.press(*"ab", "ctrl+z", has="ab")
    await at.press("ctrl+underscore")
    assert at.composer.text != "ab"


async def test_ctrl_c_quits_also_when_an_interrupt_does_not_get_through() -> None:
    class Unheard(ScriptedSession):
        async def interrupt(self) -> None:
            await asyncio.Event().wait()

    async with desk(Unheard(), turn="go") as at:
        await at.press("ctrl+c", sees="interrupting")
        await at.quits()


async def test_ctrl_d_deletes_while_there_is_text_and_quits_when_there_is_none(at: Desk) -> None:
    await at.press(*"ab", "home", "ctrl+d", has="b")
    await at.press("ctrl+d")
    assert at.app.return_value is None
    await at.press("ctrl+d", then=lambda: at.app.return_value == 0)


async def test_shift_tab_walks_through_the_modes(at: Desk) -> None:
    for mode, shown in (("acceptEdits", "accept edits"), ("plan", "plan"), ("default", "caged"), ("default", "ask")):
        await at.press("shift+tab", sees=f"devbox:/srv/shop  {shown}  ")
        assert at.session.controls[-1] == ("set_permission_mode", {"mode": mode})
    cages = [each for each in at.session.controls if each[0] == "set_sandbox"]
    assert cages == [("set_sandbox", {"sandbox": each}) for each in ("workspace", "read-only")]
    at.session.answers_come.clear()  # a slow link: the second press goes on from where the first one leads
    await at.press("shift+tab", "shift+tab")
    await at.until(lambda: at.session.controls[-1] == ("set_permission_mode", {"mode": "plan"}))
    at.session.answers_come.set()
    await at.sees("devbox:/srv/shop  plan  ")


async def test_a_cage_that_the_host_cannot_make_is_left_out_of_the_modes() -> None:
    class NoCage(ScriptedSession):
        async def request(self, request: Request[P, A]) -> A:
            answer = await super().request(request)
            if request.kind is SET_SANDBOX:
                raise RequestFailed("user namespaces are forbidden")
            return answer

    async with desk(NoCage(), turn="go") as at:
        for shown in ("accept edits", "plan"):
            await at.press("shift+tab", sees=f"devbox:/srv/shop  {shown}  ")
        await at.press("shift+tab", sees="no cage: user namespaces are forbidden")
        await at.sees("devbox:/srv/shop  ask  ")
        for shown in ("accept edits", "plan", "ask"):
            await at.press("shift+tab", sees=f"devbox:/srv/shop  {shown}  ")
        assert [kind for kind, _ in at.session.controls].count("set_sandbox") == 1


async def test_a_mode_that_is_refused_is_not_shown(at: Desk) -> None:
    at.session.refuse_controls = "bypassPermissions is not allowed here"
    await at.enter("/mode bypassPermissions", sees="bypassPermissions is not allowed here")
    assert "BYPASS" not in at.status


async def test_a_paste_keeps_its_lines_and_loses_its_escape_sequences(at: Desk) -> None:
    at.app.post_message(events.Paste("one\r\ntwo\x1b[31m\x1b]52;c;eA==\x07 three\x9b2J"))
    await at.until(lambda: at.composer.text)
    assert at.composer.text == "one\ntwo three"


async def test_help_is_searched_and_scrolled_and_leaves_the_conversation_as_it_is(at: Desk) -> None:
    await at.type("half a prompt")
    await at.press("f1", sees=("Help: type to search", "Esc closes", "send; while the agent works, queued"))
    await at.press("pagedown", "pagedown", loses="send; while the agent works, queued")
    await at.type("theme", sees=("Help: theme", "/theme [NAME]"), lacks="/stop")
    await at.type("xyz", sees="Nothing fits what you typed.")
    await at.press("backspace", "backspace", "backspace", "escape", loses="Help:")
    assert at.app.focused is at.composer and at.composer.text == "half a prompt"
    await at.press("f1", sees="Help: type to search")
    await at.press("f1", loses="Help:")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("/copy", ["There is no answer yet."]),
        ("/theme", ["Theme", "› dark  now"]),
        ("/helpp", ["There is no command /helpp."]),
        ("/", ["❯ /"]),
    ],
)
async def test_commands_answer(at: Desk, typed: str, seen: list[str]) -> None:
    await at.enter(typed)
    await at.sees(*seen)
    assert at.session.prompts == ([typed] if typed == "/" else [])


@pytest.mark.parametrize("typed", ["!", "#"])
async def test_an_input_that_means_something_else_in_other_agents_is_not_sent_unnoticed(at: Desk, typed: str) -> None:
    await at.enter(typed)
    await at.sees("Nothing was sent", f"{typed[0]} at the start", f"put a space in front of the {typed[0]}")
    assert at.session.prompts == [] and at.composer.text == typed
    await at.press("home", "space", "enter", then=lambda: at.session.prompts == [typed])


@pytest.mark.parametrize("typed", ["/quit", "/exit"])
async def test_quit(at: Desk, typed: str) -> None:
    await at.enter(typed, then=lambda: at.app.return_value == 0)


async def test_keys_of_a_quick_hand_count_in_their_order(at: Desk) -> None:
    driver = at.app._driver
    assert driver is not None
    for key in ("x", "backspace", "a", "g", "left", "backspace", "h"):
        event = key_event(key)
        event.set_sender(at.app)
        driver.send_message(event)
    await at.until(lambda: at.composer.text == "hg")


def test_a_path_at_the_start_of_a_prompt_is_no_command() -> None:
    asked = parse_command("?")
    assert asked is not None and asked.name == "help"
    assert parse_command("? why") is None and parse_command("/etc/hosts is wrong") is None
    assert parse_command("/help\nme") is None


async def test_the_frame_says_where_a_command_runs_and_for_whom_a_note_is(at: Desk) -> None:
    await at.type("!ls", sees="─ A shell command on devbox ─")
    at.composer.text = "# a note"
    await at.sees("─ A note for every agent on devbox ─")
    at.composer.text = "a prompt"
    await at.loses("A note for every agent")
