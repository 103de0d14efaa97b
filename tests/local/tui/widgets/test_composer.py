"""The composer, the queue, the keys and the slash commands."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.repl.pilot import desk, key_event
from tests.support.repl.scripted_session import MODEL, ScriptedSession
from textual import events

from ccb.local.slash_commands.command_table import COMMANDS
from ccb.local.slash_commands.typed_line import parse_command
from ccb.tunnel.errors import ConnectionLost


async def test_enter_sends_and_empties() -> None:
    async with desk() as at:
        await at.type("fix it")
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ["fix it"])
        assert at.app.composer.text == ""
        await at.sees("❯ fix it", "working")


async def test_an_empty_prompt_is_not_sent() -> None:
    async with desk() as at:
        await at.type("  ")
        await at.pilot.press("enter")
        await at.type("x")
        await at.until(lambda: at.app.composer.text == "  x")
        assert at.session.prompts == []


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter", "ctrl+enter", "alt+enter"])
async def test_a_new_line_does_not_send(key: str) -> None:
    async with desk() as at:
        await at.type("one")
        await at.pilot.press(key)
        await at.type("two")
        await at.pilot.press("enter")
        await at.until(lambda: at.session.prompts == ["one\ntwo"])


async def test_the_first_prompt_of_the_command_line_is_sent_at_once() -> None:
    async with desk(prompt="from the shell") as at:
        await at.until(lambda: at.session.prompts == ["from the shell"])
        await at.sees("❯ from the shell")


async def test_up_and_down_walk_through_earlier_prompts_and_the_draft_comes_back() -> None:
    async with desk() as at:
        await at.prompt("first")
        await at.prompt("second")
        await at.type("draft")
        await at.pilot.press("up")
        assert at.app.composer.text == "second"
        await at.pilot.press("up")
        assert at.app.composer.text == "first"
        await at.pilot.press("up", "down", "down")
        assert at.app.composer.text == "draft"


async def test_up_inside_a_prompt_of_several_lines_moves_the_cursor() -> None:
    async with desk(size=(40, 20)) as at:
        await at.prompt("earlier")
        await at.type("word " * 12)
        await at.pilot.press("up")
        assert at.app.composer.text.startswith("word")
        await at.pilot.press("up")
        await at.until(lambda: at.app.composer.text == "earlier")


async def test_prompts_sent_during_a_turn_are_queued_below_what_the_agent_says() -> None:
    async with desk() as at:
        await at.prompt("first")
        at.session.begin()
        await at.prompt("second")
        await at.sees("❯ second  (queued)")
        at.session.text("Still at the first.")
        await at.sees("Still at the first.", "❯ second")
        assert at.screen.index("Still at the first.") < at.screen.index("❯ second")
        at.session.take(at.session.identities[1])
        await at.loses("(queued)")
        at.session.text("Now the second.", message_id="msg_2")
        await at.sees("❯ second", "Now the second.")
        assert at.screen.index("❯ second") < at.screen.index("Now the second.")


async def test_a_turn_that_ends_with_a_queued_prompt_goes_on() -> None:
    async with desk() as at:
        await at.prompt("first")
        at.session.begin()
        await at.prompt("second")
        at.session.finish()
        await at.until(lambda: at.app.view.reducer.totals.output_tokens)
        assert at.app.view.reducer.running
        at.session.begin()
        at.session.finish()
        await at.until(lambda: not at.app.view.reducer.running)


async def test_a_prompt_that_could_not_be_sent_says_so() -> None:
    session = ScriptedSession()
    session.prompt_failure = ConnectionLost("devbox is gone", evidence="reset by peer", do="Connect again.")
    async with desk(session) as at:
        await at.type("hello")
        await at.pilot.press("enter")
        await at.sees("devbox is gone", "reset by peer", "Connect again.")
        await at.until(lambda: "working" not in at.status)


async def test_esc_interrupts_a_running_turn_and_nothing_else() -> None:
    async with desk() as at:
        await at.pilot.press("escape")
        await at.prompt("go")
        at.session.begin()
        await at.pilot.press("escape")
        await at.until(lambda: at.session.interrupts == 1)
        at.session.finish(is_error=True, terminal_reason="aborted_streaming", errors=["aborted"])
        await at.until(lambda: not at.app.view.reducer.running)
        assert "aborted" not in at.screen


async def test_ctrl_c_clears_then_interrupts_then_asks_then_quits() -> None:
    async with desk() as at:
        await at.prompt("go")
        await at.type("half")
        await at.pilot.press("ctrl+c")
        assert at.app.composer.text == ""
        assert at.session.interrupts == 0
        await at.pilot.press("ctrl+c")
        await at.until(lambda: at.session.interrupts == 1)
        at.session.finish()
        await at.until(lambda: not at.app.view.reducer.running)
        await at.pilot.press("ctrl+c")
        await at.sees("press Ctrl+C again to quit")
        assert at.app.is_running
        await at.pilot.press("ctrl+c")
        await at.until(lambda: at.app.return_value == 0)


async def test_ctrl_q_asks_before_it_quits() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.begin()
        await at.pilot.press("ctrl+q")
        await at.sees("press Ctrl+Q again to quit")
        assert at.app.return_value is None
        await at.pilot.press("ctrl+q")
        await at.until(lambda: at.app.return_value == 0)


async def test_what_was_typed_can_be_undone_and_ctrl_z_is_not_the_key_for_it() -> None:
    async with desk() as at:
        await at.type("ab")
        await at.pilot.press("ctrl+z")
        assert at.app.composer.text == "ab"
        await at.pilot.press("ctrl+underscore")
        assert at.app.composer.text != "ab"


async def test_ctrl_c_quits_also_when_an_interrupt_does_not_get_through() -> None:
    class Unheard(ScriptedSession):
        async def interrupt(self) -> None:
            await asyncio.Event().wait()

    async with desk(Unheard()) as at:
        await at.prompt("go")
        at.session.begin()
        await at.pilot.press("ctrl+c")
        await at.sees("interrupting")
        await at.pilot.press("ctrl+c")
        await at.sees("press Ctrl+C again to quit")
        await at.pilot.press("ctrl+c")
        await at.until(lambda: at.app.return_value == 0)


async def test_ctrl_d_deletes_while_there_is_text_and_quits_when_there_is_none() -> None:
    async with desk() as at:
        await at.type("ab")
        await at.pilot.press("home", "ctrl+d")
        assert at.app.composer.text == "b"
        await at.pilot.press("ctrl+d")
        assert at.app.return_value is None
        await at.pilot.press("ctrl+d")
        await at.until(lambda: at.app.return_value == 0)


async def test_shift_tab_walks_through_the_modes() -> None:
    async with desk() as at:
        for mode, shown in (("acceptEdits", "accept edits"), ("plan", "plan"), ("default", "ask")):
            await at.pilot.press("shift+tab")
            await at.sees(f"devbox:/srv/shop  {shown}  ")
            assert at.session.controls[-1] == ("set_permission_mode", {"mode": mode})
        at.session.answers_come.clear()  # a slow link: the second press goes on from where the first one leads
        await at.pilot.press("shift+tab", "shift+tab")
        await at.until(lambda: at.session.controls[-1] == ("set_permission_mode", {"mode": "plan"}))
        at.session.answers_come.set()
        await at.sees("devbox:/srv/shop  plan  ")


async def test_a_mode_that_is_refused_is_not_shown() -> None:
    async with desk() as at:
        at.session.refuse_controls = "bypassPermissions is not allowed here"
        await at.type("/mode bypassPermissions")
        await at.pilot.press("enter")
        await at.sees("bypassPermissions is not allowed here")
        assert "BYPASS" not in at.status


async def test_a_paste_keeps_its_lines_and_loses_its_escape_sequences() -> None:
    async with desk() as at:
        at.app.post_message(events.Paste("one\r\ntwo\x1b[31m\x1b]52;c;eA==\x07 three\x9b2J"))
        await at.until(lambda: at.app.composer.text)
        assert at.app.composer.text == "one\ntwo three"


async def test_help_lists_all_commands_and_the_keys() -> None:
    async with desk(size=(100, 300)) as at:
        await at.pilot.press("f1")
        await at.sees("Shift+Tab", "Ctrl+O", *(command.usage for command in COMMANDS))


async def test_help_is_searched_and_scrolled_and_leaves_the_conversation_as_it_is() -> None:
    async with desk(size=(100, 30)) as at:
        await at.type("half a prompt")
        await at.pilot.press("f1")
        await at.sees("Help: type to search", "Esc closes", "send; while the agent works, queued")
        await at.pilot.press("pagedown", "pagedown")
        await at.loses("send; while the agent works, queued")
        await at.type("theme")
        await at.sees("Help: theme", "/theme [NAME]")
        assert "/stop" not in at.screen
        await at.type("xyz")
        await at.sees("Nothing fits what you typed.")
        await at.pilot.press("backspace", "backspace", "backspace", "escape")
        await at.loses("Help:")
        assert at.app.focused is at.app.composer and at.app.composer.text == "half a prompt"
        await at.pilot.press("f1")
        await at.sees("Help: type to search")
        await at.pilot.press("f1")
        await at.loses("Help:")


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("/status", ["Session     5e55", "devbox:/srv/shop", "pid 4242", "connected"]),
        ("/cost", ["0 tokens in, 0 out, $0.0000"]),
        ("/copy", ["There is no answer yet."]),
        ("/model", ["Model: claude-sonnet-4-5"]),
        ("/mode", ["Permission mode: default"]),
        ("/theme", ["Theme: dark"]),
        ("/helpp", ["There is no command /helpp."]),
        ("/", ["❯ /"]),
    ],
)
async def test_commands_answer(typed: str, seen: list[str]) -> None:
    async with desk() as at:
        await at.type(typed)
        await at.pilot.press("enter")
        await at.sees(*seen)
        assert at.session.prompts == ([typed] if typed == "/" else [])


async def test_model_and_theme_change() -> None:
    async with desk() as at:
        await at.type("/model opus")
        await at.pilot.press("enter")
        await at.until(lambda: at.session.controls == [("set_model", {"model": "opus"})])
        await at.until(lambda: "opus" in at.status)
        await at.type("/theme light")
        await at.pilot.press("enter")
        await at.until(lambda: at.app.theme == "ccb-light")


@pytest.mark.parametrize(("typed", "meant"), [("nonsense", ""), ("opsu", "Did you mean /model opus?")])
async def test_a_word_that_is_no_model_changes_nothing_and_says_what_would(typed: str, meant: str) -> None:
    async with desk() as at:
        await at.type(f"/model {typed}")
        await at.pilot.press("enter")
        await at.sees(
            f"{typed} is no model: the model stays. {meant}".strip(), "opus, haiku, or the full id of a model"
        )
        assert at.session.controls == []
        await at.until(lambda: MODEL in at.status)


async def test_a_full_id_that_ccb_does_not_know_is_left_to_the_provider() -> None:
    async with desk() as at:
        await at.type("/model vendor/other-model-7b")
        await at.pilot.press("enter")
        await at.sees("Model: vendor/other-model-7b, from the next model call on, where the provider refuses it if")
        assert at.session.controls == [("set_model", {"model": "vendor/other-model-7b"})]


@pytest.mark.parametrize("typed", ["!", "#"])
async def test_an_input_that_means_something_else_in_other_agents_is_not_sent_unnoticed(typed: str) -> None:
    async with desk() as at:
        await at.type(typed)
        await at.pilot.press("enter")
        await at.sees("Nothing was sent", f"{typed[0]} at the start", f"put a space in front of the {typed[0]}")
        assert at.session.prompts == []
        assert at.app.composer.text == typed
        await at.pilot.press("home", "space", "enter")
        await at.until(lambda: at.session.prompts == [typed])


async def test_copy_puts_the_last_answer_on_the_clipboard() -> None:
    async with desk() as at:
        await at.prompt("hello")
        at.session.begin()
        at.session.text("The **answer**.")
        at.session.finish()
        await at.until(lambda: not at.app.view.reducer.running)
        await at.type("/copy")
        await at.pilot.press("enter")
        await at.sees("The last answer was sent to the terminal's clipboard.")
        assert at.app.clipboard == "The **answer**."


@pytest.mark.parametrize("typed", ["/quit", "/exit"])
async def test_quit(typed: str) -> None:
    async with desk() as at:
        await at.type(typed)
        await at.pilot.press("enter")
        await at.until(lambda: at.app.return_value == 0)


async def test_keys_of_a_quick_hand_count_in_their_order() -> None:
    async with desk() as at:
        driver = at.app._driver
        assert driver is not None
        for key in ("x", "backspace", "a", "g", "left", "backspace", "h"):
            event = key_event(key)
            event.set_sender(at.app)
            driver.send_message(event)
        await at.until(lambda: at.app.composer.text == "hg")


def test_a_path_at_the_start_of_a_prompt_is_no_command() -> None:
    asked = parse_command("?")
    assert asked is not None and asked.name == "help"
    assert parse_command("? why") is None
    assert parse_command("/etc/hosts is wrong") is None
    assert parse_command("/help\nme") is None


async def test_after_the_session_has_ended_the_page_can_still_be_read_and_left() -> None:
    async with desk() as at:
        await at.prompt("go")
        at.session.begin()
        at.session.text("It is done.")
        at.session.fail(ConnectionLost("devbox is gone for good", do="Attach again."))
        await at.sees("It is done.", "lost: devbox is gone for good", "Attach again.", ": Ctrl+D leaves")
        await at.type("/cost")
        await at.pilot.press("enter")
        await at.sees("0 tokens in")
        await at.pilot.press("ctrl+d")
        await at.until(lambda: at.app.return_value is not None)


async def test_the_frame_says_where_a_command_runs_and_for_whom_a_note_is() -> None:
    async with desk() as at:
        await at.type("!ls")
        await at.sees("─ A shell command on devbox ─")
        at.app.composer.text = "# a note"
        await at.sees("─ A note for every agent on devbox ─")
        at.app.composer.text = "a prompt"
        await at.loses("A note for every agent")
