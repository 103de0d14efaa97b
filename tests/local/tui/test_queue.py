"""The prompts that wait for the agent: listed, edited, reordered, dropped, and, with Ctrl+S, told while it works."""

from __future__ import annotations

from pathlib import Path

from tests.support.repl.pilot import Desk
from textual import events

from ccb.local.session.session_client import LinkState


async def queued(at: Desk, *texts: str) -> list[str]:
    """Let a turn run, and prompts wait behind it. Return their ids."""
    await at.turn("first", then=lambda: at.view.reducer.running)
    for each in texts:
        await at.prompt(each)
    await at.until(lambda: len(at.view.reducer.prompts.waiting) == len(texts))
    at.session.control_answers.update(cancel_async_message={"cancelled": True}, move_async_message={"moved": True})
    return at.session.identities[1:]


async def listed(at: Desk) -> None:
    await at.alone("alt+q", then=lambda: at.view.queue.display and at.app.focused is not at.composer)
    await at.sees("Enter edits")


def waiting(at: Desk) -> list[str]:
    return [each.text for each in at.view.reducer.prompts.waiting]


async def test_alt_q_lists_the_prompts_that_wait(at: Desk) -> None:
    await at.alone("alt+q", sees="no prompt waits for the agent")
    await queued(at, "second", "third")
    await listed(at)
    await at.sees("2 prompts for the agent, the next one first", "› third")
    await at.press("escape", loses="Enter edits")
    assert at.app.focused is at.composer and at.session.interrupts == 0
    await at.press(*"/queue", "escape", "enter", sees="Enter edits")


async def test_a_prompt_is_moved_by_the_worker_and_then_on_the_screen(at: Desk) -> None:
    two, three, four = await queued(at, "second", "third", "fourth")
    await listed(at)
    await at.press("shift+up", then=lambda: waiting(at) == ["second", "fourth", "third"])
    await at.press("K", "K", "shift+down", then=lambda: len(at.session.controls) == 3)
    assert [body for _, body in at.session.controls] == [
        {"message_uuid": four, "before": [three]},
        {"message_uuid": four, "before": [two, three]},
        {"message_uuid": four, "before": [three]},
    ]
    at.session.fact("moved", id=four, before=three)
    await at.until(lambda: waiting(at) == ["second", "fourth", "third"])
    await at.until(lambda: at.screen.find("❯ second") < at.screen.find("❯ fourth") < at.screen.find("❯ third"))


async def test_another_terminal_moves_a_prompt(at: Desk) -> None:
    two, three, _ = await queued(at, "second", "third", "fourth")
    at.session.fact("moved", id=three, before=two)
    await at.until(lambda: waiting(at) == ["third", "second", "fourth"])
    at.session.fact("moved", id=three)
    await at.until(lambda: waiting(at) == ["second", "fourth", "third"])


async def test_an_edited_prompt_goes_back_to_its_place(at: Desk) -> None:
    two, three, four = await queued(at, "second", "third", "fourth")
    await listed(at)
    await at.press("up", "up", "enter", then=lambda: at.composer.text == "second")
    assert at.app.focused is at.composer
    at.session.fact("unqueued", id=two)
    await at.enter(", better", then=lambda: len(at.session.placed) == 1)
    assert at.session.placed == [("second, better", (three, four))]
    await at.until(lambda: waiting(at) == ["second, better", "third", "fourth"])
    at.session.take(three)  # another client's order: the place is the first that still waits
    await at.until(lambda: waiting(at) == ["second, better", "fourth"])


async def test_a_prompt_that_is_cleared_while_it_is_edited_leaves_no_place_behind(at: Desk) -> None:
    await queued(at, "second", "third")
    await listed(at)
    await at.press("up", "enter", then=lambda: at.composer.text == "second")
    await at.press("ctrl+c")
    await at.prompt("something else")
    assert at.session.placed == []
    await at.until(lambda: waiting(at) == ["third", "something else"])


async def test_a_dropped_prompt_is_gone_and_the_next_one_is_marked(at: Desk) -> None:
    two, *_ = await queued(at, "second", "third")
    await listed(at)
    await at.press("up", "d", then=lambda: waiting(at) == ["third"])
    assert at.session.controls == [("cancel_async_message", {"message_uuid": two})]
    await at.sees("› third", loses="second")
    await at.press("d", sees=("No prompt waits any more", "Esc closes"), lacks="The agent has")


async def test_what_the_agent_takes_meanwhile_keeps_its_line_and_cannot_be_changed(at: Desk) -> None:
    two, three = await queued(at, "second", "third")
    await listed(at)
    at.session.take(three)
    await at.sees("› the agent has it  third", "1 prompt for the agent")
    await at.press("d", "enter", "shift+up")
    assert at.session.controls == [], "no key meets another prompt than the one it was meant for"
    at.session.take(two)
    await at.sees("The agent has every prompt", "cannot be changed any more")


async def test_a_prompt_that_the_worker_has_just_taken_stays_as_it_is(at: Desk) -> None:
    await queued(at, "second", "third")
    at.session.control_answers.update(cancel_async_message={"cancelled": False}, move_async_message={})
    await listed(at)
    for key in ("enter", "d", "shift+up"):
        await at.press(key, sees="the agent has taken this prompt already")
    assert waiting(at) == ["second", "third"] and at.composer.text == ""


async def test_what_is_typed_is_not_mixed_with_a_prompt_that_is_edited(at: Desk) -> None:
    await queued(at, "second")
    await at.type("draft")
    await listed(at)
    await at.press("enter", sees="send or clear first what is typed")
    assert at.session.controls == [] and at.composer.text == "draft"


