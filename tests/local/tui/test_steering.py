"""What the person does in the REPL while work goes on: tasks, prompts that wait, command lines."""

from __future__ import annotations

import time

from tests.support.repl.pilot import Desk, desk

from ccb.local.session.session_client import LinkState
from ccb.remote.agent.agent_messages import INTERRUPTED


def starts(at: Desk, task_id: str, description: str) -> None:
    at.session.say(
        {
            "type": "system", "subtype": "task_started", "task_id": task_id, "task_type": "local_bash",
            "description": description, "is_backgrounded": True, "tool_use_id": "toolu_1",
        }
    )  # fmt: skip


async def test_tasks_are_counted_until_they_end() -> None:
    async with desk(size=(120, 30)) as at:
        starts(at, "bash_1", "npm test\x1b[31m")
        await at.sees("1 task in the background: /tasks")
        starts(at, "bash_2", "make serve")
        await at.sees("2 tasks in the background: /tasks")
        at.session.say(
            {
                "type": "system", "subtype": "task_notification", "task_id": "bash_2", "status": "stopped",
                "output_file": "", "summary": 'Background command "make serve" was stopped',
            }
        )  # fmt: skip
        await at.sees('Background command "make serve" was stopped', "1 task in the background")


async def test_a_terminal_that_comes_late_knows_the_tasks() -> None:
    async with desk(size=(120, 30)) as at:
        at.session.skip(40, tasks=[{"task_id": "bash_7", "description": "make serve"}])
        await at.sees("1 task in the background")
        at.session.skip(2, tasks=[])
        await at.loses("in the background")


async def test_ctrl_b_lets_the_running_command_go_on_in_the_background(at: Desk) -> None:
    at.session.control_answers["background_tasks"] = {"moved": True}
    await at.press("ctrl+b", sees="moved to the background")
    at.session.control_answers["background_tasks"] = {"moved": False}
    await at.press("ctrl+b", sees="no command runs")
    assert at.session.controls == [("background_tasks", {})] * 2


async def test_up_takes_the_newest_prompt_that_waits_back_for_editing(at: Desk) -> None:
    await at.turn("first")
    await at.prompt("second")
    await at.prompt("third", sees=("second", "third"))
    at.session.control_answers["cancel_async_message"] = {"cancelled": True}
    await at.press("up", then=lambda: at.composer.text == "third")
    assert at.session.controls == [("cancel_async_message", {"message_uuid": at.session.identities[2]})]
    at.session.fact("unqueued", id=at.session.identities[2])
    await at.press("ctrl+c")
    at.session.control_answers["cancel_async_message"] = {"cancelled": False}
    await at.press("up", sees="the agent has taken this prompt already")
    assert at.composer.text == ""
    at.session.take(at.session.identities[1])
    await at.until(lambda: at.view.reducer.prompts.waiting == [])
    await at.press("up")
    await at.until(lambda: at.composer.text == "third")  # the history, as before


async def test_a_prompt_that_another_terminal_takes_back_disappears(at: Desk) -> None:
    at.session.begin()
    await at.until(lambda: at.view.reducer.running)
    identity = at.session.prompted("never mind this")
    await at.sees("never mind this")
    at.session.fact("unqueued", id=identity)
    await at.loses("never mind this")


async def test_a_line_behind_an_exclamation_mark_is_a_command_for_the_host(at: Desk) -> None:
    await at.prompt("! make test")
    assert at.session.command_lines == ["! make test"]
    await at.sees("❯ ! make test")
    await at.prompt(" ! is not")
    assert at.session.command_lines == ["! make test"] and at.session.prompts[-1] == "! is not"


async def test_an_exclamation_mark_alone_sends_nothing(at: Desk) -> None:
    await at.give("!", sees=("Nothing was sent", "no command follows it"))
    assert not at.session.prompts


async def test_the_last_lines_of_a_command_line_are_shown_while_it_runs_and_esc_ends_it(at: Desk) -> None:
    def prints(output: str, elapsed_s: float) -> None:
        at.session.progress(
            {
                "type": "tool_progress", "tool_use_id": "shell_1", "tool_name": "Bash", "output": output,
                "elapsed_time_seconds": elapsed_s,
            }
        )  # fmt: skip

    await at.turn("! make test")
    prints("\n".join(f"compiling \x1b[31m{number}" for number in range(100)), 2)
    await at.sees("compiling 99", "make test", lacks="compiling 1\n")
    prints("all\nlinking\n", 7)
    await at.sees("linking", loses="compiling")
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    text = {"type": "text", "text": "<local-command-stdout>all\nlinking\n[interrupted]</local-command-stdout>"}
    at.session.say({"type": "user", "message": {"role": "user", "content": [text]}, "isReplay": True})
    prints("late", 8)
    at.session.finish()
    await at.sees("[interrupted]")
    await at.until(lambda: not at.view.reducer.running)
    assert at.screen.count("linking") == 1 and "late" not in at.screen
    at.session.begin()
    prints("of the next one", 1)
    await at.sees("of the next one")
    at.session.finish(is_error=True, terminal_reason="aborted_tools", errors=["aborted"])
    await at.until(lambda: not at.view.reducer.running, sees=("✗ Bash make test", "of the next one"))


async def test_esc_before_any_output_gives_the_prompt_back(at: Desk) -> None:
    await at.turn("with a mistak", sees="❯ with a mistak")
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    at.session.say({"type": "user", "message": {"content": [{"type": "text", "text": INTERRUPTED}]}})
    at.session.finish(terminal_reason="aborted_streaming", subtype="error_during_execution", is_error=True)
    await at.until(lambda: at.composer.text == "with a mistak")
    rewind = {"user_message_id": at.session.identities[0], "after": "", "files": False, "drops": ""}
    assert at.session.controls == [("rewind_conversation", rewind)], "the conversation does not keep it"


async def test_a_prompt_that_another_one_follows_is_not_given_back(at: Desk) -> None:
    await at.turn("first")
    at.session.refuse_controls = "the turn has not ended"
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    at.session.finish(terminal_reason="aborted_streaming", subtype="error_during_execution", is_error=True)
    await at.until(lambda: at.session.controls)
    await at.prompt("second")
    count = len(at.session.controls)
    await at.pilot.pause(0.5)
    assert (at.composer.text, len(at.session.controls)) == ("", count)


async def test_a_prompt_is_not_given_back_to_a_terminal_that_only_watches_now(at: Desk) -> None:
    await at.turn("first")
    at.session.refuse_controls = "the turn has not ended"
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    at.session.finish(terminal_reason="aborted_streaming", subtype="error_during_execution", is_error=True)
    await at.until(lambda: at.session.controls)
    await at.link(LinkState.FENCED, "alice drives", sees="only watching")
    await at.pilot.pause(0.5)
    assert at.composer.text == ""


async def test_esc_after_some_output_keeps_the_prompt_in_the_conversation(at: Desk) -> None:
    await at.turn("go", then=lambda: at.view.reducer.running)
    at.session.streams("Wor")
    await at.sees("Wor")
    await at.press("escape", then=lambda: at.session.interrupts == 1)
    at.session.finish(terminal_reason="aborted_streaming", subtype="error_during_execution", is_error=True)
    await at.until(lambda: not at.view.reducer.running)
    assert (at.composer.text, at.session.controls) == ("", [])


async def test_a_command_that_runs_for_long_and_a_prompt_that_waits_name_their_keys(at: Desk) -> None:
    await at.turn("go")
    call = at.session.call("Bash", command="make")
    at.session.run(call)  # it prints nothing
    await at.until(lambda: not at.view.reducer.waits_for_model)
    await at.sees("Bash make", lacks="Ctrl+B background")
    at.view.status.tick(time.monotonic() + 6)
    await at.sees("Bash make  6 s  Ctrl+B background")
    at.session.run(call, "1", elapsed_s=60)
    await at.prompt("next", sees=("Bash make  60 s  Ctrl+B background", "❯ next  (queued)  Ctrl+S steers"))
    await at.prompt("! ls", sees="❯ ! ls  (queued)", lacks="ls  (queued)  Ctrl+S")


async def test_a_command_of_an_agent_that_moves_none_to_the_background_names_no_key(at: Desk) -> None:
    await at.turn("go")
    at.session.fact("options", options={"foreign_agent": "gemini --acp"})
    at.session.run(at.session.call("Bash", command="make"), "1", elapsed_s=60)
    await at.sees("Bash make  60 s", lacks="Ctrl+B background")