async def test_an_edited_prompt_keeps_its_files_or_is_not_edited(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    await queued(at, "second")
    at.composer.post_message(events.Paste(str(tmp_path / "x.txt")))
    await at.until(lambda: at.composer.text)
    await at.press("enter", then=lambda: len(waiting(at)) == 2)
    await listed(at)
    await at.press("enter", then=lambda: at.composer.text == "[file: x.txt 1 B]")
    await at.press("enter", then=lambda: len(at.session.contents) == 4)
    assert at.session.contents[2] == at.session.contents[3]
    blocks = [{"type": "text", "text": "see [image: far.png 1 KB]"}, {"type": "image", "source": {}}]
    message = {"role": "user", "content": blocks}
    at.session.input({"type": "user", "message": message, "uuid": "of-another-terminal", "priority": "later"})
    await at.until(lambda: len(waiting(at)) == 3)
    await listed(at)
    await at.press("enter", sees="the files of this prompt are not here any more")


async def test_a_prompt_of_a_snapshot_is_edited_only_if_all_of_it_is_known(at: Desk) -> None:
    prompts = [
        {"input": "a", "uuid": "a", "text": "short", "taken": False},
        {"input": "b", "uuid": "b", "text": "x" * 2_000 + " …", "taken": False},
    ]
    at.session.skip(9, prompts=prompts)
    at.session.control_answers["cancel_async_message"] = {"cancelled": True}
    await at.until(lambda: len(waiting(at)) == 2)
    await listed(at)
    await at.press("enter", sees="only the beginning of this prompt is known here")
    await at.press("up", "enter", then=lambda: at.composer.text == "short")


async def test_a_text_that_looks_like_a_command_line_stays_a_prompt(at: Desk) -> None:
    await queued(at, " ! is not", "! make")
    await listed(at)
    await at.press("up", "enter", then=lambda: at.composer.text == " ! is not")
    await at.press("enter", then=lambda: len(at.session.prompts) == 4)
    assert at.session.command_lines == ["! make"]


async def test_a_prompt_that_has_not_left_the_laptop_says_so(at: Desk) -> None:
    await queued(at, "second")
    at.session.link(LinkState.RECONNECTING, "gone", 1)
    await at.prompt("third")
    await listed(at)
    await at.sees("waiting to be sent  third")


async def test_ctrl_s_steers_and_enter_queues(at: Desk) -> None:
    await queued(at, "second", "third")
    await at.press(*"look here first", "ctrl+s", then=lambda: at.session.steering == ["look here first"])
    await at.until(lambda: waiting(at) == ["look here first", "second", "third"])
    assert at.composer.text == ""
    await at.sees("❯ look here first  (steers)", "❯ third  (queued)  Ctrl+S steers", "1 steering, 2 queued")
    await listed(at)
    await at.sees("  steers  look here first")


async def test_ctrl_s_with_nothing_typed_lets_the_next_prompt_steer(at: Desk) -> None:
    two, three = await queued(at, "second", "third")
    await at.press("ctrl+s", then=lambda: at.session.controls != [])
    assert at.session.controls == [("move_async_message", {"message_uuid": two, "before": [three], "steer": True})]
    await at.sees("❯ second  (steers)", "❯ third  (queued)")
    at.session.fact("moved", id=two, before=three, steers=True)
    await at.press("ctrl+s", "ctrl+s", then=lambda: len(at.session.controls) == 2, sees="Ctrl+S sends what is typed")


async def test_s_in_the_list_lets_a_prompt_steer_but_no_command(at: Desk) -> None:
    _, three, _ = await queued(at, "second", "third", "! make")
    await listed(at)
    await at.press("s", sees="a command has a turn of its own")
    await at.press("up", "s", then=lambda: waiting(at) == ["third", "second", "! make"])
    assert [fields["message_uuid"] for _, fields in at.session.controls] == [three]
    await at.press("s", sees="with its next tool results already")


async def test_an_agent_that_cannot_be_steered_is_offered_to_queue(at: Desk) -> None:
    at.session.fact("options", options={"foreign_agent": "gemini --acp"})
    await queued(at, "second")
    await at.press(*"look here", "ctrl+s", then=lambda: waiting(at) == ["second", "look here"])
    assert at.session.steering == [] and "steers" not in at.screen
    await at.press("ctrl+s", sees="this agent takes a prompt only at the end of its turn")
    await listed(at)
    assert "steers" not in at.screen and at.session.controls == []


async def test_another_terminal_lets_a_prompt_steer(at: Desk) -> None:
    _, three = await queued(at, "second", "third")
    at.session.fact("moved", id=three, before="", steers=True)
    await at.until(lambda: waiting(at) == ["third", "second"], sees="❯ third  (steers)")


async def test_a_command_line_never_steers(at: Desk) -> None:
    await queued(at)
    await at.press(*"! make", "ctrl+s", then=lambda: at.session.command_lines == ["! make"])
    assert at.session.steering == []


async def test_what_steers_over_a_lost_connection_is_sent_once(at: Desk) -> None:
    await queued(at)
    at.session.link(LinkState.RECONNECTING, "gone")
    await at.type("look here")
    await at.press("ctrl+s", sees="❯ look here  (waiting to be sent)")
    at.session.link(LinkState.CONNECTED)
    at.session.deliver()
    await at.sees("❯ look here  (steers)")
    assert at.session.steering == ["look here"]
    at.session.take(at.session.identities[-1])
    await at.loses("(steers)")


async def test_a_terminal_that_comes_later_sees_what_steers(at: Desk) -> None:
    prompts = [
        {"input": "a", "text": "waits", "taken": False, "steers": False},
        {"input": "b", "text": "hurries", "taken": False, "steers": True},
    ]
    at.session.skip(10, prompts=prompts)
    await at.until(lambda: waiting(at) == ["hurries", "waits"], sees=("❯ hurries  (steers)", "❯ waits  (queued)"))
